"""Errors: a problem and a remedy, in the words of Python or of the command line."""

import ast
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import bic
from bic import BicError, LostError, UserError
from bic.cli.app import as_flag
from bic.errors import SETTING, show_warnings, unknown, warn

SOURCES = sorted(Path(bic.__file__).parent.rglob("*.py"))
ERRORS = {"UserError", "LostError", "BicError"}


def test_error_is_one_sentence() -> None:
    error = UserError("memory is 3", "raise {memory}")
    assert (error.problem, error.remedy) == ("memory is 3", "raise {memory}")
    assert str(error) == "memory is 3; raise memory"
    assert error.phrased(as_flag) == "memory is 3; raise --memory"
    assert isinstance(error, BicError)
    assert issubclass(LostError, BicError)
    assert not issubclass(LostError, UserError)


def test_only_settings_in_braces_are_rewritten() -> None:
    error = UserError("{memory} in a problem stays", "use {recipe.image_size=32}, not {0} or {X}")
    expected = "{memory} in a problem stays; use --set recipe.image_size=32, not {0} or {X}"
    assert error.phrased(as_flag) == expected


@pytest.mark.filterwarnings("always")
def test_a_warning_is_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # replaced below
    shown: list[str] = []
    show_warnings(shown.append)
    for text in ("left out a.png", "left out b.png", "left out a.png"):
        warn(text)
    warnings.warn("left out b.png", stacklevel=1)
    assert shown == ["left out a.png", "left out b.png"]


def test_both_parts_are_required() -> None:
    with pytest.raises(TypeError):
        UserError("only a problem")  # type: ignore[call-arg]


def test_error_survives_a_process_boundary() -> None:
    error = pickle.loads(pickle.dumps(UserError("a", "b {memory}")))
    assert isinstance(error, UserError)
    assert str(error) == "a; b memory"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("fats", "unknown recipe 'fats'; did you mean 'fast'? Known: fast, a.slow"),
        ("x.slo", "unknown recipe 'x.slo'; did you mean 'a.slow'? Known: fast, a.slow"),
        ("zebra", "unknown recipe 'zebra'; known: fast, a.slow"),
    ],
)
def test_unknown_name_suggests_the_closest(name: str, sentence: str) -> None:
    assert str(unknown("recipe", name, ["fast", "a.slow"])) == sentence


def test_thousands_of_names_are_not_listed() -> None:
    names = [f"{number:04}" for number in range(2000)]
    sentence = str(unknown("class", "zebra", names))
    assert sentence.startswith("unknown class 'zebra'; known: 0000, 0001, ")
    assert sentence.endswith(", 0099 and 1,900 more")


class Raised(NamedTuple):
    """A call in the sources that builds one of our errors."""

    place: str
    arguments: list[ast.expr]
    texts: list[str]  # all pieces of text in the arguments, those of variables included


def raised_errors() -> Iterator[Raised]:
    for path in SOURCES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        values = assigned_values(tree)
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        for call in calls:
            if isinstance(call.func, ast.Name) and call.func.id in ERRORS:
                texts = [text for argument in call.args for text in texts_in(argument, values)]
                yield Raised(f"{path.name}:{call.lineno}", call.args, texts)


def assigned_values(tree: ast.Module) -> dict[str, list[ast.expr]]:
    """All values that each variable of a module and of its functions gets."""
    values: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    values.setdefault(target.id, []).append(node.value)
    return values


def texts_in(expression: ast.expr, values: dict[str, list[ast.expr]]) -> list[str]:
    """All pieces of text in an expression and in the variables that it names."""
    texts = []
    for part in ast.walk(expression):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            texts.append(part.value)
        elif isinstance(part, ast.Name):
            for value in values.get(part.id, []):
                for inner in ast.walk(value):
                    if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                        texts.append(inner.value)
    return texts


def test_texts_of_variables_are_found() -> None:
    tree = ast.parse('remedy = f"use --{name}"\nUserError("a", remedy)')
    call = tree.body[1].value  # type: ignore[attr-defined]
    values = assigned_values(tree)
    found = [text for argument in call.args for text in texts_in(argument, values)]
    assert found == ["a", "use --"]


def test_errors_name_no_flags() -> None:
    """The library does not know how the command line writes a setting."""
    places = [raised.place for raised in raised_errors() if "--" in " ".join(raised.texts)]
    assert places == []


def test_errors_have_a_problem_and_a_remedy_without_full_stop() -> None:
    num_errors = 0
    for raised in raised_errors():
        num_errors += 1
        assert len(raised.arguments) == 2, raised.place
        for argument in raised.arguments:
            texts = texts_in(argument, {})
            assert not (texts and texts[-1].endswith(".")), raised.place
    assert num_errors > 100


def test_warnings_name_no_flags() -> None:
    num_warnings = 0
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "warn":
                num_warnings += 1
                texts = [text for argument in node.args for text in texts_in(argument, {})]
                assert "--" not in " ".join(texts), path.name
    assert num_warnings > 3


def test_settings_in_remedies_exist() -> None:
    """Every setting in braces is one of a run, of learning, or of a command."""
    known = {*bic.RunConfig.model_fields, *bic.Learning.model_fields}
    known |= {"out", "data", "config", "threads", "workers", "device", "seeds", "top", "trust"}
    known |= {
        "report",
        "force",
        "json",
        "csv",
        "help",
        "reject",
        "image_size",
        "keep",
        "max_drop",
        "again",
        "images",
        "int8",
        "host",
        "new_token",
        "port",
        "state",
        "safetensors",
    }
    names = set()
    for raised in raised_errors():
        for text in raised.texts:
            for match in SETTING.finditer(text):
                names.add(match[1])
                assert match[1].partition(".")[0] in known, f"{raised.place}: {match[0]}"
    assert {"memory", "out", "recipe.learning_rate"} <= names
