"""Generates the parts of the documents that the code defines: commands, settings, recipes, methods.

A document names such a part as `<!-- generated: NAME -->`. MkDocs calls `on_page_markdown` for
every page and the parts are put in place there.
"""

import ast
import inspect
import re
import textwrap
import types
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin

import annotated_types
from mkdocs.exceptions import PluginError
from pydantic.fields import FieldInfo

from bic.cli import app
from bic.lab.plan import RunConfig
from bic.lab.protocol import DEFAULTS, OTHERS
from bic.learn.learning import Learning, MemoryBudget
from bic.learn.methods import METHODS
from bic.learn.methods.method import MethodSettings
from bic.learn.recipe import Recipe
from bic.learn.recipes import RECIPES
from bic.settings import Settings

TOO_LARGE_TO_MATTER = 2**31  # limits of settings from here on are not shown
MARKER = re.compile(r"<!-- generated: ([a-z ]+) -->")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The page with every generated part in place."""

    def part(match: re.Match[str]) -> str:
        if match[1] not in PARTS:
            known = ", ".join(PARTS)
            raise PluginError(f"{page.file.src_uri} names {match[0]}, known are: {known}")
        return PARTS[match[1]]()

    return MARKER.sub(part, markdown)


def commands() -> str:
    """The help of every command."""
    text = app.generate_docs("markdown", recursive=True, heading_level=2, flatten_commands=True)
    # The site has its own table of contents.
    return re.sub(
        r"^## Table of Contents\n.*?(?=^\*\*|^##)", "", text, flags=re.DOTALL | re.MULTILINE
    )


def methods() -> str:
    """The table of methods."""
    rows = []
    for method in METHODS.values():
        name = f"`{method.name}` *" if method.is_upper_bound else f"`{method.name}`"
        exemplars = "yes" if method.keeps_exemplars else "no"
        if method.keeps_exemplars and not method.needs_exemplars:
            exemplars = "not needed"
        rows.append([name, method.summary, exemplars])
    note = "\n\\* sees old data, which no other method may see."
    return table(["method", "what it does", "keeps exemplars"], rows) + note


def recipes() -> str:
    """The table of recipes: a row for every setting, a column for every recipe."""
    values = {name: dict(flat(recipe.model_dump())) for name, recipe in RECIPES.items()}
    paths = [path for path in next(iter(values.values())) if path != "name"]
    rows = []
    for path in paths:
        cells = [as_code(values[name][path]) for name in RECIPES]
        rows.append([f"`{path}`", *cells])
    return table(["setting", *(f"`{name}`" for name in RECIPES)], rows)


def defaults() -> str:
    """What each protocol uses where the user says nothing."""
    rows = []
    named = {f"`{name}`": chosen for name, chosen in DEFAULTS.items()}
    for name, chosen in {**named, "all others": OTHERS}.items():
        memory = f"{chosen.memory:,} images"
        limit = "none" if chosen.held_out_limit is None else f"{chosen.held_out_limit:,}"
        rows.append([name, chosen.method, str(chosen.steps), memory, str(chosen.held_out), limit])
    header = ["data set", "method", "steps", "memory", "held out", "held-out limit"]
    return table(header, rows)


def method_settings() -> str:
    """The settings that only one method has."""
    parts = []
    for method in METHODS.values():
        if method.settings.model_fields:
            rows = settings_table(method.settings, "method_settings.")
            parts.append(f"### `{method.name}`\n\n{rows}")
    return "\n\n".join(parts)


def settings_table(kind: type[Settings], under: str = "") -> str:
    """Every setting of a class, and of the settings classes inside it."""
    return table(["setting", "type", "default", "meaning"], settings_rows(kind, under))


def settings_rows(kind: type[Settings], under: str) -> Iterator[list[str]]:
    comments = comments_of(kind)
    for name, field in kind.model_fields.items():
        inner = field.annotation
        if kind is Recipe and is_settings(inner):
            yield from settings_rows(inner, f"{under}{name}.")
            continue
        meaning = field.description or comments.get(name) or flag_help().get(name, "")
        yield [f"`{under}{name}`", type_of(field), default_of(field), meaning]


@cache
def flag_help() -> dict[str, str]:
    """The help of the flags of `bic run`, which have the names of the settings."""
    found = {}
    for argument in app["run"].assemble_argument_collection():
        if argument.parameter.help and argument.field_info.name:
            found[argument.field_info.name] = argument.parameter.help
    return found


def is_settings(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Settings)


def default_of(field: FieldInfo) -> str:
    if field.is_required():
        return RESOLVED.get(field.annotation, "required")
    value = field.get_default(call_default_factory=True)
    if isinstance(value, Settings):
        given = value.model_dump(exclude_none=True)
        return ", ".join(f"{number:,} {name}" for name, number in given.items())
    return as_code(value)


def type_of(field: FieldInfo) -> str:
    """The type of a field and its limits, such as `int, ≥ 1`."""
    limits = []
    for limit in field.metadata:
        for kind, sign in SIGNS.items():
            value = getattr(limit, kind.__name__.lower(), None)
            if value is not None and value < TOO_LARGE_TO_MATTER:
                limits.append(f"{sign} {value}")
    return ", ".join([type_name(field.annotation), *limits])


# Settings that Learning fills in if they are left out.
RESOLVED = {Recipe: "`fast`", MethodSettings: "the method's own"}

SIGNS: dict[type, str] = {
    annotated_types.Ge: "≥",
    annotated_types.Gt: ">",
    annotated_types.Le: "≤",
    annotated_types.Lt: "<",
}


def type_name(annotation: Any) -> str:
    """A type as people write it.

    >>> type_name(int | None)
    'int or none'
    """
    origin = get_origin(annotation)
    if origin in (types.UnionType, Union):
        return " or ".join(type_name(option) for option in get_args(annotation))
    if origin is Literal:
        return " or ".join(f"`{option}`" for option in get_args(annotation))
    if origin is tuple:
        return f"list of {type_name(get_args(annotation)[0])}"
    if origin is dict:
        return "table"
    if annotation is types.NoneType:
        return "none"
    if annotation is MemoryBudget:
        return "images (`2000`) or bytes (`64MB`)"
    if annotation is Recipe:
        return "name or table"
    if is_settings(annotation):
        return "table"
    return str(getattr(annotation, "__name__", annotation))


def comments_of(kind: type[Settings]) -> dict[str, str]:
    """The comment of every field: at the end of its line, or in the lines above it."""
    comments: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if is_settings(owner) and owner is not Settings:
            comments |= read_comments(textwrap.dedent(inspect.getsource(owner)))
    return comments


def read_comments(source: str) -> dict[str, str]:
    r"""The comments of the fields of a class, from its source.

    >>> read_comments("class A:\n    # Above.\n    b: int = 1\n    c: str = ''  # behind")
    {'b': 'Above.', 'c': 'behind'}
    """
    lines = source.splitlines()
    comments = {}
    (body,) = (node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    for node in body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        end = node.end_lineno or node.lineno
        behind = lines[end - 1].encode()[node.end_col_offset :].decode()
        above = []
        number = node.lineno - 2
        while lines[number].strip().startswith("#"):
            above.insert(0, lines[number])
            number -= 1
        found = [line.strip().removeprefix("#").strip() for line in [*above, behind]]
        if any(found):
            comments[node.target.id] = " ".join(text for text in found if text)
    return comments


def flat(values: dict[str, Any], under: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested mappings, by path."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{under}{name}.")
        else:
            yield under + name, value


def as_code(value: Any) -> str:
    """A value as TOML writes it; none and empty values as a dash.

    >>> as_code(True), as_code((0.4, 0.6)), as_code(None), as_code(2e-4)
    ('true', '0.4, 0.6', '–', '0.0002')
    """
    if value is None or value in ((), {}, ""):
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ", ".join(as_code(item) for item in value)
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value) if isinstance(value, int) else f"`{value}`"


def table(header: list[str], rows: Iterable[list[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for row in rows:
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    return "\n".join(lines) + "\n"


PARTS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "methods": methods,
    "recipes": recipes,
    "defaults": defaults,
    "settings of a run": lambda: settings_table(RunConfig),
    "settings of learning": lambda: settings_table(Learning),
    "settings of a recipe": lambda: settings_table(Recipe, "recipe."),
    "settings of methods": method_settings,
}
