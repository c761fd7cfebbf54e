"""Class names that a model accepts, and the names of retired classes. Imports no torch."""

import re
import unicodedata
from collections.abc import Collection, Sequence

from bic.errors import UserError
from bic.model.versions import MAX_NAME, is_class_name

RETIRED = re.compile(r" \(retired( \d+)?\)$")


def checked_names(names: Sequence[str], known: Collection[str]) -> tuple[str, ...]:
    """The names in their composed form.

    Raises UserError for a name that cannot be used, and for names that differ from each other or
    from a known class only by upper and lower case.
    """
    all_composed = tuple(composed(name) for name in names)
    lower = {name.casefold(): name for name in known}
    is_known = set(known)
    for name in all_composed:
        check_name(name)
        other = lower.get(name.casefold())
        if other is not None and (other != name or name not in is_known):
            how = "are the same" if other == name else "differ only by case"
            raise UserError(
                f"the class names {other!r} and {name!r} {how}",
                "use one name for each class, always written in the same way",
            )
        lower[name.casefold()] = name
        is_known.discard(name)  # a second class of this name is refused
    return all_composed


def composed(name: str) -> str:
    """The name in Unicode's composed form (NFC), in which equal names have equal letters."""
    return unicodedata.normalize("NFC", name)


def check_name(name: str) -> None:
    """Raise UserError for a name that cannot be used."""
    shown = repr(name if len(name) <= MAX_NAME else f"{name[:40]}…")
    if RETIRED.search(name):
        raise UserError(f"the class name {shown} is reserved for a retired class", "rename it")
    if not is_class_name(name) or name in {".", ".."}:
        raise UserError(
            f"the class name {shown} cannot be used",
            f"rename it: 1 to {MAX_NAME} printable characters, no slash or "
            "backslash, no space at either end, and not . or .. alone",
        )


def retired_name(name: str, taken: Collection[str]) -> str:
    """The name of a class after it was retired. Its old name is free for another class.

    >>> retired_name("cat", {"cat"}), retired_name("cat", {"cat", "cat (retired)"})
    ('cat (retired)', 'cat (retired 2)')
    """
    name = name[: MAX_NAME - len(" (retired 9999)")]
    number = 1
    retired = f"{name} (retired)"
    while retired in taken:
        number += 1
        retired = f"{name} (retired {number})"
    return retired
