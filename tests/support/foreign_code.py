"""A backbone in a module that leaves a trace when it is imported."""

import sys
from pathlib import Path

import pytest

CODE = """
from pathlib import Path
from torch import nn

Path({trace!r}).touch()

def build(channels, image_size):
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * image_size**2, {num_features}))
"""


class ForeignCode:
    """A module in the working folder. `backbone` names a function in it that builds a backbone."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, num_features: int = 256
    ) -> None:
        self.module = f"foreign_{folder.name}"
        self.backbone = f"{self.module}:build"
        self._trace = folder / "imported"
        code = CODE.format(trace=str(self._trace), num_features=num_features)
        (folder / f"{self.module}.py").write_text(code)
        monkeypatch.chdir(folder)

    @property
    def was_imported(self) -> bool:
        return self._trace.exists()

    def forget(self) -> None:
        """Make the process as it was before the module was imported."""
        sys.modules.pop(self.module, None)
        self._trace.unlink(missing_ok=True)
