"""Folders of images, and broken images in them."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.pictures import plain_png

from bic.data import reader as reader_module
from bic.data.images import ImageSet
from bic.data.open import open_dataset
from bic.errors import UserError


def write(folder: Path, files: dict[str, bytes]) -> Path:
    """Write files by their path in the folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    files = {
        "train/dog/1.png": plain_png(30),
        "train/cat/2.png": plain_png(20),
        "train/cat/1.png": plain_png(10),
        "test/cat/1.png": plain_png(40),
        "test/dog/1.png": plain_png(50),
    }
    return write(tmp_path / "pets", files)


def values(images: ImageSet) -> list[int]:
    """The first pixel of each image."""
    return images.take(images.everything)[:, 0, 0, 0].tolist()


def test_classes_are_sorted_and_images_are_in_order_of_name(pets: Path) -> None:
    data = open_dataset(str(pets))
    assert (data.name, data.classes, data.num_skipped) == ("pets", ("cat", "dog"), 0)
    assert data.train.labels.tolist() == [0, 0, 1]
    assert values(data.train) == [10, 20, 30]
    assert values(data.test) == [40, 50]
    assert data.train.pixels is not None
    assert data.train.pixels.shape == (3, 1, 64, 64)


def test_the_original_files_are_kept(pets: Path) -> None:
    data = open_dataset(str(pets))
    assert [data.train.encoded(i) for i in range(3)] == [
        plain_png(10),
        plain_png(20),
        plain_png(30),
    ]
    assert data.train.select(np.array([2, 0])).encoded(1) == plain_png(10)


def test_all_suffixes_in_any_case_and_nothing_else(pets: Path) -> None:
    for name in ("a.PNG", "b.jpg", "c.JPEG", "d.WebP", "e.bmp", "f.GIF", "g.tiff"):
        (pets / "train/cat" / name).write_bytes(plain_png(60))
    for name in (".hidden.png", "notes.txt", "f.heic"):
        (pets / "train/cat" / name).write_bytes(b"no image")
    (pets / "train/.cache").mkdir()
    data = open_dataset(str(pets))
    assert data.classes == ("cat", "dog")
    assert values(data.train) == [10, 20, *[60] * 7, 30]


@pytest.mark.parametrize("name", ["val", "validation"])
def test_a_validation_folder_takes_the_place_of_test(pets: Path, name: str) -> None:
    (pets / "test").rename(pets / name)
    assert values(open_dataset(str(pets)).test) == [40, 50]


def test_one_colour_image_makes_all_images_rgb(pets: Path) -> None:
    write(pets, {"test/dog/2.png": plain_png((1, 2, 3))})
    data = open_dataset(str(pets), image_size=4)
    assert data.train.take(np.array([0]))[0, :, 0, 0].tolist() == [10, 10, 10]
    assert data.test.take(np.array([2]))[0, :, 0, 0].tolist() == [1, 2, 3]


def test_size_and_resize(pets: Path) -> None:
    stripes = np.zeros((8, 8), dtype=np.uint8)
    stripes[:, 2:6] = 90
    Image.fromarray(stripes).save(pets / "train/cat/1.png")
    data = open_dataset(str(pets), image_size=4, resize=8)
    assert data.train.take(np.array([0])).tolist() == [[[[90] * 4] * 4]]


def test_kept_files_are_decoded_when_they_are_used(pets: Path) -> None:
    data = open_dataset(str(pets), keep_files=True)
    assert data.train.pixels is None
    assert values(data.train) == [10, 20, 30]


def test_pixels_stay_encoded_if_they_need_too_much_memory(
    pets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "PIXELS_IN_MEMORY", 5 * 64 * 64)
    assert open_dataset(str(pets)).train.pixels is not None
    monkeypatch.setattr(reader_module, "PIXELS_IN_MEMORY", 5 * 64 * 64 - 1)
    assert open_dataset(str(pets)).train.pixels is None


