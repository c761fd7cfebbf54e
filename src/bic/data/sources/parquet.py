"""Parquet files in the layout of Hugging Face: train-*.parquet and test-*.parquet."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from bic.data.class_choice import Wanted
from bic.data.image_files import File, Row, image_bytes, reading
from bic.data.images import Dataset, Indices, Labels
from bic.data.index import Facts, Index
from bic.data.labels import number_labels
from bic.data.parquet_files import column_pieces, metadata_of
from bic.data.reader import Part, Reader
from bic.errors import UserError, unknown
from bic.foreign_files import parse_json

TEST_SPLITS = ("test", "validation", "val")
ENCODED_IN_MEMORY = 2**30  # bytes of all images; larger sets are read when they are used
GROUP_BYTES = 2**29  # the largest row group that is read as a whole

USUAL_LABELS = ("fine_label", "label")
# How pyarrow writes the types of columns.
IMAGE_TYPES = re.compile(r"(large_)?binary|struct<(.*, )?bytes: .*>")
LABEL_TYPES = re.compile(r"u?int\d+|(large_)?string|dictionary<.*>")


class Columns(NamedTuple):
    """The columns of images and labels, and the class names if the file has them.

    `image` is a column of bytes, or a field of one, such as `image.bytes`.
    """

    image: str
    label: str
    class_names: list[str] | None


def open_parquet(
    path: Path, name: str, label: str | None, wanted: Wanted, reader: Reader
) -> Dataset:
    """The images of a folder of shards. A single file stands for its folder."""
    folder = path.parent if path.is_file() else path
    train = find_shards(folder, "train")
    tests = [shards for shards in (find_shards(folder, split) for split in TEST_SPLITS) if shards]
    if not train or not tests:
        missing = "test" if train else "train"
        problem = f"{folder} has no {missing} images"
        raise UserError(problem, f"name the files {missing}-*.parquet")
    columns = find_columns(train[0], label)
    test, test_labels = find_labelled(tests, columns.label)
    if find_columns(test[0], columns.label) != columns:
        problem = f"{train[0]} and {test[0]} have different columns or class names"
        raise UserError(problem, "write both files with the same columns and names")
    train_labels = read_column(train, columns.label)
    known, y_train, y_test = number_labels(train_labels, test_labels, columns.class_names)
    classes = wanted.of(known, folder)
    index = Index(reader.cache, folder)
    read_lazily = reader.keep_files or sum(map(num_bytes, (*train, *test))) > ENCODED_IN_MEMORY
    parts = []
    for title, shards, all_labels in (("train", train, y_train), ("test", test, y_test)):
        labels, chosen = renumber(all_labels, known, classes)
        files = list_rows(shards, columns.image) if read_lazily else read_images(shards, columns)
        facts = known_facts(shards, index)
        parts.append(Part(title, files, labels, name_in(shards), facts, chosen))
    return reader.read(name, classes, parts, index=index, keep_own_size=True)


def find_shards(folder: Path, split: str) -> list[Path]:
    """The files of a split: SPLIT-*.parquet here or in data/, or all files in SPLIT/."""
    for pattern in (f"{split}[-.]*parquet", f"data/{split}[-.]*parquet", f"{split}/*.parquet"):
        shards = sorted(folder.glob(pattern))
        if shards:
            return shards
    return []


def find_labelled(splits: Sequence[list[Path]], label: str) -> tuple[list[Path], list[Any]]:
    """The first split with labels, or else the first split; and its labels.

    The labels of a hidden test set are all -1.
    """
    labels_by_split = []
    for shards in splits:
        labels = read_column(shards, find_columns(shards[0], label).label)
        labels_by_split.append(labels)
    for shards, labels in zip(splits, labels_by_split, strict=True):
        if set(labels) - {None, -1}:
            return shards, labels
    return splits[0], labels_by_split[0]


def renumber(
    labels: Labels, known: Sequence[str], classes: Sequence[str]
) -> tuple[Labels, Indices | None]:
    """Labels as positions in `classes`, and the rows to use; None: all.

    Rows of other classes are left out. Rows without a label are kept, to be reported as errors.
    """
    if len(known) == len(classes):
        return labels, None
    position = {name: label for label, name in enumerate(classes)}
    new_label = [position.get(name, -2) for name in known]
    new_label.append(-1)  # at index -1, which stands for a missing label
    new_labels = np.array(new_label, dtype=np.int64)[labels]
    return new_labels, np.flatnonzero(new_labels > -2)


def find_columns(path: Path, label: str | None) -> Columns:
    """The columns of a file. `label` names the label column if there is more than one.

    Raises UserError if a column is missing or `label` is needed.
    """
    with reading(path):
        schema = metadata_of(path).schema.to_arrow_schema()
    twice = {name for name, count in Counter(schema.names).items() if count > 1}
    if twice:
        raise UserError(f"{path} has two columns named {min(twice)}", "rename one of them")
    images = [field.name for field in schema if IMAGE_TYPES.fullmatch(str(field.type))]
    labels = [field.name for field in schema if LABEL_TYPES.fullmatch(str(field.type))]
    if not images or not labels:
        missing = "image bytes" if not images else "integer or string labels"
        problem = f"{path} has no column of {missing}, only {', '.join(schema.names)}"
        raise UserError(problem, "add one")
    if label is None:
        label = usual_label(labels, path)
    if label not in labels:
        raise unknown(f"label column of {path}", label, labels)
    image = images[0]
    if str(schema.field(image).type).startswith("struct"):
        image = f"{image}.bytes"
    return Columns(image, label, class_names(schema, label, path))


def class_names(schema: pa.Schema, label: str, path: Path) -> list[str] | None:
    """The names that Hugging Face's description of the file has for a label column."""
    with reading(path):
        found = parse_json((schema.metadata or {}).get(b"huggingface", b"{}"))
        for key in ("info", "features", label, "names"):
            if not isinstance(found, dict):
                raise ValueError(f"its description has no table in place of {key}")
            found = found.get(key, {})
        if not found:
            return None
        if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
            raise ValueError(f"the class names of {label} are not a list of text")
        return found


