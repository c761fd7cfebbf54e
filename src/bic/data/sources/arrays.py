"""Arrays in an .npz file: x_train, y_train, x_test, y_test and, optionally, classes."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bic.data.array_images import Array, as_images, check_images
from bic.data.image_files import reading
from bic.data.images import Dataset, array_set
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
