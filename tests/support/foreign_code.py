"""A backbone in a module that leaves a trace when it is imported."""

import sys
from pathlib import Path

import pytest

CODE = """
from pathlib import Path
from torch import nn

Path({trace!r}).touch()

def build(channels, image_size):
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * image_size**2, 256))
"""


class ForeignCode:
    """A module in the working folder. `backbone` names its function, which gives 256 features."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.module = f"foreign_{folder.name}"
        self.backbone = f"{self.module}:build"
        self._trace = folder / "imported"
        (folder / f"{self.module}.py").write_text(CODE.format(trace=str(self._trace)))
        monkeypatch.chdir(folder)

    @property
    def was_imported(self) -> bool:
        return self._trace.exists()

    def forget(self) -> None:
        """Make the process as it was before the module was imported."""
        sys.modules.pop(self.module, None)
        self._trace.unlink(missing_ok=True)
