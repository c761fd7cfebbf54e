"""Data of strangers in every format: one sentence, at once, and with little memory."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.command_line import write_arrays, write_photos
from support.memory_limit import memory_limit
from support.npz_files import write_bomb
from support.odd_files import NOT_FILES, put

from bic import UserError, as_image_set
from bic.data.index import FORMAT, Index
from bic.data.open import open_dataset
from bic.data.sources.arrays import REQUIRED, check_claims
from bic.npz import open_npz_file

Arrays = dict[str, tuple[str, tuple[int, ...]]]
LABELS = ("<i8", (1,))

# In 2 MB or less each of them claims two gigabytes or more, in itself or when it is used.
BOMBS: dict[str, Arrays] = {
    "images": {"x_train": ("|u1", (2000, 1024, 1024)), "y_train": ("<i8", (2000,))},
    "vectors of bytes": {"x_train": ("|u1", (500, 2**20)), "y_train": ("<i8", (500,))},
    "labels of bytes": {"x_train": ("|u1", (2**24, 1, 1)), "y_train": ("|i1", (2**24,))},
    "long labels": {"x_train": ("|u1", (2**15, 1, 1)), "y_train": ("<U16000", (2**15,))},
    "names": {"x_train": ("|u1", (1, 1, 1)), "y_train": LABELS, "classes": ("|i1", (2**25,))},
    "another array": {"x_train": ("|u1", (1, 1, 1)), "y_train": LABELS, "z": ("|u1", (2**31,))},
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_npz_that_claims_gigabytes_is_refused(tmp_path: Path, bomb: str) -> None:
    arrays = BOMBS[bomb]
    dtype, shape = arrays["x_train"]
    labels, _ = arrays["y_train"]
    test: Arrays = {"x_test": (dtype, (1, *shape[1:])), "y_test": (labels, (1,))}
    path = write_bomb(tmp_path / "x.npz", {**arrays, **test})
    assert path.stat().st_size < 2.5e6
    start = time.process_time()
    with memory_limit(2**27), pytest.raises(UserError, match="MB of memory, and only 5"):
        open_dataset(str(path))
    assert time.process_time() - start < 2


def test_ten_thousand_classes_of_29_images_may_be_opened(tmp_path: Path) -> None:
    """Only the headers are checked here: such a set, of drawings, packs to 20 MB."""
    count = 10_000 * 29
    arrays: Arrays = {
        "x_train": ("|u1", (count, 32, 32)),
        "y_train": ("<i8", (count,)),
        "x_test": ("|u1", (10_000, 32, 32)),
        "y_test": ("<i8", (10_000,)),
        "classes": ("<U8", (10_000,)),
    }
    with open_npz_file(write_bomb(tmp_path / "x.npz", arrays)) as file:
        check_claims(tmp_path, file, (*REQUIRED, "classes"))


def test_limit_can_be_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_arrays(tmp_path / "x.npz")
    monkeypatch.setattr("bic.foreign_files.UNPACKED_BYTES", 0)
    monkeypatch.setattr("bic.foreign_files.UNPACKED_PER_STORED", 1)
    with pytest.raises(UserError, match="set the environment variable BIC_UNPACK_MB=1"):
        open_dataset(str(path))
    monkeypatch.setenv("BIC_UNPACK_MB", "1")
    assert len(open_dataset(str(path)).classes) == 4


def test_floats_become_pixels_in_pieces(tmp_path: Path) -> None:
    """64 MB of truth values take 64 MB as pixels, and never 512 MB as floats."""
    images = np.zeros((1024, 256, 256), dtype=bool)
    images[::2] = True
    with memory_limit(3 * 2**26):
        pixels = as_image_set(images).pixels
    assert pixels is not None
    assert pixels[:, 0, 0, 0].tolist() == [255, 0] * 512


@pytest.mark.parametrize("kind", NOT_FILES)
@pytest.mark.parametrize("name", ["x.npz", "cifar-100-python.tar.gz", "train"])
def test_source_that_is_not_a_file_is_refused(tmp_path: Path, kind: str, name: str) -> None:
    path = tmp_path / name
    put(kind, path)
    start = time.process_time()
    for place in (path, tmp_path):
        with memory_limit(2**27), pytest.raises(UserError):
            open_dataset(str(place))
    assert time.process_time() - start < 1


@pytest.mark.parametrize("kind", NOT_FILES)
def test_image_that_is_not_a_file_is_refused_or_left_out(tmp_path: Path, kind: str) -> None:
    photos = write_photos(tmp_path / "photos")
    odd = photos / "train" / "kind1" / "3.png"
    put(kind, odd)
    start = time.process_time()
    with memory_limit(2**28):
        with pytest.raises(UserError, match=r"can't read .*train/kind1/3\.png \(.*skip_bad"):
            open_dataset(str(photos), image_size=8)
        with pytest.raises(UserError, match=r"can't read .*train/kind1/3\.png"):
            as_image_set([str(odd)])
        with pytest.warns(UserWarning, match=r"left out .*train/kind1/3\.png"):
            data = open_dataset(str(photos), image_size=8, skip_bad=True)
    assert len(data.train) == 23
    assert time.process_time() - start < 3


@pytest.mark.parametrize("kind", NOT_FILES)
def test_list_of_classes_that_is_not_a_file_is_not_read(tmp_path: Path, kind: str) -> None:
    photos = write_photos(tmp_path / "photos")
    for place in (photos / "test").iterdir():
        for image in place.iterdir():
            image.rename(photos / "test" / f"{place.name}-{image.name}")
        place.rmdir()
    put(kind, photos / "test.txt")
    start = time.process_time()
    with memory_limit(2**28), pytest.raises(UserError, match="no list of their classes"):
        open_dataset(str(photos))
    assert time.process_time() - start < 1


def nothing(path: Path) -> None:
    path.unlink(missing_ok=True)


def junk(path: Path) -> None:
    path.write_bytes(os.urandom(1000))


def headed_junk(path: Path) -> None:
    path.write_bytes(FORMAT + bytes(32) + os.urandom(1000))


@pytest.mark.parametrize("damage", [nothing, junk, headed_junk, *NOT_FILES.values()])
def test_damaged_index_is_ignored(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    path = Index(tmp_path / "home", tmp_path).path
    path.parent.mkdir(parents=True)
    damage(path)
    with memory_limit(2**28):
        assert Index(tmp_path / "home", tmp_path).known("train/a") is None


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("\x1b[2J", r"class name '\x1b[2J' is empty or not printable"),
        ("a\nb", r"class name 'a\nb' is empty or not printable"),
        (" ", "class name ' ' is empty or not printable"),
    ],
)
def test_folder_with_an_unprintable_name_is_refused(
    tmp_path: Path, name: str, problem: str
) -> None:
    photos = write_photos(tmp_path / "photos")
    for part in ("train", "test"):
        (photos / part / "kind0").rename(photos / part / name)
    with pytest.raises(UserError) as caught:
        open_dataset(str(photos), image_size=8)
    assert problem in str(caught.value)
    assert str(caught.value).isprintable()


def test_folders_that_differ_in_case_are_two_classes(tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos")
    names = ["kind1", "KIND1", "🐈", "héron"]
    for part in ("train", "test"):
        for number in (0, 2, 3):
            (photos / part / f"kind{number}").rename(
                photos / part / names[{0: 1, 2: 2, 3: 3}[number]]
            )
    assert open_dataset(str(photos), image_size=8).classes == tuple(sorted(names))