def bomb() -> bytes:
    """A PNG whose header promises 10^10 pixels."""
    header = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 0, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n"
    for kind, body in ((b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")):
        checksum = zlib.crc32(kind + body)
        content += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", checksum)
    return content


BROKEN = {
    "empty": (b"", "it is not an image"),
    "text": (b"<html>not found</html>", "it is not an image"),
    "truncated": (plain_png(99, (200, 200))[:-60], "truncated"),
    "bomb": (bomb(), "it has more than 178,956,970 pixels"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_named_or_left_out(pets: Path, kind: str) -> None:
    content, reason = BROKEN[kind]
    (pets / "train/cat/15.png").write_bytes(content)
    with pytest.raises(UserError, match=rf"can't read .*cat/15.png \(.*({reason})") as raised:
        open_dataset(str(pets))
    assert raised.value.remedy == "fix it, or set {skip_bad} to leave it out"
    with pytest.warns(UserWarning, match=rf"left out .*cat/15.png \(.*{reason}"):
        data = open_dataset(str(pets), skip_bad=True)
    assert data.num_skipped == 1
    assert data.train.labels.tolist() == [0, 0, 1]
    assert values(data.train) == [10, 20, 30]
    assert [data.train.encoded(i) for i in range(3)] == [
        plain_png(10),
        plain_png(20),
        plain_png(30),
    ]


@pytest.mark.parametrize("kind", ["empty", "text", "bomb"])
def test_headers_are_checked_even_if_pixels_stay_encoded(pets: Path, kind: str) -> None:
    content, _ = BROKEN[kind]
    (pets / "test/cat/2.png").write_bytes(content)
    with pytest.raises(UserError, match=r"can't read .*test/cat/2.png"):
        open_dataset(str(pets), keep_files=True)
    with pytest.warns(UserWarning, match=r"left out .*test/cat/2.png"):
        data = open_dataset(str(pets), keep_files=True, skip_bad=True)
    assert (data.num_skipped, values(data.test)) == (1, [40, 50])


def test_of_many_broken_images_some_are_named(pets: Path) -> None:
    for number in range(30):
        (pets / f"train/cat/3{number:02}.png").write_bytes(b"")
    with pytest.warns(UserWarning, match="left out") as warned:
        data = open_dataset(str(pets), skip_bad=True)
    assert (data.num_skipped, len(warned)) == (30, 10)


def test_a_broken_link_is_a_broken_image(pets: Path) -> None:
    (pets / "train/cat/15.png").symlink_to(pets / "nothing.png")
    with pytest.raises(UserError, match=r"cat/15.png \(No such file or directory\); fix it, or"):
        open_dataset(str(pets))
    with pytest.warns(UserWarning, match=r"left out .*cat/15.png"):
        data = open_dataset(str(pets), skip_bad=True)
    assert values(data.train) == [10, 20, 30]


def test_more_images_than_a_chunk_keep_their_order(
    pets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "CHUNK", 3)
    for number in range(20):
        (pets / f"train/cat/3{number:02}.png").write_bytes(plain_png(100 + number))
    (pets / "train/cat/310.png").write_bytes(b"")
    with pytest.warns(UserWarning, match=r"left out .*310.png"):
        data = open_dataset(str(pets), skip_bad=True)
    assert values(data.train) == [10, 20, *range(100, 110), *range(111, 120), 30]


def test_classes_without_images_are_refused(pets: Path) -> None:
    (pets / "test/bird").mkdir()
    with pytest.raises(UserError, match="class 'bird' has no train images"):
        open_dataset(str(pets))
    (pets / "test/bird").rename(pets / "train/bird")
    with pytest.raises(UserError, match=r"class 'bird' has no train images; put .png.*train/bird"):
        open_dataset(str(pets))
    write(pets, {"train/bird/1.png": plain_png(5)})
    with pytest.raises(UserError, match="class 'bird' has no test images"):
        open_dataset(str(pets))
    (pets / "test").rename(pets / "testing")
    with pytest.raises(UserError, match=r"class 'bird' has no test images; put .*pets/test/bird"):
        open_dataset(str(pets))


def test_a_train_folder_without_classes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "test").mkdir()
    with pytest.raises(UserError, match=r"has no images; put some in .*train/CLASS/"):
        open_dataset(str(tmp_path))
