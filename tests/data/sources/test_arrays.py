"""Arrays in .npz files, the digits, and how a data set is found by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from bic.data.open import open_dataset
from bic.errors import UserError

IMAGES = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)


def save(path: Path, **changes: Any) -> str:
    arrays = {"x_train": IMAGES, "y_train": [0, 1], "x_test": IMAGES[::-1], "y_test": [1, 0]}
    arrays |= changes
    np.savez(path / "toy.npz", **{key: each for key, each in arrays.items() if each is not None})
    return str(path / "toy.npz")


def test_grey_images(tmp_path: Path) -> None:
    data = open_dataset(save(tmp_path))
    assert (data.name, data.classes, data.image_size) == ("toy", ("0", "1"), 3)
    assert data.train.take(np.array([1])).tolist() == [[IMAGES[1].tolist()]]
    assert data.test.labels.tolist() == [1, 0]
    assert data.test.take(np.array([0])).tolist() == [[IMAGES[1].tolist()]]


def test_one_channel_axis_is_grey_and_three_are_rgb(tmp_path: Path) -> None:
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
    ("given", "wanted"),
    [
        (np.array([0.0, 0.5, 1.0]), [0, 128, 255]),
        (np.array([0.0, 127.4, 255.0], dtype=np.float32), [0, 127, 255]),
        (np.array([0.0, 0.4, 1.6]), [0, 0, 2]),
        (np.array([0, 1, 255], dtype=np.int64), [0, 1, 255]),
        (np.array([0, 1, 1], dtype=np.int32), [0, 1, 1]),
        (np.array([False, True, True]), [0, 255, 255]),
    ],
)
def test_pixels_of_other_types(tmp_path: Path, given: np.ndarray, wanted: list[int]) -> None:
    images = np.stack([given[None], given[None]])
    data = open_dataset(save(tmp_path, x_train=images, x_test=images))
    assert data.train.take(np.array([1])).tolist() == [[[wanted]]]


def test_what_floats_mean_is_decided_for_train_and_test_together(tmp_path: Path) -> None:
    bright, dark = np.full((2, 1, 1), 200.0), np.ones((2, 1, 1))
    data = open_dataset(save(tmp_path, x_train=bright, x_test=dark))
    assert data.test.take(np.array([0])).item() == 1


def test_string_labels_and_class_names(tmp_path: Path) -> None:
    data = open_dataset(save(tmp_path, y_train=["cat", "ant"], y_test=["ant", "cat"]))
    assert data.classes == ("ant", "cat")
    assert data.train.labels.tolist() == [1, 0]
    named = save(tmp_path, y_train=["cat", "ant"], y_test=["ant", "cat"], classes=["cat", "ant"])
    assert open_dataset(named).train.labels.tolist() == [0, 1]
    assert open_dataset(save(tmp_path, classes=["x", "y"])).classes == ("x", "y")


def test_numbers_may_have_gaps_and_are_their_own_names(tmp_path: Path) -> None:
    data = open_dataset(save(tmp_path, y_train=[10, 9], y_test=[9, 10]))
    assert (data.classes, data.train.labels.tolist()) == (("9", "10"), [1, 0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_test": None, "y_test": None}, "has no array x_test, y_test; add what is missing"),
        ({"y_train": [0, 1, 1]}, r"one label an image, got .* y_train int64 \[3\]"),
        ({"y_train": np.array([0, None])}, "can't read .*Object arrays"),
        ({"x_train": np.array(["a", None])}, "can't read .*Object arrays"),
        (
            {"y_train": [0.0, 1.0]},
            "labels must be integers or strings, got .* y_train float64.*; mend the arrays",
        ),
        ({"y_train": ["0", "1"]}, "must be integers or strings, got .* y_train <U1"),
        ({"y_train": [[0], [1]]}, r"one label an image, got .* y_train int64 \[2, 1\]"),
        (
            {"y_train": [-1, 0], "y_test": [0, -1]},
            r"wrong train labels \(label -1 is not in 0\.\.0",
        ),
        ({"classes": ["a", "b", "c"]}, "class 'c' of toy has no train images"),
        ({"classes": ["a"]}, r"label 1 is not in 0\.\.0"),
        ({"classes": ["a", "a"]}, "class 'a' of .* is named twice"),
        (
            {"classes": ["a", "b"], "y_train": ["a", "b"], "y_test": ["a", "z"]},
            "label 'z' is not in its classes",
        ),
        (
            {"x_train": IMAGES[:0], "y_train": np.zeros(0, int)},
            "class '0' of toy has no train images",
        ),
        (
            {"x_train": IMAGES[:, :2]},
            r"one size and type, got x_train uint8 \[2, 2, 3\].* x_test uint8 \[2, 3, 3\]",
        ),
        ({"x_train": IMAGES / 18}, r"one size and type, got x_train float64 .* x_test uint8"),
        (
            {"x_train": np.zeros((2, 3, 3, 4))},
            r"must be numbers \[n, h, w\].*got x_train float64 \[2, 3, 3, 4\]",
        ),
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
    whole = path.read_bytes()
    start = whole.index(b"x_train.npy") + 40  # inside the first deflated block
    for damaged in (whole[:300], whole[:start] + b"\xff" * 8 + whole[start + 8 :]):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"can't read .*toy.npz"):
            open_dataset(str(path))


def test_resizing_is_done_once_and_for_good(tmp_path: Path) -> None:
    left_dark = np.zeros((2, 4, 4), dtype=np.uint8)
    left_dark[:, :, 2:] = 200
    path = save(tmp_path, x_train=left_dark, x_test=left_dark)
    data = open_dataset(path, image_size=2)
    assert data.image_size == 2
    # Antialiased halving spans four pixels with weights 1 3 3 1; at the border 3 3 1 are left.
    dark, bright = round(200 / 7), round(200 * 6 / 7)
    found = data.train.take(np.array([0]))
    assert found.dtype == torch.uint8
    wanted = torch.tensor([[dark, bright], [dark, bright]])
    assert (found[0, 0].int() - wanted).abs().max() <= 1
    same = open_dataset(path, image_size=4).train.pixels
    assert same is not None
    assert same[0, 0].tolist() == left_dark[0].tolist()


def test_resizing_keeps_the_middle_of_what_is_not_square(tmp_path: Path) -> None:
    wide = np.repeat(np.array([[[10, 20, 30, 40]]], dtype=np.uint8), 2, axis=1)
    wide = np.concatenate([wide, wide])
    data = open_dataset(save(tmp_path, x_train=wide, x_test=wide), image_size=2)
    assert data.test.take(np.array([0])).tolist() == [[[[20, 30], [20, 30]]]]


def test_vectors_have_no_size(tmp_path: Path) -> None:
    vectors = np.zeros((2, 4))
    with pytest.raises(UserError, match="vectors have no image size"):
        open_dataset(save(tmp_path, x_train=vectors, x_test=vectors), image_size=8)


def test_digits() -> None:
    data = open_dataset("digits")
    assert (data.name, data.classes, data.image_size) == ("digits", tuple("0123456789"), 8)
    assert len(data.train) + len(data.test) == 1797
    # The file's first row (a 0) is 0 0 5 13 9 1 0 0, in sixteenths.
    assert data.train.take(np.array([0]))[0, 0, 0].tolist() == [0, 0, 80, 207, 143, 16, 0, 0]
    for digit in range(10):
        num_train, num_test = (int((s.labels == digit).sum()) for s in (data.train, data.test))
        assert num_test == (num_train + num_test) // 5
    seen = [0] * 10
    test = []
    for number, digit in enumerate(load_digits().target):
        seen[digit] += 1
        if seen[digit] % 5 == 0:
            test.append(number)
    assert data.test.labels.tolist() == load_digits().target[test].tolist()
    last = np.rint(load_digits().images[test[-1]] * 255 / 16)
    assert data.test.take(np.array([-1]))[0, 0].tolist() == last.tolist()


def test_digits_can_be_resized() -> None:
    assert open_dataset("digits", image_size=16).train.take(np.arange(2)).shape == (2, 1, 16, 16)


def test_unknown_names_and_missing_paths(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown data set 'cifar10'; did you mean 'cifar100'"):
        open_dataset("cifar10")
    with pytest.raises(UserError, match=r"nowhere/birds.npz does not exist"):
        open_dataset("nowhere/birds.npz")
    with pytest.raises(UserError, match="missing does not exist"):
        open_dataset("birds", tmp_path / "missing")


def test_what_can_not_be_recognised_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.npz").write_text("hello")
    for path in (tmp_path, tmp_path / "notes.npz"):
        with pytest.raises(UserError, match=r"is no data that we can read; pass an .npz file"):
            open_dataset(str(path))


def test_the_format_is_seen_and_the_name_is_free(tmp_path: Path) -> None:
    renamed = Path(save(tmp_path)).rename(tmp_path / "images.bin")
    assert open_dataset("cifar100", renamed).name == "cifar100"
    assert open_dataset("digits", renamed).image_size == 3


def test_options_that_do_not_apply_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no label columns; leave out --label fine"):
        open_dataset(save(tmp_path), label="fine")
    with pytest.raises(UserError, match="digits has no label columns"):
        open_dataset("digits", label="fine")
