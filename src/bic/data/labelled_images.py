"""Labelled images to test a model on: class folders, Parquet files or an .npz file."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bic.data.decode import is_image
from bic.data.fitting import fitted
from bic.data.image_files import File, reading
from bic.data.images import ImageSet, Labels, array_set
from bic.data.labels import number_labels
from bic.data.preprocessing import Preprocessing
from bic.data.sources.arrays import read_labelled_npz
from bic.data.sources.parquet import find_columns, find_shards, list_rows, read_column
from bic.errors import UserError

ZIP = b"PK"
PARQUET = b"PAR1"
LAYOUTS = "a folder with one folder per class, Parquet files, or an .npz file"
TEST_SPLITS = ("test", "val", "validation")


class LabelledImages(NamedTuple):
    """Images and their classes. The labels of the images are positions in `classes`."""

    images: ImageSet
    classes: tuple[str, ...]


def open_labelled_images(
    path: Path, preprocessing: Preprocessing, *, label: str | None = None, skip_bad: bool = False
) -> LabelledImages:
    """The labelled images at `path`, for a model with this preprocessing.

    If the path holds training and test images, the test images are used. `label` names the label
    column of Parquet files. Files are decoded when they are used. Raises UserError for images that
    cannot be found or used.
    """
    if not path.exists():
        raise UserError(f"{path} does not exist", f"give {LAYOUTS}")
    start = b""
    if path.is_file():
        with reading(path), path.open("rb") as file:
            start = file.read(4)
    shards = [path] if start == PARQUET else _shards(path)
    if shards:
        files, labels, classes = _from_parquet(shards, label)
    elif start.startswith(ZIP):
        return _from_npz(path, preprocessing)
    elif path.is_dir():
        files, labels, classes = _from_folders(path)
    else:
        raise UserError(f"{path} is not in a format that bic can read", f"give {LAYOUTS}")
    images = ImageSet(labels=labels, preprocessing=preprocessing, files=files, skip_bad=skip_bad)
    return LabelledImages(images, classes)


def _shards(folder: Path) -> list[Path]:
    """The Parquet files of the test images in a folder, or all of its Parquet files."""
    for split in TEST_SPLITS:
        shards = find_shards(folder, split)
        if shards:
            return shards
    return sorted(folder.glob("*.parquet"))


def _from_folders(path: Path) -> tuple[list[File], Labels, tuple[str, ...]]:
    if (path / "train").is_dir():
        for split in TEST_SPLITS:
            if (path / split).is_dir():
                path = path / split
                break
    files: list[File] = []
    labels: list[int] = []
    classes: list[str] = []
    for folder in sorted(place for place in path.iterdir() if place.is_dir()):
        if folder.name.startswith("."):
            continue
        found = [file for file in folder.iterdir() if is_image(file.name) and file.is_file()]
        if found:
            labels += [len(classes)] * len(found)
            classes.append(folder.name)
            files += sorted(map(str, found))
    if not files:
        raise UserError(f"{path} has no folders with images", f"put some in {path}/CLASS/")
    return files, np.array(labels, dtype=np.int64), tuple(classes)


def _from_parquet(
    shards: Sequence[Path], label: str | None
) -> tuple[Sequence[File], Labels, tuple[str, ...]]:
    columns = find_columns(shards[0], label)
    values = read_column(shards, columns.label)
    classes, labels, _ = number_labels(values, (), columns.class_names)
    _check_labels(labels, classes, shards[0])
    return list_rows(shards, columns.image), labels, classes


def _from_npz(path: Path, preprocessing: Preprocessing) -> LabelledImages:
    """The arrays x_test and y_test, or x and y; `classes` names integer labels."""
    arrays = read_labelled_npz(path, "test")
    _check_labels(arrays.labels, arrays.classes, path)
    images = fitted(array_set(arrays.images, arrays.labels), preprocessing)
    return LabelledImages(images, arrays.classes)


def _check_labels(labels: Labels, classes: Sequence[str], path: Path) -> None:
    """Raise UserError unless there are images and all of them have a class."""
    if not len(labels):
        raise UserError(f"{path} has no images", f"give {LAYOUTS}")
    if not 0 <= labels.min() <= labels.max() < len(classes):
        row = int(np.flatnonzero((labels < 0) | (labels >= len(classes)))[0])
        raise UserError(f"row {row} of {path} has no label", "remove it, or give it a label")
