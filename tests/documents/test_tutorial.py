"""The tutorial runs from its first command to its last, and its page shows what they print."""

import importlib.util
import shlex
import sys
import types
import warnings
from pathlib import Path

import pytest
from documents.markdown import ROOT, TUTORIAL, blocks

from bic.cli import main

SCRIPT = ROOT / "benchmarks" / "tutorial.py"
IMAGES = 12  # of each class

# Rows of tables, and what depends on the images: a warning, the time, and a drop or a gain.
NOT_COMPARED = (
    *(" ", "warning: ", "bias); use more memory"),
    *("expected: ", "change on old classes: ", "the gate judges, "),
)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("tutorial", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "tutorial", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("default")  # few images: the commands warn
def test_the_tutorial_runs_and_prints_what_its_page_shows(
    script: types.ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("BIC_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # main() replaces it
    printed: list[str] = []

    def in_process(command: str, folder: Path) -> tuple[str, float]:
        """As in a shell, but without starting Python each time. A failure raises SystemExit."""
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        main()
        captured = capsys.readouterr()
        printed.append(captured.err + captured.out)
        return printed[-1], 1.0

    page = TUTORIAL.read_text()
    written = script.tutorial(page, tmp_path, cifar=None, num_images=IMAGES, run=in_process)

    consoles = [block for block in blocks(TUTORIAL) if block.language == "console"]
    shown = [command for block in consoles for command in block.commands()]
    assert len(shown) == len(printed)
    for command, output in zip(shown, printed, strict=True):
        command.output = [line for line in command.output if not line.startswith(NOT_COMPARED)]
        command.check(output)
    assert script.BLOCK.sub("", script.TABLE.sub("", written)) == script.BLOCK.sub(
        "", script.TABLE.sub("", page)
    )

    rows = [line.strip("| ").split(" | ") for line in written.splitlines() if "/ |" in line]
    learned = [tuple(row[:2]) for row in rows]
    assert learned == [("january/", "5"), ("february/", "10"), ("march/", "20"), ("april/", "20")]
    for _, _, of_model, of_run in rows[:3]:
        assert of_model == of_run
