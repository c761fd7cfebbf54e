"""Shows the doctests in docstrings as blocks of code. mkdocstrings loads this file."""

import re
from typing import Any

from griffe import Extension, Object

DOCTEST = re.compile(r"^>>> .*\n(?:.+\n?)*", re.MULTILINE)


class Doctests(Extension):
    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(docstring: str) -> str:
    r"""The docstring with fences around its doctests.

    >>> fenced("Adds.\n\n>>> 1 + 1\n2")
    'Adds.\n\n```pycon\n>>> 1 + 1\n2\n```\n'
    """
    return DOCTEST.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```\n", docstring)
