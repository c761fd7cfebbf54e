"""The command line in the test's own process."""

import sys
import warnings
from pathlib import Path

import pytest
from support.command_line import Command, Outcome

from bic.cli import main


@pytest.fixture
def bic(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Command:
    """Runs a command in an empty folder and returns its outcome."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # main() replaces it

    def call(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["bic", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call
