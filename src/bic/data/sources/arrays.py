"""Arrays in an .npz file: x_train, y_train, x_test, y_test and, optionally, classes."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bic.data.array_images import Array, as_images, check_images
from bic.data.image_files import reading
from bic.data.images import Dataset, Labels, array_set
from bic.data.labels import number_labels
from bic.errors import UserError
from bic.npz import NpzFile, open_npz_file

REQUIRED = ("x_train", "y_train", "x_test", "y_test")
LABEL_BYTES = 100  # of one label, in lists and sets


def open_npz(path: Path, name: str) -> Dataset:
    """Images [n, h, w], [n, h, w, 1 or 3] or vectors [n, dim], with integer or string labels."""
    with reading(path), open_npz_file(path) as file:
        keys = [key for key in (*REQUIRED, "classes") if key in file.headers]
        check_claims(path, file, keys)
        arrays = {key: file.read(key) for key in keys}
    try:
        x_train, x_test = as_images([arrays["x_train"], arrays["x_test"]])
        names = arrays["classes"].astype(str).tolist() if "classes" in arrays else None
    except ValueError as error:
        raise UserError(f"{path}: {error}", "fix the arrays and save them again") from error
    classes, y_train, y_test = number_labels(
        arrays["y_train"].tolist(), arrays["y_test"].tolist(), names
    )
    train = array_set(x_train, y_train)
    test = array_set(x_test, y_test)
    return Dataset(name=name, classes=classes, train=train, test=test)


class LabelledArrays(NamedTuple):
    """Images or vectors, labels as positions in `classes` (−1: no class), and class names."""

    images: Array
    labels: Labels
    classes: tuple[str, ...]


def read_labelled_npz(path: Path, split: str) -> LabelledArrays:
    """The arrays x_SPLIT and y_SPLIT, or x and y; `classes` names integer labels.

    Raises UserError for arrays that are missing, do not fit, or take too much memory.
    """
    with reading(path), open_npz_file(path) as file:
        ending = f"_{split}" if f"x_{split}" in file.headers else ""
        pixels = f"x{ending}"
        values = f"y{ending}"
        for key in (pixels, values):
            if key not in file.headers:
                raise UserError(f"{path} has no array {key}", "add it with numpy.savez")
        keys = [key for key in (pixels, values, "classes") if key in file.headers]
        claimed = {key: file.headers[key].stand_in() for key in keys}
        try:
            check_labelled(claimed[pixels], claimed[values], claimed.get("classes"))
        except ValueError as error:
            raise UserError(f"{path}: {error}", "fix the arrays and save them again") from error
        file.refuse_size(sum(extra_bytes(array) for array in claimed.values()))
        arrays = {key: file.read(key) for key in keys}
    try:
        (images,) = as_images([arrays[pixels]])
        names = arrays["classes"].astype(str).tolist() if "classes" in arrays else None
    except ValueError as error:
        raise UserError(f"{path}: {error}", "fix the arrays and save them again") from error
    classes, labels, _ = number_labels(arrays[values].tolist(), (), names)
    return LabelledArrays(images, labels, classes)


def check_labelled(images: Array, labels: Array, classes: Array | None) -> None:
    """Raise ValueError unless there is one integer or text for each image."""
    check_images(images, f"{images.dtype} {list(images.shape)}")
    if labels.shape != (len(images),) or labels.dtype.kind not in "iuU":
        given = f"{labels.dtype} {list(labels.shape)} for {len(images):,} images"
        raise ValueError(f"there must be one integer or string per image, got {given}")
    if classes is not None and classes.ndim != 1:
        raise ValueError(f"classes must be a list of names, got {list(classes.shape)}")


def check_claims(path: Path, file: NpzFile, keys: Sequence[str]) -> None:
    """Raise UserError for arrays that are missing, do not fit, or take too much memory.

    Only their headers are read.
    """
    missing = [key for key in REQUIRED if key not in keys]
    if missing:
        problem = f"{path} has no array {', '.join(missing)}"
        raise UserError(problem, "add what is missing with numpy.savez")
    claimed = {key: file.headers[key].stand_in() for key in keys}
    try:
        check(claimed)
    except ValueError as error:
        raise UserError(f"{path}: {error}", "fix the arrays and save them again") from error
    file.refuse_size(sum(extra_bytes(array) for array in claimed.values()))


def extra_bytes(array: Array) -> int:
    """The memory that an array takes when it is used, beside its own."""
    if array.ndim == 1:  # labels and names become Python objects
        return array.size * (LABEL_BYTES + array.dtype.itemsize)
    if array.ndim == 2:  # vectors become float32
        return 0 if array.dtype == np.float32 else 4 * array.size
    return 0 if array.dtype == np.uint8 else array.size


def check(arrays: dict[str, Array]) -> None:
    """Raise ValueError unless the arrays have known types and shapes that fit each other."""
    given = ", ".join(f"{key} {array.dtype} {list(array.shape)}" for key, array in arrays.items())
    train = arrays["x_train"]
    test = arrays["x_test"]
    check_images(train, given)
    if test.shape[1:] != train.shape[1:] or test.dtype != train.dtype:
        raise ValueError(f"x_train and x_test must be of one size and type, got {given}")
    y_train = arrays["y_train"]
    y_test = arrays["y_test"]
    if y_train.shape != (len(train),) or y_test.shape != (len(test),):
        raise ValueError(f"there must be one label per image, got {given}")
    kinds = {y_train.dtype.kind, y_test.dtype.kind}
    if kinds != {"U"} and not kinds <= {"i", "u"}:
        raise ValueError(f"labels must be integers or strings, got {given}")
    if "classes" in arrays and arrays["classes"].ndim != 1:
        raise ValueError(f"classes must be a list of names, got {given}")
