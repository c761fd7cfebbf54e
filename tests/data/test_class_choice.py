"""Which classes are used, from every source."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.pictures import jpeg, picture, write_folder

from bic.data.class_choice import Wanted
from bic.data.open import open_dataset
from bic.errors import UserError

WNIDS = ("n01440764", "n01443537", "n01484850")


@pytest.fixture
def imagenet(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "ilsvrc", WNIDS, train=2, test=2, size=30)


def test_names_of_imagenet_stand_for_numbers_of_classes(imagenet: Path) -> None:
    with pytest.raises(UserError) as raised:
        open_dataset("imagenet100", imagenet)
    assert raised.value.problem == f"imagenet100 has 100 classes, but {imagenet} has 3"
    assert raised.value.remedy == "give the path alone, in place of imagenet100"
    data = open_dataset("imagenet100", imagenet, classes=WNIDS[:2])
    assert (data.name, data.classes) == ("imagenet100", WNIDS[:2])


def test_imagenet100_has_the_first_hundred_classes(tmp_path: Path) -> None:
    for number in range(101):
        for part in ("train", "val"):
            place = tmp_path / part / f"n{90000000 - number:08}"
            place.mkdir(parents=True)
            (place / "1.JPEG").write_bytes(jpeg(picture(number % 3, 8, 8)))
    data = open_dataset("imagenet100", tmp_path, image_size=4)
    assert data.classes == tuple(f"n{90000000 - number:08}" for number in range(100, 0, -1))
    assert data.train.labels.tolist() == list(range(100))
    with pytest.raises(UserError, match=r"imagenet1000 has 1,000 classes, but .* has 101"):
        open_dataset("imagenet1000", tmp_path)


@pytest.mark.parametrize(
    ("name", "num_needed", "others"),
    [
        ("cifar100", 100, (20, 99, 101)),
        ("imagenet100", 100, (99,)),
        ("imagenet1000", 1000, (100, 1001)),
        ("celeb10000", 10_000, (9_999, 10_001)),
    ],
)
def test_protocols_of_the_paper_have_a_fixed_number_of_classes(
    name: str, num_needed: int, others: tuple[int, ...]
) -> None:
    known = [str(number) for number in range(10_001)]
    assert Wanted(name).of(known[:num_needed], "data") == known[:num_needed]
    for number in others:
        with pytest.raises(UserError) as raised:
            Wanted(name).of(known[:number], "data")
        problem = f"{name} has {num_needed:,} classes, but data has {number:,}"
        assert raised.value.problem == problem
    assert Wanted(name, ("7", "3")).of(known[:9], "data") == ["3", "7"]


def test_super_classes_of_cifar100_are_fewer() -> None:
    assert Wanted("cifar100", label="coarse_label").of(["a", "b"], "data") == ["a", "b"]
    with pytest.raises(UserError, match="cifar100 has 100 classes, but data has 2"):
        Wanted("cifar100", label="fine_label").of(["a", "b"], "data")


def test_some_classes_of_arrays(tmp_path: Path) -> None:
    labels = np.array([0, 1, 2, 1])
    images = np.arange(4, dtype=np.uint8)[:, None, None] * np.ones((1, 2, 2), dtype=np.uint8)
    arrays = {"x_train": images, "y_train": labels, "x_test": images, "y_test": labels}
    np.savez(tmp_path / "a.npz", **arrays, classes=["x", "y", "z"])
    data = open_dataset(str(tmp_path / "a.npz"), classes=("z", "y"))
    assert data.classes == ("y", "z")  # in the order of the data
    assert data.train.labels.tolist() == [0, 1, 0]
    assert data.train.take(data.train.everything)[:, 0, 0, 0].tolist() == [1, 2, 3]


def test_some_classes_of_digits() -> None:
    data = open_dataset("digits", classes=("3", "7"))
    assert data.classes == ("3", "7")
    assert set(data.test.labels.tolist()) == {0, 1}


def test_unknown_classes_are_refused() -> None:
    with pytest.raises(UserError) as raised:
        Wanted("pets", ("cat", "dgo")).of(["cat", "dog", "emu", "fox"], "pets")
    assert raised.value.problem == "pets has no class 'dgo' among its 4"
    assert raised.value.remedy == "change {classes} (did you mean 'dog'?)"
    with pytest.raises(UserError, match=r"no class 'ten' among its 10; .*\(it has 0, 1, 2 and so"):
        open_dataset("digits", classes=("3", "ten"))
