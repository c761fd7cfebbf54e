"""How a data set is found by name or path, and its format recognised."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.pictures import plain_png

from bic.data.open import open_dataset
from bic.errors import UserError


@pytest.fixture
def npz(tmp_path: Path) -> Path:
    images = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
    path = tmp_path / "toy.npz"
    np.savez(path, x_train=images, y_train=[0, 1], x_test=images, y_test=[0, 1])
    return path


def test_unknown_names_and_missing_paths(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"'cifar10' is neither a data set .* did you mean 'cifar100'"
    ):
        open_dataset("cifar10")
    with pytest.raises(UserError, match=r"nowhere/birds.npz does not exist; check the path"):
        open_dataset("nowhere/birds.npz")
    with pytest.raises(UserError, match="missing does not exist"):
        open_dataset("birds", tmp_path / "missing")


@pytest.mark.parametrize(
    ("name", "problem", "remedy"),
    [
        ("imagenet1000", "imagenet1000 must be downloaded from its owners", "pass {data=PATH}"),
        ("imagenet100", "imagenet100 must be downloaded from its owners", "pass {data=PATH}"),
        ("celeb10000", "celeb10000 is no longer distributed", "with {data=PATH}"),
    ],
)
def test_data_sets_that_cannot_be_downloaded(name: str, problem: str, remedy: str) -> None:
    with pytest.raises(UserError) as raised:
        open_dataset(name)
    assert raised.value.problem == problem
    assert raised.value.remedy.endswith(remedy)


def test_unknown_formats_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.npz").write_text("hello")
    for path in (tmp_path, tmp_path / "notes.npz"):
        with pytest.raises(UserError, match=r"is not in a format .*; pass an .npz file"):
            open_dataset(str(path))


def test_the_content_decides_about_the_format(npz: Path, tmp_path: Path) -> None:
    renamed = npz.rename(tmp_path / "images.bin")
    assert open_dataset("mine", renamed).name == "mine"
    assert open_dataset("digits", renamed).image_size == 3
    assert open_dataset(str(renamed)).name == "images"


def test_data_with_too_few_classes_is_not_cifar100(npz: Path) -> None:
    with pytest.raises(UserError) as raised:
        open_dataset("cifar100", npz)
    assert raised.value.problem == f"cifar100 has 100 classes, but {npz} has 2"
    assert raised.value.remedy == "give the path alone, in place of cifar100"
    assert open_dataset("cifar100", npz, classes=("1",)).classes == ("1",)


def test_the_home_directory_may_be_abbreviated(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_dataset("~/toy.npz").name == "toy"
    assert open_dataset("mine", Path("~/toy.npz")).name == "mine"


def test_a_label_column_is_refused_without_columns(npz: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError) as raised:
        open_dataset(str(npz), label="fine")
    assert raised.value.remedy == "leave out {label=fine}"
    with pytest.raises(UserError, match='digits has no label columns; leave out label="fine"'):
        open_dataset("digits", label="fine")
    for part in ("train", "test"):
        (tmp_path / "pets" / part / "cat").mkdir(parents=True)
        (tmp_path / "pets" / part / "cat" / "1.png").write_bytes(plain_png(1))
    with pytest.raises(UserError, match="pets has no label columns"):
        open_dataset(str(tmp_path / "pets"), label="fine")
