"""Parquet files as Hugging Face lays them out: train-*.parquet and test-*.parquet."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bic.data.encoded import Part, Reader
from bic.data.images import Dataset, Labels, number_labels, reading
from bic.errors import UserError, unknown

USUAL_LABELS = ("fine_label", "label")
# As pyarrow calls the types of columns.
IMAGES = re.compile(r"(large_)?binary|struct<(.*, )?bytes: .*>")
LABELS = re.compile(r"u?int\d+|(large_)?string|dictionary<.*>")


def open_parquet(path: Path, name: str, label: str | None, reader: Reader) -> Dataset:
    """The images of a folder of shards; a single file stands for the folder it is in."""
    folder = path.parent if path.is_file() else path
    train, test = find_shards(folder, "train"), find_shards(folder, "test", "validation", "val")
    if not train or not test:
        missing = "test" if train else "train"
        raise UserError(f"{folder} has no {missing} images; name the files {missing}-*.parquet")
    image, label, names = find_columns(train[0], label)
    if find_columns(test[0], label) != (image, label, names):
        raise UserError(f"{train[0]} and {test[0]} have other columns or class names; write both alike")
    classes, y_train, y_test = number_labels(read_column(train, label), read_column(test, label), names)
    parts = [read_part("train", train, image, y_train), read_part("test", test, image, y_test)]
    return reader.read(name, classes, parts, keep_own_size=True)


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


def read_part(title: str, paths: Sequence[Path], column: str, labels: Labels) -> Part:
    rows = read_column(paths, column)
    files = [(row["bytes"] if isinstance(row, dict) else row) or b"" for row in rows]

    def name(index: int) -> str:
        for path in paths:
            num_rows = pq.read_metadata(path).num_rows
            if index < num_rows:
                break
            index -= num_rows
        return f"row {index} of {path}"

    return Part(title, files, labels, name)
