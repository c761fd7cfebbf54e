"""Errors that a user can cause or see: a problem, and a remedy.

A remedy names settings in braces, as in `raise {memory}` or `use {backbone=small}`. Each interface
writes them in its own way: `memory` and `backbone="small"` in Python, `--memory` and
`--backbone small` on the command line.
"""

import ast
import difflib
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bic.text import printable

SETTING = re.compile(r"\{([a-z][a-z0-9_.]*)(?:=([^{}]*))?\}")

FEW_NAMES = 12  # that are listed beside a suggestion
MOST_NAMES = 100  # that are listed at all
PACKAGE = f"{Path(__file__).parent}{os.sep}"

# (name of a setting, value or None) → how an interface writes it
Phrase = Callable[[str, str | None], str]


def in_python(name: str, value: str | None) -> str:
    """A setting as Python code writes it.

    >>> in_python("memory", None), in_python("memory", "60"), in_python("backbone", "mlp")
    ('memory', 'memory=60', 'backbone="mlp"')
    >>> in_python("step_sizes", "4,3,3")
    'step_sizes=(4, 3, 3)'
    """
    if value is None:
        return name
    try:
        return f"{name}={ast.literal_eval(value)!r}"
    except (ValueError, SyntaxError):  # a text
        return f'{name}="{value}"'


class BicError(Exception):
    """What went wrong (`problem`) and what would help (`remedy`), together one sentence."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem, remedy)
        self.problem = problem
        self.remedy = remedy

    def phrased(self, phrase: Phrase) -> str:
        """The whole sentence, with the settings in the remedy written by `phrase`.

        Names of files and classes in it may come from strangers, so it is made printable.
        """
        return printable(f"{self.problem}; {self.phrased_remedy(phrase)}")

    def phrased_remedy(self, phrase: Phrase) -> str:
        """The remedy alone, with the settings in it written by `phrase`."""
        return SETTING.sub(lambda match: phrase(match[1], match[2]), self.remedy)

    def __str__(self) -> str:
        return self.phrased(in_python)


class UserError(BicError):
    """A mistake that the user can fix. On the command line: exit code 2, no traceback."""


class InUseError(UserError):
    """Another process is changing the same folder."""


class LostError(BicError):
    """A failure that is nobody's fault, such as a killed process. Exit code 1, no traceback."""


class HeldOutWarning(UserWarning):
    """The held-out set is too small to trust the correction that was fitted on it."""


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn about the line outside of bic that has called it."""
    level = 2  # the caller of this function
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(PACKAGE) and frame.f_back is not None:
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)


def show_warnings(show: Callable[[str], None]) -> None:
    """From now on, pass the text of every warning to `show`; the same text only once.

    An image that cannot be read is found again whenever it is decoded.
    """
    shown: set[str] = set()

    def show_once(message: Warning | str, *_: Any, **__: Any) -> None:
        text = str(message)
        if text not in shown:
            shown.add(text)
            show(text)

    warnings.showwarning = show_once


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for an unknown name. It suggests the closest known name."""
    problem = f"unknown {kind} {name!r}"
    names = list(known)
    if not names:
        return UserError(problem, "leave it out: there are none")
    last_parts: dict[str, str] = {}
    for known_name in names:
        last_parts.setdefault(known_name.rpartition(".")[2], known_name)
    close = difflib.get_close_matches(name.rpartition(".")[2], last_parts, n=1, cutoff=0.6)
    listed = ", ".join(names[:MOST_NAMES])
    if len(names) > MOST_NAMES:
        listed += f" and {len(names) - MOST_NAMES:,} more"
    if not close:
        return UserError(problem, f"known: {listed}")
    suggestion = f"did you mean {last_parts[close[0]]!r}?"
    if len(names) > FEW_NAMES:
        return UserError(problem, suggestion)
    return UserError(problem, f"{suggestion} Known: {listed}")
