"""Rows of Parquet files that are read when they are used, for data that does not fit in memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.pictures import plain_png

from bic.data import image_files
from bic.data import index as index_module
from bic.data import reader as reader_module
from bic.data.images import ImageSet
from bic.data.open import open_dataset
from bic.data.sources import parquet as parquet_module
from bic.errors import UserError


def write(path: Path, images: list[bytes], labels: list[int]) -> None:
    """A shard in row groups of two."""
    structs = [{"bytes": image, "path": "x.png"} for image in images]
    names = pa.array(["ant", "bee"]).take(pa.array(labels))
    pq.write_table(pa.table({"image": structs, "label": names}), path, row_group_size=2)


def write_shards(folder: Path) -> None:
    """Three shards of five rows, and two test images."""
    for shard in range(3):
        images = [plain_png(10 * shard + number) for number in range(5)]
        write(folder / f"train-{shard:05}-of-00003.parquet", images, [0, 1, 0, 1, shard % 2])
    write(folder / "test-00000-of-00001.parquet", [plain_png(7), plain_png(8)], [1, 0])


@pytest.fixture
def lazily(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As if the images were too many for memory. Few images are indexed, too."""
    monkeypatch.setattr(parquet_module, "ENCODED_IN_MEMORY", 0)
    monkeypatch.setattr(index_module, "MIN_IMAGES", 0)
    monkeypatch.setenv("BIC_DATA", str(tmp_path / "home"))


def values(images: ImageSet) -> list[int]:
    """The first pixel of each image."""
    return images.take(images.everything)[:, 0, 0, 0].tolist()


@pytest.mark.parametrize("keep_files", [False, True])
def test_rows_are_those_of_a_set_in_memory(
    tmp_path: Path, keep_files: bool, request: pytest.FixtureRequest
) -> None:
    write_shards(tmp_path)
    in_memory = open_dataset(str(tmp_path)).train
    request.getfixturevalue("lazily")
    train = open_dataset(str(tmp_path), keep_files=keep_files).train
    assert not any(isinstance(file, bytes) for file in train.files or ())
    assert values(train) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14, 20, 21, 22, 23, 24]
    assert values(in_memory) == values(train)
    assert train.labels.tolist() == in_memory.labels.tolist()
    assert train.select(np.array([13, 2])).encoded(0) == plain_png(23)


def test_rows_of_some_classes(tmp_path: Path, lazily: None) -> None:
    write_shards(tmp_path)
    data = open_dataset(str(tmp_path), classes=("bee",), keep_files=True)
    assert data.classes == ("bee",)
    assert values(data.train) == [1, 3, 11, 13, 14, 21, 23]
    assert values(data.test) == [7]


def test_only_a_few_row_groups_are_cached(
    tmp_path: Path, lazily: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shards(tmp_path)
    train = open_dataset(str(tmp_path), keep_files=True).train
    assert train.files is not None
    read_group = image_files._read_group
    groups_read: list[int] = []

    def counted(path: str, column: str, group: int) -> Any:
        groups_read.append(group)
        return read_group(path, column, group)

    monkeypatch.setattr(image_files, "_read_group", counted)
    monkeypatch.setattr(image_files, "_row_groups", image_files._RowGroups())
    size = read_group(*train.files[0][:3]).nbytes  # type: ignore[call-arg, arg-type]
    # Enough for two groups of two rows, but not for the third group, of one row, as well.
    monkeypatch.setattr(image_files, "CACHED_BYTES", int(2.1 * size))
    assert values(train.select(np.array([0, 1, 2, 0, 3]))) == [0, 1, 2, 0, 3]
    assert groups_read == [0, 1]
    assert values(train.select(np.array([4, 0]))) == [4, 0]
    assert groups_read == [0, 1, 2, 0]


def test_known_shards_are_not_opened_again(
    tmp_path: Path, lazily: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shards(tmp_path)
    for path in tmp_path.glob("*.parquet"):
        os.utime(path, ns=(10**18, 10**18))
    read = reader_module.read
    rows_read: list[Any] = []

    def counted(file: Any) -> bytes:
        rows_read.append(file)
        return read(file)

    monkeypatch.setattr(reader_module, "read", counted)
    first = open_dataset(str(tmp_path), keep_files=True)
    assert len(rows_read) == 17
    again = open_dataset(str(tmp_path), keep_files=True)
    assert len(rows_read) == 17
    assert first.fingerprint == again.fingerprint
    assert first.train.preprocessing == again.train.preprocessing
    other_images = [plain_png(1, (5, 4)), plain_png(2)]
    write(tmp_path / "train-00001-of-00003.parquet", other_images, [0, 1])
    changed = open_dataset(str(tmp_path), keep_files=True)
    assert len(rows_read) == 19
    assert changed.fingerprint != first.fingerprint


def test_a_broken_row_is_named_when_it_is_used(tmp_path: Path, lazily: None) -> None:
    write_shards(tmp_path)
    images = [*(plain_png(number) for number in range(3)), plain_png(9, (200, 200))[:-60]]
    write(tmp_path / "train-00001-of-00003.parquet", images, [0, 1, 0, 1])
    train = open_dataset(str(tmp_path), keep_files=True).train
    named = r"can't read row 3 of .*train-00001-of-00003.parquet \(.*truncated"
    with pytest.raises(UserError, match=named):
        train.take(train.everything)


def test_row_groups_that_are_too_large_are_refused(
    tmp_path: Path, lazily: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shards(tmp_path)
    monkeypatch.setattr(parquet_module, "GROUP_BYTES", 10)
    named = r"train-00000-of-00003.parquet has row groups of .*row_group_size=100"
    with pytest.raises(UserError, match=named):
        open_dataset(str(tmp_path))
