"""Text from strangers never reaches a terminal as commands."""

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from bic import Progress, UserError
from bic.text import is_printable, printable

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=20)


@given(ANY_TEXT)
def test_shown_text_is_printable_and_stays_as_it_is(text: str) -> None:
    shown = printable(text)
    assert is_printable(shown)
    assert printable(shown) == shown
    shown.encode()
    if text.isprintable():
        assert shown == text


def test_what_becomes_of_each_character() -> None:
    assert printable("\x1b[2J\x07\x9b0m\x7f") == r"\x1b[2J\x07\x9b0m\x7f"
    assert printable("one\ntwo\r\tthree") == "one two  three"
    assert printable("\u202egnp.exe\u2066") == r"\u202egnp.exe\u2066"  # writes backwards
    assert printable("\ud800") == r"\ud800"
    assert printable("👩\u200d🔬 می\u200cخواهم crème") == "👩\u200d🔬 می\u200cخواهم crème"


def test_errors_and_progress_are_printable() -> None:
    error = UserError("there is no \x1b[31mclass", "rename {out} \x07")
    assert str(error) == r"there is no \x1b[31mclass; rename out \x07"
    progress = Progress("lines")
    out = io.StringIO()
    progress.console = Console(file=out)
    progress.say("opening \x1b]0;title\x07")
    with progress.task("class \x1b[2J", 3) as task:
        task.advance(3)
    assert out.getvalue() == "opening \\x1b]0;title\\x07\n"
    assert task.name == r"class \x1b[2J"
