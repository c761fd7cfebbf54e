"""The index: which images and folders need not be read again, and which must be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.pictures import jpeg, picture, write_folder

from bic.data import index as index_module
from bic.data import reader as reader_module
from bic.data.images import Dataset, ImageSet
from bic.data.open import open_dataset
from bic.errors import UserError

LONG_AGO = 10**18


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BIC_DATA", str(tmp_path / "home"))
    monkeypatch.setattr(index_module, "MIN_IMAGES", 0)
    return tmp_path / "home"


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    folder = write_folder(tmp_path / "pets", ("cat", "dog"), train=7, test=3, size=30)
    settle(folder)
    return folder


def settle(folder: Path) -> None:
    """Date everything that changed just now back, so that the next change changes its time."""
    for path in [folder, *folder.rglob("*")]:
        if path.stat().st_mtime_ns > LONG_AGO + 10**9:
            os.utime(path, ns=(LONG_AGO, LONG_AGO + path.stat().st_mtime_ns % 10**9))


class Watch:
    """Counts the images that are opened and the folders that are listed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = 0
        self.listed = 0
        real_open = Image.open
        real_list = os.listdir

        def opening(*args: Any, **options: Any) -> Image.Image:
            self.opened += 1
            return real_open(*args, **options)

        def listing(*args: Any) -> list[str]:
            self.listed += 1
            return real_list(*args)

        monkeypatch.setattr(reader_module.Image, "open", opening)
        monkeypatch.setattr(index_module.os, "listdir", listing)

    def look(self, folder: Path, **options: Any) -> tuple[int, int, Dataset]:
        self.opened = 0
        self.listed = 0
        data = open_dataset(str(folder), keep_files=True, image_size=24, **options)
        return self.opened, self.listed, data


def same(one: ImageSet, other: ImageSet) -> bool:
    return (
        one.files == other.files
        and np.array_equal(one.labels, other.labels)
        and one.preprocessing == other.preprocessing
    )


def test_nothing_is_opened_or_listed_twice(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    opened, listed, first = watch.look(pets)
    assert (opened, listed) == (20, 4)
    opened, listed, again = watch.look(pets)
    assert (opened, listed) == (0, 0)
    assert same(first.train, again.train)
    assert same(first.test, again.test)
    assert first.fingerprint == again.fingerprint


def test_changed_images_are_opened_again(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    looks = [watch.look(pets)]
    # Changed in place, which does not change its folder; then added, removed, renamed.
    (pets / "train/cat/cat_3.JPEG").write_bytes(jpeg(picture(99, 31, 30)))
    settle(pets)
    looks.append(watch.look(pets))
    (pets / "train/dog/zebra.JPEG").write_bytes(jpeg(picture(98, 30, 30)))
    settle(pets)
    looks.append(watch.look(pets))
    (pets / "train/dog/dog_1.JPEG").unlink()
    settle(pets)
    looks.append(watch.look(pets))
    (pets / "train/dog/dog_2.JPEG").rename(pets / "train/dog/dog_2x.JPEG")
    settle(pets)
    looks.append(watch.look(pets))
    assert [look[:2] for look in looks] == [(20, 4), (1, 0), (1, 1), (0, 1), (1, 1)]
    assert [len(look[2].train) for look in looks] == [14, 14, 15, 14, 14]
    assert len({look[2].fingerprint for look in looks}) == 5


def test_a_file_that_breaks_is_noticed(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    watch.look(pets)
    (pets / "val/cat/cat_0.JPEG").write_bytes(b"")
    with pytest.raises(UserError, match=r"can't read .*val/cat/cat_0.JPEG \(it is not an image\)"):
        watch.look(pets)
    with pytest.warns(UserWarning, match="left out .*cat_0.JPEG"):
        assert watch.look(pets, skip_bad=True)[2].num_skipped == 1


def test_a_broken_image_does_not_discard_the_facts_about_the_others(
    pets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(monkeypatch)
    (pets / "val/dog/dog_2.JPEG").write_bytes(b"")
    with pytest.raises(UserError, match="dog_2"):
        watch.look(pets)
    (pets / "val/dog/dog_2.JPEG").write_bytes(jpeg(picture(1, 30, 30)))
    assert watch.look(pets)[0] == 1


def test_recent_changes_are_not_trusted(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    path = pets / "train/cat/cat_0.JPEG"
    os.utime(path)
    os.utime(path.parent)
    watch.look(pets)
    assert watch.look(pets)[:2] == (1, 1)


def test_only_the_wanted_classes_are_read(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    assert watch.look(pets, classes=("dog",))[:2] == (10, 2)
    assert watch.look(pets)[:2] == (10, 2)
    assert watch.look(pets, classes=("cat",))[:2] == (0, 0)
    assert watch.look(pets)[:2] == (0, 0)


@pytest.mark.parametrize("damage", ["flipped", "cut", "foreign", "empty"])
def test_a_damaged_index_is_not_trusted(
    pets: Path, home: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(monkeypatch)
    _, _, first = watch.look(pets)
    (path,) = (home / "index").iterdir()
    content = path.read_bytes()
    flipped = content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]
    damaged = {"flipped": flipped, "cut": content[:-50], "foreign": b"PAR1", "empty": b""}
    path.write_bytes(damaged[damage])
    opened, listed, again = watch.look(pets)
    assert (opened, listed) == (20, 4)
    assert first.fingerprint == again.fingerprint
    assert watch.look(pets)[:2] == (0, 0)


def test_no_writable_index_is_no_error(
    pets: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write_text("a file where the folder should be")
    watch = Watch(monkeypatch)
    assert watch.look(pets)[:2] == (20, 4)
    assert watch.look(pets)[:2] == (20, 4)


def test_few_images_need_no_index(pets: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "MIN_IMAGES", 21)
    open_dataset(str(pets))
    assert not home.exists()


def test_a_fingerprint_depends_on_names_and_not_on_the_place(pets: Path) -> None:
    data = open_dataset(str(pets), keep_files=True)
    moved = pets.rename(pets.with_name("moved"))  # no file can be read any more where it was
    fingerprint = data.fingerprint
    assert open_dataset("pets", moved, keep_files=True).fingerprint == fingerprint
    (moved / "train/cat/cat_0.JPEG").rename(moved / "train/dog/cat_0.JPEG")
    assert open_dataset("pets", moved, keep_files=True).fingerprint != fingerprint
