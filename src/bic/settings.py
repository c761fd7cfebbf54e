"""The base of all settings: frozen, checked when they are built, with errors in one sentence."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from bic.errors import UserError, unknown

LARGEST = 1e30  # of a real setting; much more than that is infinite in float32

Kind = TypeVar("Kind", bound="Settings")


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    # Short forms that are accepted beside the fields, for errors that list the known names.
    SHORT_FORMS: ClassVar[tuple[str, ...]] = ()
    # Whether these settings are usually written as one value, as in memory=2000.
    IS_ONE_VALUE: ClassVar[bool] = False


def checked(kind: type[Kind], values: Mapping[str, Any], *, under: str = "") -> Kind:
    """Build settings. Raises UserError with pydantic's first error as one sentence.

    `under` is the path of these settings inside others, such as `recipe.`.
    """
    if not isinstance(values, Mapping):
        name = under.removesuffix(".") or "settings"
        raise UserError(f"{name} must be a table of settings, got {values!r}", f"change {name}")
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        raise one_sentence(error, kind, under) from error


def one_sentence(error: ValidationError, kind: type[Settings], under: str = "") -> UserError:
    """Pydantic's first error about settings, as one sentence."""
    found = error.errors()[0]
    names = [part for part in found["loc"] if isinstance(part, str)]
    path = under + ".".join(names) if names else ""
    if found["type"] == "extra_forbidden":
        return unknown("setting", path, known_paths(kind, under))
    if found["type"] == "missing":
        return UserError(f"the setting {path} is missing", f"pass {{{path}}}")
    message = found["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    message = message.partition(", unable to parse")[0]
    received = "" if found["type"] == "value_error" else f", got {found['input']!r}"
    remedy = f"change {{{path}}}" if path else "change one of them"
    return UserError(f"{path} {message}{received}".strip(), remedy)


def known_paths(kind: type[Settings], under: str = "") -> list[str]:
    """The paths of all settings, including those inside other settings.

    >>> class Inner(Settings):
    ...     size: int
    >>> class Outer(Settings):
    ...     inner: Inner
    >>> known_paths(Outer)
    ['inner.size']
    """
    paths = [under + name for name in kind.SHORT_FORMS]
    for name, field in kind.model_fields.items():
        inner: Any = field.annotation
        is_table = isinstance(inner, type) and issubclass(inner, Settings)
        if not is_table or inner.IS_ONE_VALUE:
            paths.append(under + name)
        else:
            paths += known_paths(inner, f"{under}{name}.")
    return paths


def flat_settings(settings: Mapping[str, Any], under: str = "") -> Iterator[tuple[str, Any]]:
    """The path and the value of every setting.

    >>> dict(flat_settings({"seed": 1, "recipe": {"optimiser": {"momentum": 0.9}}}))
    {'seed': 1, 'recipe.optimiser.momentum': 0.9}
    """
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat_settings(value, f"{under}{name}.")
        else:
            yield under + name, value


def _set(settings: dict[str, Any], name: str, value: Any) -> None:
    """Set the setting at a path such as recipe.optimiser.momentum."""
    *tables, leaf = ["recipe", "name"] if name == "recipe" else name.split(".")
    place = settings
    for table in tables:
        if table == "recipe" and isinstance(place.get(table), str):
            place[table] = {"name": place[table]}
        place = place.setdefault(table, {})
        if not isinstance(place, dict):
            raise UserError(
                f"{table} must be a table of settings to hold {name}, got {place!r}", "fix it"
            )
    place[leaf] = value


def _set_by_assignment(settings: dict[str, Any], assignment: str) -> None:
    """Set a setting as `NAME=VALUE` says. The value is TOML, or else text."""
    name, equals, text = assignment.partition("=")
    if not equals or not name.strip():
        raise UserError(
            f"a setting must be given as NAME=VALUE, got {assignment!r}",
            "write for example {recipe.learning_rate=0.05}",
        )
    value: Any = text
    with suppress(ValueError, RecursionError):  # not TOML, so it is text
        value = tomllib.loads(f"value = {text}")["value"]
    _set(settings, name.strip(), value)


def assigned(
    assignments: Iterable[str], flags: Mapping[str, Any], start: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Settings from `start`, `NAME=VALUE` assignments and flags. Later ones override.

    Flags that are None were not given.

    >>> assigned(["recipe.epochs=3", "seed=1"], {"recipe": "best", "seed": None})
    {'recipe': {'epochs': 3, 'name': 'best'}, 'seed': 1}
    """
    settings = dict(start or {})
    for assignment in assignments:
        _set_by_assignment(settings, assignment)
    for name, value in flags.items():
        if value is not None:
            _set(settings, name, value)
    return settings
