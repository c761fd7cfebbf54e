"""A page from its template: style, scripts and data are inside, so that it works offline."""

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from bic.version import __version__


def html_page(
    template: str, *, styles: Sequence[str], scripts: Sequence[str], data: Any, **content: Any
) -> str:
    """The text of a page. `styles` and `scripts` name files next to the template.

    `data` is for the scripts, which run in their order. `content` is for the template.
    """
    templates = Environment(
        loader=PackageLoader("bic.report"), undefined=StrictUndefined, autoescape=True
    )
    return templates.get_template(template).render(
        version=__version__,
        style=Markup("").join(_text(name) for name in styles),
        scripts=[_text(name) for name in scripts],
        data=htmlsafe_json_dumps(data, dumps=_dumps),
        **content,
    )


def _text(name: str) -> Markup:
    return Markup(files("bic.report").joinpath("templates", name).read_text(encoding="utf-8"))


def _dumps(value: Any, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
