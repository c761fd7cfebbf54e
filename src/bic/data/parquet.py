"""Parquet files as Hugging Face lays them out: train-*.parquet and test-*.parquet."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bic.data.encoded import EncodedFiles, Part, Reading, read_dataset
from bic.data.images import Dataset, Labels
from bic.errors import UserError, unknown

TEST_SPLITS = ("test", "validation", "val")
USUAL_LABELS = ("fine_label", "label")

Value = int | str | None


class Rows(EncodedFiles):
    """The images of some files; none is copied until it is read."""

    def __init__(self, paths: Sequence[Path]) -> None:
        columns = [read_images(path) for path in paths]
        self._paths = paths
        self._path_starts = starts(columns)
        self._chunks = [chunk for column in columns for chunk in column.chunks]
        self._chunk_starts = starts(self._chunks)
        self._num_rows = sum(len(column) for column in columns)

    def __len__(self) -> int:
        return self._num_rows

    def read(self, index: int) -> bytes:
        chunk = bisect_right(self._chunk_starts, index) - 1
        encoded = self._chunks[chunk][index - self._chunk_starts[chunk]].as_py()
        if encoded is None:
            raise ValueError("it has no image")
        assert isinstance(encoded, bytes)
        return encoded

    def name(self, index: int) -> str:
        file = bisect_right(self._path_starts, index) - 1
        return f"row {index - self._path_starts[file]} of {self._paths[file]}"


def starts(columns: Sequence[Any]) -> list[int]:
    return list(accumulate(map(len, columns), initial=0))[:-1]


def open_parquet(path: Path, name: str, label: str | None, reading: Reading) -> Dataset:
    """The images of a folder of shards; a single file stands for the folder it is in."""
    folder = path.parent if path.is_file() else path
    train = find_shards(folder, "train")
    if not train:
        raise UserError(f"{folder} has no training images; name the files train-*.parquet")
    label = label_column(train[0], label)
    test = find_test_shards(folder, label)
    values = [read_labels(files, label) for files in (train, test)]
    names = class_names([*train, *test], label)
    classes, labels = number_labels(values, names)
    parts = (Part("train", Rows(train), labels[0]), Part("test", Rows(test), labels[1]))
    return read_dataset(name, classes, parts, reading, keep_own_size=True)


def has_parquet(folder: Path) -> bool:
    return any(any(folder.glob(f"{inside}*.parquet")) for inside in ("", "data/", "train/"))


def find_shards(folder: Path, split: str) -> list[Path]:
    """The files of a split: SPLIT-*.parquet here or in data/, or all those in SPLIT/."""
    for pattern in (f"{split}[-.]*parquet", f"data/{split}[-.]*parquet", f"{split}/*.parquet"):
        if found := sorted(folder.glob(pattern)):
            return found
    return []


def find_test_shards(folder: Path, label: str) -> list[Path]:
    """The first test split that has labels: ImageNet, for one, keeps those of `test` secret."""
    splits = [found for split in TEST_SPLITS if (found := find_shards(folder, split))]
    if not splits:
        raise UserError(f"{folder} has no test images; name the files test-*.parquet")
    labelled = (files for files in splits if set(read_labels(files, label)) != {None})
    return next(labelled, splits[0])


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (pa.ArrowException, OSError) as problem:
        raise UserError(f"can't read {path} ({problem}); download it again") from problem


def read_images(path: Path) -> Any:
    """The column of encoded images, a ChunkedArray of bytes."""
    with opened(path) as file:
        for field in file.schema_arrow:
            if pa.types.is_struct(field.type) and field.type.get_field_index("bytes") >= 0:
                column = file.read(columns=[field.name])[field.name]
                return column.flatten()[field.type.get_field_index("bytes")]
            if pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
                return file.read(columns=[field.name])[field.name]
        columns = ", ".join(file.schema_arrow.names)
    raise UserError(f"{path} has no column of image bytes, only {columns}; write them to one")


def read_labels(paths: Sequence[Path], label: str) -> list[Value]:
    """The label column of some files; -1, as Hugging Face writes it, is no label."""
    values: list[Value] = []
    for path in paths:
        label_column(path, label)
        with opened(path) as file:
            values += file.read(columns=[label])[label].to_pylist()
    return [None if value == -1 else value for value in values]


def label_column(path: Path, label: str | None) -> str:
    """`label`, if the file has it, else the column that must be meant."""
    with opened(path) as file:
        choices = [field.name for field in file.schema_arrow if is_label(field.type)]
    if label is not None:
        if label not in choices:
            raise unknown(f"label column of {path}", label, choices)
        return label
    if not choices:
        raise UserError(f"{path} has no column of integers or strings; add the labels as one")
    usual = choices if len(choices) == 1 else [name for name in USUAL_LABELS if name in choices]
    if not usual:
        raise UserError(f"{path} has several columns; choose --label from {', '.join(choices)}")
    return usual[0]


def is_label(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(is_text or pa.types.is_integer(kind))


def class_names(paths: Sequence[Path], label: str) -> tuple[str, ...] | None:
    """The names of the integer labels, which all files must agree on; None if they have none."""
    found = {}
    for path in paths:
        with opened(path) as file:
            metadata = (file.schema_arrow.metadata or {}).get(b"huggingface", b"{}")
        try:
            feature = json.loads(metadata).get("info", {}).get("features", {}).get(label)
        except (ValueError, AttributeError) as problem:
            raise UserError(
                f"can't read the metadata of {path} ({problem}); remove it"
            ) from problem
        found[find_names(feature)] = path
    if len(found) > 1:
        first, second, *_ = found.values()
        raise UserError(f"{first} and {second} name other classes in {label}; write both alike")
    return next(iter(found))


def find_names(feature: Any) -> tuple[str, ...] | None:
    """The names of a Hugging Face ClassLabel, which may lie inside another feature."""
    if not isinstance(feature, dict):
        return None
    if feature.get("_type") == "ClassLabel" and feature.get("names"):
        return tuple(str(name) for name in feature["names"])
    inner = (find_names(each) for each in feature.values())
    return next((names for names in inner if names), None)


def number_labels(
    values: Sequence[Sequence[Value]], names: tuple[str, ...] | None
) -> tuple[Sequence[str], list[Labels]]:
    """Class names, and each part's labels as positions in them (-1: none)."""
    used = {value for part in values for value in part if value is not None}
    numbers = sorted(value for value in used if isinstance(value, int))
    texts = sorted(value for value in used if isinstance(value, str))
    if names is not None and not texts:
        position: dict[Value, int] = {value: value for value in numbers}
    else:
        order: list[Value] = [*numbers, *texts]
        position = {value: index for index, value in enumerate(order)}
        names = tuple(str(value) for value in order)
    labels = [np.array([position.get(each, -1) for each in part], np.int64) for part in values]
    return names, labels
