"""Parquet files as Hugging Face lays them out: train-*.parquet and test-*.parquet."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from bic.data.choose import Wanted
from bic.data.encoded import Part, Reader
from bic.data.files import File, Row, image_bytes
from bic.data.images import Dataset, Indices, Labels, number_labels, reading
from bic.data.index import Facts, Index
from bic.errors import UserError, unknown

TESTS = ("test", "validation", "val")
ENCODED_IN_MEMORY = 2**30  # bytes of all images; beyond, they are read when needed
GROUP_BYTES = 2**29  # of the largest row group that we read as a whole

USUAL_LABELS = ("fine_label", "label")
# As pyarrow calls the types of columns.
IMAGES = re.compile(r"(large_)?binary|struct<(.*, )?bytes: .*>")
LABELS = re.compile(r"u?int\d+|(large_)?string|dictionary<.*>")


def open_parquet(path: Path, name: str, label: str | None, wanted: Wanted, reader: Reader) -> Dataset:
    """The images of a folder of shards; a single file stands for the folder it is in."""
    folder = path.parent if path.is_file() else path
    train, tests = find_shards(folder, "train"), [find_shards(folder, split) for split in TESTS]
    if not train or not any(tests):
        missing = "test" if train else "train"
        raise UserError(f"{folder} has no {missing} images; name the files {missing}-*.parquet")
    image, label, names = find_columns(train[0], label)
    test, answers = find_labelled([shards for shards in tests if shards], label)
    if find_columns(test[0], label) != (image, label, names):
        raise UserError(f"{train[0]} and {test[0]} have other columns or class names; write both alike")
    known, y_train, y_test = number_labels(read_column(train, label), answers, names)
    classes = wanted.of(known, folder)
    index = Index(reader.cache, folder)
    lazily = reader.keep_files or sum(map(num_bytes, (*train, *test))) > ENCODED_IN_MEMORY
    parts = []
    for title, shards, labels in (("train", train, y_train), ("test", test, y_test)):
        labels, chosen = renumber(labels, known, classes)
        files = list_rows(shards, image) if lazily else [image_bytes(cell) for cell in read_column(shards, image)]
        parts.append(Part(title, files, labels, name_in(shards), look_up(shards, index), chosen))
    return reader.read(name, classes, parts, index=index, keep_own_size=True)


def find_labelled(splits: Sequence[list[Path]], label: str) -> tuple[list[Path], list[Any]]:
    """The first split that has labels: those of a hidden test set are all -1. If none has, the first."""
    found = [(shards, read_column(shards, find_columns(shards[0], label)[1])) for shards in splits]
    return next(((shards, labels) for shards, labels in found if set(labels) - {None, -1}), found[0])


def renumber(labels: Labels, known: Sequence[str], classes: Sequence[str]) -> tuple[Labels, Indices | None]:
    """Labels as positions in the wanted classes, and the rows that have one or lack a label altogether."""
    if len(known) == len(classes):
        return labels, None
    position = {name: label for label, name in enumerate(classes)}
    new = np.array([*(position.get(name, -2) for name in known), -1], dtype=np.int64)[labels]
    return new, np.flatnonzero(new > -2)


def find_shards(folder: Path, *splits: str) -> list[Path]:
    """The files of the first split there is: SPLIT-*.parquet here or in data/, or all those in SPLIT/."""
    for split in splits:
        for pattern in (f"{split}[-.]*parquet", f"data/{split}[-.]*parquet", f"{split}/*.parquet"):
            if found := sorted(folder.glob(pattern)):
                return found
    return []


def find_columns(path: Path, label: str | None) -> tuple[str, str, list[str] | None]:
    """The columns of images and labels (`label`, or the one that must be meant), and the class names."""
    with reading(path):
        schema = pq.read_schema(path)
        metadata = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = metadata.get("info", {}).get("features", {})
    images = [field.name for field in schema if IMAGES.fullmatch(str(field.type))]
    labels = [field.name for field in schema if LABELS.fullmatch(str(field.type))]
    if not images or not labels:
        wanted = "image bytes" if not images else "integer or string labels"
        raise UserError(f"{path} has no column of {wanted}, only {', '.join(schema.names)}; add one")
    usual = labels if len(labels) == 1 else [each for each in USUAL_LABELS if each in labels]
    if label is None and not usual:
        raise UserError(f"{path} has several columns; choose --label from {', '.join(labels)}")
    label = label or usual[0]
    if label not in labels:
        raise unknown(f"label column of {path}", label, labels)
    return images[0], label, features.get(label, {}).get("names")


def read_column(paths: Sequence[Path], name: str) -> list[Any]:
    values = []
    for path in paths:
        with reading(path):
            values += pq.read_table(path, columns=[name], partitioning=None)[name].to_pylist()
    return values


def list_rows(paths: Sequence[Path], column: str) -> list[File]:
    """Every row of the shards, to be read when needed."""
    rows: list[File] = []
    for path in paths:
        with reading(path):
            metadata, first = pq.read_metadata(path), 0
        for group in range(metadata.num_row_groups):
            count = metadata.row_group(group).num_rows
            if metadata.row_group(group).total_byte_size > GROUP_BYTES:
                size = f"has row groups of more than {GROUP_BYTES // 2**20} MB, too large to be read one at a time"
                raise UserError(f"{path} {size}; write it again with row_group_size=100")
            rows += [Row(str(path), column, group, row, first) for row in range(count)]
            first += count
    return rows


def look_up(paths: Sequence[Path], index: Index) -> Facts:
    """What is known of the rows: all, if the file has not changed since they were looked at."""
    found = []
    for path in paths:
        state, count = path.stat(), pq.read_metadata(path).num_rows
        known, times = index.known(path.name), (state.st_mtime_ns for _ in range(count))
        facts = Facts.unknown(path.name, state.st_mtime_ns, [""] * count, (0 for _ in range(count)), times)
        if known is not None and len(known.names) == count and (known.times == facts.times).all():
            facts = known
        found.append(facts)
    return Facts.join(found)


def name_in(paths: Sequence[Path]) -> Callable[[int], str]:
    def name(index: int) -> str:
        for path in paths:
            num_rows = pq.read_metadata(path).num_rows
            if index < num_rows:
                break
            index -= num_rows
        return f"row {index} of {path}"

    return name


def num_bytes(path: Path) -> int:
    with reading(path):
        metadata = pq.read_metadata(path)
    return sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
