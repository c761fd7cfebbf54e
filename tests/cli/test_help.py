"""Help: it names every choice, teaches by example, and starts without torch."""

import subprocess
import sys

import pytest
from support.command_line import Command

from bic import METHODS, RECIPES
from bic.model.backbones import BACKBONES
from bic.model.pretrained import LITE

COMMANDS = (
    *("", "learn", "predict", "evaluate", "classes", "history", "rollback", "diff", "retire"),
    *("rename", "check", "export", "run", "demo", "show", "report", "paper", "data get"),
)

# Prints what a command prints, and fails if torch was imported.
WITHOUT_TORCH = """
import sys
sys.argv = ["bic", *sys.argv[1:]]
from bic.cli import main
try:
    main()
except SystemExit as stop:
    assert not stop.code
assert "torch" not in sys.modules
"""


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(bic: Command, command: str) -> None:
    outcome = bic(*command.split(), "--help")
    assert outcome.code == 0
    assert f"bic {command}".strip() in outcome.out


def test_run_has_an_example_for_photos(bic: Command) -> None:
    example = "bic run photos/ --step-sizes 50,10,10 --memory 64MB"
    assert example in bic("run", "--help").out


def test_every_command_is_listed(bic: Command) -> None:
    outcome = bic("--help")
    for command in COMMANDS:
        assert command.partition(" ")[0] in outcome.out
    assert "Start with" in outcome.out


def words(text: str) -> str:
    """The text of a help page without its frame and line breaks."""
    return " ".join(text.replace("│", " ").split())


def test_every_method_recipe_and_backbone_is_listed(bic: Command) -> None:
    text = words(bic("run", "--help").out)
    methods = list(METHODS)
    recipes = list(RECIPES)
    assert f"{', '.join(methods[:-1])} or {methods[-1]}." in text
    assert f"{', '.join(recipes[:-1])} or {recipes[-1]}." in text
    backbones = [*BACKBONES, *LITE, "hf:NAME_OR_FOLDER"]
    assert f"{', '.join(backbones)} or module:function" in text


@pytest.mark.parametrize("command", [["--help"], ["run", "--help"], ["--version"]])
def test_help_starts_without_torch(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
