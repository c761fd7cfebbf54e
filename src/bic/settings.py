"""The base of all settings: frozen, checked when they are built, with errors in one sentence."""

from collections.abc import Mapping
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
