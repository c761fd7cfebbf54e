"""`bic data get`: it prints where the data is."""

from pathlib import Path

import pytest
from support.command_line import Command

from bic import Progress
from bic.data import download


@pytest.mark.parametrize(("flags", "folder"), [([], "home"), (["--out", "elsewhere"], "elsewhere")])
def test_path_of_the_data_is_printed(
    bic: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], folder: str
) -> None:
    def fake(name: str, home: Path, progress: Progress) -> Path:
        return home / f"{name}.tar.gz"

    monkeypatch.setattr(download, "get", fake)
    monkeypatch.setenv("BIC_DATA", "home")
    outcome = bic("data", "get", "cifar100", *flags, "--quiet")
    assert outcome == (0, f"{folder}/cifar100.tar.gz\n", "")
