"""Files that cannot be read: named, left out, or the end of the run."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from support.pictures import huge, jpeg, kinds, picture, plain_png, truncated

from bic.data.augmentation import Augmentation
from bic.data.batches import Batches, plain_batches
from bic.data.decode_files import decode_files, reason_of
from bic.data.image_files import Row, name_of
from bic.data.images import ImageSet
from bic.data.preprocessing import Preprocessing
from bic.errors import UserError

PREPROCESSING = Preprocessing(channels=3, size=40, resize=48)
BROKEN = {
    "empty": (b"", "it is not an image"),
    "truncated": (truncated(jpeg(picture(1, 300, 200))), "truncated"),
    "huge": (huge(), "it has more than 178,956,970 pixels"),
}


@pytest.fixture
def photos(tmp_path: Path) -> list[str]:
    """Nine files of six kinds."""
    paths = []
    for number in range(9):
        path = tmp_path / f"{number}.JPEG"
        path.write_bytes(list(kinds(number, 80 + number, 70).values())[number % 6])
        paths.append(str(path))
    return paths


def image_set(files: list[str], *, skip_bad: bool = False) -> ImageSet:
    labels = np.arange(len(files))
    return ImageSet(labels=labels, preprocessing=PREPROCESSING, files=files, skip_bad=skip_bad)


def test_pixels_are_those_of_each_file(photos: list[str]) -> None:
    pixels, good = decode_files(photos, PREPROCESSING)
    assert good == list(range(9))
    assert pixels.is_contiguous(memory_format=torch.channels_last)
    for path, row in zip(photos, pixels, strict=True):
        assert torch.equal(row, PREPROCESSING.decode(Path(path).read_bytes()))


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_named_or_left_out(photos: list[str], kind: str) -> None:
    content, reason = BROKEN[kind]
    whole, _ = decode_files(photos, PREPROCESSING)
    Path(photos[4]).write_bytes(content)
    named = rf"can't read {re.escape(photos[4])} \(.*{reason}.*\); fix it, or set skip_bad"
    with pytest.raises(UserError, match=named):
        decode_files(photos, PREPROCESSING)
    with pytest.warns(UserWarning, match=rf"left out {re.escape(photos[4])} \(.*{reason}"):
        pixels, good = decode_files(photos, PREPROCESSING, skip_bad=True)
    assert good == [0, 1, 2, 3, 5, 6, 7, 8]
    assert torch.equal(pixels, whole[good])


@pytest.mark.filterwarnings("ignore:left out")
def test_a_broken_file_does_not_move_the_others(photos: list[str]) -> None:
    (whole, _) = next(plain_batches(image_set(photos)))
    Path(photos[4]).write_bytes(b"")
    others = [0, 1, 2, 3, 5, 6, 7, 8]
    lenient = image_set(photos, skip_bad=True)
    ((pixels, indices),) = plain_batches(lenient)
    assert indices.tolist() == others
    assert torch.equal(pixels, whole[others])
    batches = Batches(lenient, (3,), batch_size=4, augmentation=Augmentation())
    labels_seen = []
    for batch, labels in batches.epoch(0):
        assert torch.equal(batch, whole[labels])
        assert batches.weight_of(0, len(labels)) == 1
        labels_seen += labels.tolist()
    assert sorted(labels_seen) == others


@pytest.mark.filterwarnings("ignore:left out")
def test_batches_with_fewer_than_two_readable_images_are_left_out(photos: list[str]) -> None:
    for path in photos[1:]:
        Path(path).write_bytes(b"")
    lenient = image_set(photos, skip_bad=True)
    batches = Batches(lenient, (3,), batch_size=4, augmentation=Augmentation())
    assert list(batches.epoch(0)) == []
    (batch,) = plain_batches(lenient, 2)
    assert batch[1].tolist() == [0]


@pytest.mark.parametrize("skip_bad", [False, True])
def test_a_missing_file_ends_the_run(photos: list[str], skip_bad: bool) -> None:
    """Even with skip_bad: otherwise a drive that goes away would leave nothing to learn from."""
    Path(photos[7]).unlink()
    images = image_set(photos, skip_bad=skip_bad)
    missing = rf"can't read {re.escape(photos[7])} \(No such file or directory\); put it back"
    with pytest.raises(UserError, match=missing):
        images.take_readable(images.everything)


def test_the_first_problem_in_order_is_raised(photos: list[str]) -> None:
    Path(photos[2]).write_bytes(b"")
    Path(photos[5]).unlink()
    with pytest.raises(UserError, match=r"2.JPEG \(it is not an image\)"):
        decode_files(photos, PREPROCESSING)


def test_reasons_and_names() -> None:
    assert reason_of(FileNotFoundError(2, "No such file", "x")) == "No such file"
    assert reason_of(OSError("image file is truncated")) == "image file is truncated"
    assert reason_of(ValueError("it has no label")) == "it has no label"
    assert name_of("a/b.png") == "a/b.png"
    assert name_of(plain_png(3)) == "an image in memory"
    assert name_of(Row("a.parquet", "image", group=2, row=3, first=20)) == "row 23 of a.parquet"
