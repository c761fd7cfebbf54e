"""Text from strangers: made printable, in the one place that everything shown passes through."""

SPACES = "\t\n\v\f\r\x85\u2028\u2029"
# Joiners make one emoji out of several, and separate letters in Persian and Hindi.
JOINERS = "\u200c\u200d"


def printable(text: str) -> str:
    r"""The text on one line, with escape codes in place of characters that a terminal obeys.

    >>> printable("caf\xe9 \x1b[2J\nnext")
    'café \\x1b[2J next'
    """
    if text.isprintable():
        return text
    return "".join(map(_shown, text))


def is_printable(text: str) -> bool:
    """Whether `printable` would return the text as it is."""
    return text.isprintable() or printable(text) == text


def _shown(character: str) -> str:
    if character.isprintable() or character in JOINERS:
        return character
    if character in SPACES:
        return " "
    return character.encode("unicode_escape").decode("ascii")
