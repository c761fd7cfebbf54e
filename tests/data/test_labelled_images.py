"""Labelled images to test a model on, from every kind of source."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.pictures import plain_png

from bic import Preprocessing, UserError
from bic.data.labelled_images import open_labelled_images

GREY = Preprocessing(channels=1, size=4)


def opened(path: Path, **options: str) -> list[tuple[str, int]]:
    """The class and the grey value of each image."""
    images, classes = open_labelled_images(path, GREY, **options)
    values = images.take(images.everything)[:, 0, 0, 0].tolist()
    return [(classes[label], value) for label, value in zip(images.labels, values, strict=True)]


def write(path: Path, value: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(plain_png(value))


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    write(tmp_path / "pets/dog/1.png", 10)
    write(tmp_path / "pets/cat/2.png", 20)
    write(tmp_path / "pets/cat/1.png", 30)
    write(tmp_path / "pets/.cache/1.png", 40)
    (tmp_path / "pets/empty").mkdir()
    (tmp_path / "pets/notes.txt").touch()
    return tmp_path / "pets"


def test_a_folder_per_class(pets: Path) -> None:
    assert opened(pets) == [("cat", 30), ("cat", 20), ("dog", 10)]


@pytest.mark.parametrize("name", ["test", "val"])
def test_the_test_images_of_a_data_set(pets: Path, tmp_path: Path, name: str) -> None:
    write(tmp_path / "all/train/cat/1.png", 50)
    pets.rename(tmp_path / "all" / name)
    assert opened(tmp_path / "all") == [("cat", 30), ("cat", 20), ("dog", 10)]


def test_parquet(tmp_path: Path) -> None:
    for name, value in (("train-0", 1), ("test-0", 2), ("test-1", 3)):
        rows = {"image": [plain_png(value)], "kind": [f"class {value}"], "by": ["anna"]}
        pq.write_table(pa.table(rows), tmp_path / f"{name}.parquet")
    assert opened(tmp_path, label="kind") == [("class 2", 2), ("class 3", 3)]
    assert opened(tmp_path / "train-0.parquet", label="kind") == [("class 1", 1)]
    with pytest.raises(UserError, match="several columns that could be labels"):
        opened(tmp_path)


@pytest.mark.parametrize("ending", ["", "_test"])
def test_arrays(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "a.npz"
    x = np.array([5, 6], np.uint8)[:, None, None].repeat(8, 1).repeat(8, 2)
    arrays = {f"x{ending}": x, f"y{ending}": np.array([1, 0]), "x_train": x[:1]}
    np.savez(path, classes=["cat", "dog"], **arrays)
    assert opened(path) == [("dog", 5), ("cat", 6)]
    np.savez(path, **arrays)
    assert opened(path) == [("1", 5), ("0", 6)]


def test_what_cannot_be_used_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere does not exist; give a folder with one folder"):
        opened(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"has no folders with images; put some in .*/CLASS/"):
        opened(tmp_path)
    (tmp_path / "a.txt").write_text("cat")
    with pytest.raises(UserError, match="is not in a format that bic can read; give a folder"):
        opened(tmp_path / "a.txt")
    pixels = np.zeros((2, 8, 8), np.uint8)
    for arrays, problem in (
        ({"x": pixels}, "has no array y"),
        ({"x_test": pixels}, "has no array y_test"),
        ({"x": pixels, "y": np.zeros(3, int)}, "one integer or string per image"),
        ({"x": pixels, "y": np.zeros(2)}, "one integer or string per image"),
        ({"x": pixels, "y": np.array([0, 2]), "classes": ["cat"]}, "row 1 of .* has no label"),
        ({"x": pixels[:0], "y": np.zeros(0, int)}, "has no images"),
    ):
        np.savez(tmp_path / "b.npz", **arrays)
        with pytest.raises(UserError, match=problem):
            opened(tmp_path / "b.npz")