def usual_label(labels: Sequence[str], path: Path) -> str:
    """The label column if the user names none."""
    if len(labels) == 1:
        return labels[0]
    for name in USUAL_LABELS:
        if name in labels:
            return name
    raise UserError(
        f"{path} has several columns that could be labels",
        f"set {{label}} to {' or '.join(labels)}",
    )


def read_column(paths: Sequence[Path], name: str) -> list[Any]:
    values: list[Any] = []
    for path in paths:
        with reading(path):
            for piece in column_pieces(path, name):
                values += piece.to_pylist()
    return values


def read_images(paths: Sequence[Path], columns: Columns) -> list[File]:
    return [image_bytes(cell) for cell in read_column(paths, columns.image)]


def list_rows(paths: Sequence[Path], column: str) -> list[File]:
    """Every row of the shards, to be read when it is used."""
    rows: list[File] = []
    for path in paths:
        with reading(path):
            metadata = metadata_of(path)
        first = 0
        for group in range(metadata.num_row_groups):
            group_metadata = metadata.row_group(group)
            if group_metadata.total_byte_size > GROUP_BYTES:
                limit = f"{GROUP_BYTES // 2**20} MB"
                problem = (
                    f"{path} has row groups of more than {limit}, too large to read as a whole"
                )
                raise UserError(problem, "write it again with row_group_size=100")
            num_rows = group_metadata.num_rows
            rows += [Row(str(path), column, group, row, first) for row in range(num_rows)]
            first += num_rows
    return rows


def known_facts(paths: Sequence[Path], index: Index) -> Facts:
    """What the index knows about the rows: everything, unless the file has changed."""
    parts = []
    for path in paths:
        with reading(path):
            time = path.stat().st_mtime_ns
            num_rows = metadata_of(path).num_rows
        names = [""] * num_rows
        facts = Facts.unknown(path.name, time, names, [0] * num_rows, [time] * num_rows)
        known = index.known(path.name)
        if known is not None and np.array_equal(known.times, facts.times):
            facts = known
        parts.append(facts)
    return Facts.join(parts)


def name_in(paths: Sequence[Path]) -> Callable[[int], str]:
    """A function that names an image by row and file, from its number among all shards."""

    def name(index: int) -> str:
        for path in paths:
            num_rows = metadata_of(path).num_rows
            if index < num_rows:
                break
            index -= num_rows
        return f"row {index} of {path}"

    return name


def num_bytes(path: Path) -> int:
    with reading(path):
        metadata = metadata_of(path)
    groups = range(metadata.num_row_groups)
    return sum(metadata.row_group(group).total_byte_size for group in groups)
