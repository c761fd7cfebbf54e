"""Which class names are allowed. Slashes, spaces and emoji are; escape sequences are not."""

import unicodedata
from collections.abc import Sequence

from bic.text import is_printable

MAX_LENGTH = 255  # characters


def name_problem(names: Sequence[str]) -> str | None:
    """What is wrong with the first bad name in a list of class names, or None.

    Two names must not look the same: é as one character equals é as e and an accent. Names that
    differ in upper and lower case are different names, such as the letters A and a.
    """
    seen: dict[str, str] = {}
    for name in names:
        if not isinstance(name, str):
            return f"the class name {name!r} is not text"
        if len(name) > MAX_LENGTH:
            length = f"{len(name):,} characters, more than {MAX_LENGTH}"
            return f"the class name {name[:20] + '…'!r} has {length}"
        if not name.strip() or not is_printable(name):
            return f"the class name {name!r} is empty or not printable"
        same = unicodedata.normalize("NFC", name)
        if same in seen:
            return _named_twice(seen[same], name)
        seen[same] = name
    return None


def _named_twice(first: str, second: str) -> str:
    if first == second:
        return f"class {first!r} is named twice"
    return f"two classes look like {first!r} and differ only in how accents are written"
