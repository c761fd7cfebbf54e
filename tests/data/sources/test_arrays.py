"""Arrays in .npz files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bic.data.open import open_dataset
from bic.data.sources.arrays import read_labelled_npz
from bic.errors import UserError

IMAGES = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)


def save(path: Path, **changes: Any) -> str:
    """Write two images of two classes. A change replaces an array, or removes it if it is None."""
    arrays = {"x_train": IMAGES, "y_train": [0, 1], "x_test": IMAGES[::-1], "y_test": [1, 0]}
    arrays |= changes
    given = {key: array for key, array in arrays.items() if array is not None}
    np.savez(path / "toy.npz", **given)
    return str(path / "toy.npz")


def test_grey_images(tmp_path: Path) -> None:
    data = open_dataset(save(tmp_path))
    assert (data.name, data.classes, data.image_size) == ("toy", ("0", "1"), 3)
    assert data.train.take(np.array([1])).tolist() == [[IMAGES[1].tolist()]]
    assert data.test.labels.tolist() == [1, 0]
    assert data.test.take(np.array([0])).tolist() == [[IMAGES[1].tolist()]]


def test_one_channel_is_grey_and_three_are_rgb(tmp_path: Path) -> None:
    grey = IMAGES[..., None]
    data = open_dataset(save(tmp_path, x_train=grey, x_test=grey))
    assert data.train.take(np.array([1])).tolist() == [[IMAGES[1].tolist()]]
    rgb = np.stack([IMAGES, IMAGES + 50, IMAGES + 100], axis=-1)
    data = open_dataset(save(tmp_path, x_train=rgb, x_test=rgb))
    assert data.train.preprocessing.channels == 3
    assert data.train.take(np.array([1]))[0, :, 0, 0].tolist() == [9, 59, 109]


def test_vectors_stay_floats(tmp_path: Path) -> None:
    vectors = np.array([[0.5, -1.0], [2.0, 3.25]])
    data = open_dataset(save(tmp_path, x_train=vectors, x_test=vectors))
    taken = data.train.take(np.array([0, 1]))
    assert taken.dtype == torch.float32
    assert taken.tolist() == vectors.tolist()


@pytest.mark.parametrize(
    ("given", "pixels"),
    [
        (np.array([0.0, 0.5, 1.0]), [0, 128, 255]),
        (np.array([0.0, 127.4, 255.0], dtype=np.float32), [0, 127, 255]),
        (np.array([0.0, 0.4, 1.6]), [0, 0, 2]),
        (np.array([0, 1, 255], dtype=np.int64), [0, 1, 255]),
        (np.array([0, 1, 1], dtype=np.int32), [0, 1, 1]),
        (np.array([False, True, True]), [0, 255, 255]),
    ],
)
def test_pixels_of_other_types(tmp_path: Path, given: np.ndarray, pixels: list[int]) -> None:
    images = np.stack([given[None], given[None]])
    data = open_dataset(save(tmp_path, x_train=images, x_test=images))
    assert data.train.take(np.array([1])).tolist() == [[[pixels]]]


def test_the_range_of_floats_is_that_of_train_and_test_together(tmp_path: Path) -> None:
    bright = np.full((2, 1, 1), 200.0)
    dark = np.ones((2, 1, 1))
    data = open_dataset(save(tmp_path, x_train=bright, x_test=dark))
    assert data.test.take(np.array([0])).item() == 1


def test_string_labels_and_class_names(tmp_path: Path) -> None:
    strings = {"y_train": ["cat", "ant"], "y_test": ["ant", "cat"]}
    data = open_dataset(save(tmp_path, **strings))
    assert data.classes == ("ant", "cat")
    assert data.train.labels.tolist() == [1, 0]
    named = save(tmp_path, **strings, classes=["cat", "ant"])
    assert open_dataset(named).train.labels.tolist() == [0, 1]
    assert open_dataset(save(tmp_path, classes=["x", "y"])).classes == ("x", "y")


def test_class_names_that_are_no_text_are_refused(tmp_path: Path) -> None:
    names = np.array([b"caf\xe9", b"hat"])
    path = save(tmp_path, classes=names)
    with pytest.raises(UserError, match="fix the arrays"):
        open_dataset(path)
    np.savez(path, x=IMAGES, y=[0, 1], classes=names)
    with pytest.raises(UserError, match="fix the arrays"):
        read_labelled_npz(Path(path), "train")


def test_numbers_may_have_gaps_and_are_class_names(tmp_path: Path) -> None:
    data = open_dataset(save(tmp_path, y_train=[10, 9], y_test=[9, 10]))
    assert (data.classes, data.train.labels.tolist()) == (("9", "10"), [1, 0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_test": None, "y_test": None}, "has no array x_test, y_test; add what is missing"),
        ({"y_train": [0, 1, 1]}, r"one label per image, got .* y_train int64 \[3\]"),
        ({"y_train": np.array([0, None])}, "can't read .*y_train.npy holds object, not numbers"),
        ({"x_train": np.array(["a", None])}, "can't read .*x_train.npy holds object"),
        ({"y_train": [0.0, 1.0]}, r"integers or strings, got .* y_train float64.*; fix the arrays"),
        ({"y_train": ["0", "1"]}, "must be integers or strings, got .* y_train <U1"),
        ({"y_train": [[0], [1]]}, r"one label per image, got .* y_train int64 \[2, 1\]"),
        ({"y_train": [-1, 0], "y_test": [0, -1]}, r"wrong train labels \(label -1 is not in 0..0"),
        ({"classes": ["a", "b", "c"]}, "class 'c' of toy has no train images"),
        ({"classes": ["a"]}, r"label 1 is not in 0\.\.0"),
        ({"classes": ["a", "a"]}, "class 'a' is named twice"),
        ({"classes": ["ä".encode(), b"b"]}, "'ascii' codec can't decode.*; fix the arrays"),
        (
            {"classes": ["a", "b"], "y_train": ["a", "b"], "y_test": ["a", "z"]},
            "label 'z' is not a class name; add it to the class names",
        ),
        ({"x_train": IMAGES[:0], "y_train": np.zeros(0, int)}, "class '0' .* has no train images"),
        ({"x_train": IMAGES[:, :2]}, r"one size and type, got x_train uint8 \[2, 2, 3\].* x_test"),
        ({"x_train": IMAGES / 18}, r"one size and type, got x_train float64 .* x_test uint8"),
        ({"x_train": np.zeros((2, 3, 3, 4))}, r"must be numbers \[n, h, w\].* \[2, 3, 3, 4\]"),
        ({"x_train": np.zeros(())}, r"must be numbers \[n, h, w\].*got x_train float64 \[\]"),
        ({"x_train": np.zeros(2)}, r"must be numbers \[n, h, w\].*got x_train float64 \[2\]"),
    ],
)
def test_bad_arrays_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = save(tmp_path, **changes)
    with pytest.raises(UserError, match=message):
        open_dataset(path)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.full((2, 1, 1), -0.5), r"pixels must lie in 0\.\.255.*got -0.5\.\.0"),
        (np.full((2, 1, 1), 256), r"got 0\.\.256"),
        (np.full((2, 1, 1), np.nan), r"got nan\.\.nan"),
        (np.full((2, 4), np.nan), "vectors must be finite"),
        (np.full((2, 4), 1e300), "vectors must be finite"),
        (np.full((2, 4), 1j), "must be numbers .* got x_train complex128"),
    ],
)
def test_bad_values_are_refused(tmp_path: Path, images: np.ndarray, message: str) -> None:
    path = save(tmp_path, x_train=images, x_test=images)
    with pytest.raises(UserError, match=message):
        open_dataset(path)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = Path(save(tmp_path, x_train=np.zeros((2, 3, 3), dtype=np.uint8)))
    np.savez_compressed(path, **np.load(path))
    content = path.read_bytes()
    start = content.index(b"x_train.npy") + 40  # inside the first deflated block
    flipped = content[:start] + b"\xff" * 8 + content[start + 8 :]
    for damaged in (content[:300], flipped):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"can't read .*toy.npz"):
            open_dataset(str(path))


def test_resizing_is_antialiased(tmp_path: Path) -> None:
    left_dark = np.zeros((2, 4, 4), dtype=np.uint8)
    left_dark[:, :, 2:] = 200
    path = save(tmp_path, x_train=left_dark, x_test=left_dark)
    data = open_dataset(path, image_size=2)
    assert data.image_size == 2
    # Antialiased halving spans four pixels with weights 1 3 3 1. At the border 3 3 1 are left.
    dark = round(200 / 7)
    bright = round(200 * 6 / 7)
    halved = data.train.take(np.array([0]))
    assert halved.dtype == torch.uint8
    expected = torch.tensor([[dark, bright], [dark, bright]])
    assert (halved[0, 0].int() - expected).abs().max() <= 1
    same_size = open_dataset(path, image_size=4).train
    assert same_size.take(np.array([0]))[0, 0].tolist() == left_dark[0].tolist()


def test_resizing_keeps_the_middle_of_what_is_not_square(tmp_path: Path) -> None:
    wide = np.repeat(np.array([[[10, 20, 30, 40]]], dtype=np.uint8), 2, axis=1)
    wide = np.concatenate([wide, wide])
    data = open_dataset(save(tmp_path, x_train=wide, x_test=wide), image_size=2)
    assert data.test.take(np.array([0])).tolist() == [[[[20, 30], [20, 30]]]]


def test_vectors_have_no_size(tmp_path: Path) -> None:
    vectors = np.zeros((2, 4))
    path = save(tmp_path, x_train=vectors, x_test=vectors)
    with pytest.raises(UserError, match="vectors have no image size") as raised:
        open_dataset(path, image_size=8)
    assert raised.value.remedy == "leave out {recipe.image_size}"
