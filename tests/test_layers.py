"""Imports point one way, and what has to start quickly imports no torch."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bic

ROOT = Path(__file__).parents[1]

# Modules that writing files, reading settings and results, reports and help import.
TORCH_FREE = (
    *("bic", "bic.errors", "bic.files", "bic.progress", "bic.randomness", "bic.settings"),
    *("bic.learn.learning", "bic.learn.methods", "bic.learn.recipes", "bic.learn.moved"),
    *("bic.lab.plan", "bic.lab.protocol", "bic.lab.experiments", "bic.lab.published"),
    *("bic.store.results", "bic.store.overview", "bic.store.check", "bic.store.upkeep"),
    *("bic.report.page", "bic.report.tables", "bic.report.model_tables", "bic.cli"),
)

IMPORT_ALL = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
    assert "torch" not in sys.modules, f"{name} imports torch"
"""

IMPORT_MODEL = """
import importlib, pkgutil, sys
import bic.model
for module in pkgutil.iter_modules(bic.model.__path__, "bic.model."):
    importlib.import_module(module.name)
upper = ("bic.learn", "bic.store", "bic.lab", "bic.report", "bic.cli")
above = sorted(name for name in sys.modules if name.startswith(upper))
assert not above, above
"""

# Parts of torch that take a second to import, and that no model needs to be loaded.
LOAD_SHAPES = """
import sys, torch
from bic.model.backbones import BACKBONES
from bic.model.network import Network
with torch.device("meta"):
    for name in BACKBONES:
        Network(name, channels=3, image_size=32, num_features=10)
assert "torch._dynamo" not in sys.modules
"""

PREDICT = """
import sys
import bic
images = __import__("numpy").zeros((1, 8, 8), "uint8")
print(bic.open_model(sys.argv[1]).predict(images)[0])
above = sorted(name for name in sys.modules if name.startswith(("bic.learn", "bic.lab")))
assert not above, above
"""


def python(code: str, *arguments: str) -> None:
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_contracts_hold() -> None:
    command = shutil.which("lint-imports", path=Path(sys.executable).parent)
    if command is None:
        pytest.skip("import-linter is not installed")
    done = subprocess.run(
        [command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_quick_modules_import_no_torch() -> None:
    python(IMPORT_ALL, *TORCH_FREE)


def test_models_import_nothing_above_them() -> None:
    python(IMPORT_MODEL)


def test_checking_the_shapes_of_a_model_imports_little() -> None:
    python(LOAD_SHAPES)


@pytest.mark.parametrize("name", bic.__all__)
def test_public_name_can_be_used(name: str) -> None:
    assert getattr(bic, name) is not None
    assert name in dir(bic)


def test_other_names_do_not_exist() -> None:
    with pytest.raises(AttributeError, match="module 'bic' has no attribute 'load_model'"):
        bic.load_model  # noqa: B018


@pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")
def test_predicting_with_a_model_folder_imports_nothing_that_learns(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (20, 8, 8), dtype=np.uint8)
    model = bic.open_model(tmp_path / "m", recipe="demo", memory=20)
    model.learn(images, ["a", "b"] * 10)
    python(PREDICT, str(tmp_path / "m"))
