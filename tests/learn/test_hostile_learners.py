"""Model folders that a stranger made: they work, or they are refused in one sentence."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.fuzzing import contents, odd_bytes, odd_json
from support.learners import toy_learner
from support.memory_limit import memory_limit
from support.model_folders import renew_checksums
from support.odd_files import NOT_FILES, put
from support.toy import toy_dataset

from bic import Learner, Model, UserError

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")

IMAGES = np.random.default_rng(0).integers(0, 256, (2, 8, 8), dtype=np.uint8)
NAMES = ("learning.json", "memory.parquet", "model.json", "weights.safetensors")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a learner of four classes."""
    learner = toy_learner("bic", {"epochs": 1, "backbone": "mlp"})
    dataset = toy_dataset(0.8)
    for classes in ([0, 1], [2, 3]):
        names = [dataset.classes[number] for number in classes]
        learner.learn(dataset.train.of_classes(classes), classes=names)
    folder = tmp_path_factory.mktemp("made") / "model"
    learner.save(folder)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy, to be damaged."""
    shutil.copytree(made, tmp_path / "model")
    return tmp_path / "model"


def check(folder: Path, title: str) -> bool:
    """Whether the folder is refused. A folder that is not must work."""
    renew_checksums(folder)
    refused = False
    is_about_model = any(name in title for name in ("model.json", "weights"))
    for load in (Model.load, Learner.load) if is_about_model else (Learner.load,):
        try:
            loaded = load(folder)
            model = loaded.model if isinstance(loaded, Learner) else loaded
            probabilities = model.predict_proba(IMAGES)
        except UserError as error:
            sentence = str(error)
            assert sentence.isprintable(), title
            assert len(sentence) < 700, title
            refused = True
        except Exception as error:
            raise AssertionError(title) from error
        else:
            assert np.isfinite(probabilities).all(), title
            assert all(name.strip() and name.isprintable() for name in model.classes), title
    return refused


def damages(name: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    if name.endswith(".json"):
        yield from odd_json(json.loads(content), seed=1, count=40)
    yield from odd_bytes(content, seed=2, count=30)


@pytest.mark.parametrize("name", NAMES)
def test_damaged_file_is_refused_or_harmless(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    assert not check(folder, "the folder as it was")
    refused = []
    with memory_limit(2**29):
        for title, damaged in damages(name, content):
            (folder / name).write_bytes(damaged)
            refused.append(check(folder, f"{name}: {title}"))
    assert np.mean(refused) > 0.3


@pytest.mark.parametrize("name", NAMES)
def test_missing_and_swapped_files_are_refused(folder: Path, name: str) -> None:
    files = contents(folder)
    (folder / name).unlink()
    assert check(folder, f"without {name}")
    for other in NAMES:
        if other != name:
            (folder / name).write_bytes(files[other])
            assert check(folder, f"{other} in place of {name}")


@pytest.mark.parametrize("kind", NOT_FILES)
@pytest.mark.parametrize("name", NAMES)
def test_file_that_is_none_is_refused(folder: Path, kind: str, name: str) -> None:
    put(kind, folder / name)
    with memory_limit(2**28):
        for load in (Model.load, Learner.load):
            if load == Model.load and name in ("learning.json", "memory.parquet"):
                continue
            with pytest.raises(UserError):
                load(folder)


def test_memory_of_other_classes_is_refused(folder: Path, made: Path) -> None:
    learner = Learner.load(made)
    learner.memory.classes[7] = learner.memory.classes.pop(0)
    shutil.rmtree(folder)
    learner.save(folder)
    with pytest.raises(
        UserError, match=r"images of classes that the model does not have\); restore"
    ):
        Learner.load(folder)
