"""Model folders that a stranger made: they work, or they are refused in one sentence."""

import io
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch
from support.frozen import frozen_learning, squares
from support.fuzzing import contents, odd_bytes, odd_json
from support.learners import toy_learner
from support.memory_limit import memory_limit
from support.model_folders import renew_checksums
from support.odd_files import NOT_FILES, put
from support.toy import toy_dataset

from bic import Learner, Learning, Model, UserError
from bic.learn.moments import Moments
from bic.learn.ridge import Regression

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")

IMAGES = np.random.default_rng(0).integers(0, 256, (2, 8, 8), dtype=np.uint8)
NEW = np.random.default_rng(1).integers(0, 256, (12, 8, 8), dtype=np.uint8)
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


def learn_on(learner: Learner) -> None:
    """Learn two more classes, in one epoch and uncompiled, whatever the settings say."""
    learning = learner.learning.with_recipe(epochs=1, first_epochs=None)
    learner.learning = learning.model_copy(update={"compile": False})
    learner.learn(NEW, ["new", "newer"] * 6)


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
            if isinstance(loaded, Learner):
                learn_on(loaded)
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


def changed(learner: Learner, folder: Path, file: str, change: Callable[[bytes], bytes]) -> Learner:
    """The learner, saved and loaded again, with a file that a stranger has changed between."""
    learner.save(folder)
    (folder / file).write_bytes(change((folder / file).read_bytes()))
    renew_checksums(folder)
    return Learner.load(folder)


def with_cells(column: str, cells: Callable[[list[Any]], list[Any]]) -> Callable[[bytes], bytes]:
    """A change of a column of a memory."""

    def change(content: bytes) -> bytes:
        table = pq.read_table(io.BytesIO(content))
        values = pa.array(cells(table[column].to_pylist()), pa.binary())
        out = io.BytesIO()
        pq.write_table(table.set_column(table.column_names.index(column), column, values), out)
        return out.getvalue()

    return change


def with_settings(**settings: Any) -> Callable[[bytes], bytes]:
    """A change of recorded settings, among them those of the recipe."""

    def change(content: bytes) -> bytes:
        recorded = json.loads(content)
        for name, value in settings.items():
            table = recorded["recipe"] if name in recorded["recipe"] else recorded
            table[name] = value
        return json.dumps(recorded).encode()

    return change


def frozen(method: str, **settings: Any) -> Learner:
    learner = Learner(frozen_learning(method=method, **settings))
    learner.learn(*squares("red green", 12))
    return learner


def test_features_of_another_length_are_computed_again(tmp_path: Path) -> None:
    odd = b"\x02" + np.zeros((2, 7), dtype=np.float16).tobytes()
    change = with_cells("features", lambda cells: [odd] * len(cells))
    learner = frozen("bic-means")
    loaded = changed(learner, tmp_path / "m", "memory.parquet", change)
    for continued in (learner, loaded):
        continued.learn(*squares("blue", 12))
    assert loaded.memory.to_table() == learner.memory.to_table()


def test_moments_that_images_cannot_have_are_refused(tmp_path: Path) -> None:
    def negative(content: bytes) -> bytes:
        tensors = safetensors.torch.load(content)
        return safetensors.torch.save({**tensors, "scatter": -tensors["scatter"]})

    learner = frozen("ridge", method_settings={"random_features": 20})
    with pytest.raises(UserError, match="a sum of squares is negative"):
        changed(learner, tmp_path / "m", "moments.safetensors", negative)


def test_moments_of_impossible_covariances_are_refused() -> None:
    double = torch.float64
    scatter = torch.tensor([[1.0, 900.0], [900.0, 1.0]], dtype=double)
    moments = Moments(torch.ones(2, dtype=double), torch.eye(2, dtype=double), scatter)
    with pytest.raises(UserError, match="the head cannot be solved, because its moments"):
        Regression(moments, [0, 1]).head(0.1)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"method": "ridge", "method_settings": {}}, "name another method than that of its model"),
        ({"frozen": False}, "disagree on whether the backbone is frozen"),
    ],
)
def test_settings_of_another_model_are_refused(
    tmp_path: Path, settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UserError, match=problem):
        changed(frozen("bic-means"), tmp_path / "m", "learning.json", with_settings(**settings))


@pytest.mark.parametrize("shape", [(5, 1), (5, 2, 2)])
def test_arrays_in_a_memory_of_vectors_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    out = io.BytesIO()
    np.save(out, np.zeros(shape, dtype=np.float32 if len(shape) == 2 else np.uint8))
    draws = np.random.default_rng(0)
    recipe = {"name": "vectors", "epochs": 1}
    learner = Learner(Learning(method="bic", recipe=recipe, memory=20, held_out=0.3))
    learner.learn(draws.normal(size=(24, 5)), ["a", "b"] * 12)
    change = with_cells("image", lambda cells: [out.getvalue(), *cells[1:]])
    loaded = changed(learner, tmp_path / "m", "memory.parquet", change)
    with pytest.raises(UserError, match="can't read an image in memory"):
        loaded.learn(draws.normal(size=(24, 5)), ["c", "d"] * 12)
