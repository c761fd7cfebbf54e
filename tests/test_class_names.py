"""Which class names are allowed."""

import pytest

from bic.class_names import name_problem


@pytest.mark.parametrize(
    "names",
    [
        (),
        ("cat", "Cat", "CAT"),  # as the letters A and a
        ("Greek/character01", "../x", "/etc/passwd", "a\\b"),
        ("🐈", "👩\u200d🔬", "日本", "می\u200cخواهم"),
        ("x" * 255, "a b", ".hidden", "-", "[bold]", "NaN", "0"),
    ],
)
def test_names_that_are_allowed(names: tuple[str, ...]) -> None:
    assert name_problem(names) is None


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (("a", ""), "the class name '' is empty or not printable"),
        (("a", " \u2003"), r"the class name ' \u2003' is empty or not printable"),
        (("\x1b[2J",), r"the class name '\x1b[2J' is empty or not printable"),
        (("a\nb",), r"the class name 'a\nb' is empty or not printable"),
        (("\u202ecba",), r"the class name '\u202ecba' is empty or not printable"),
        (("\ud800",), r"the class name '\ud800' is empty or not printable"),
        (("x" * 300,), f"the class name '{'x' * 20}…' has 300 characters, more than 255"),
        ((5,), "the class name 5 is not text"),
        (("a", "b", "a"), "class 'a' is named twice"),
        (
            ("caf\xe9", "cafe\u0301"),
            "two classes look like 'café' and differ only in how accents are written",
        ),
    ],
)
def test_names_that_are_refused(names: tuple[str, ...], problem: str) -> None:
    assert name_problem(names) == problem
