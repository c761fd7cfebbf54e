"""Arrays in an .npz file: x_train, y_train, x_test, y_test and, if wished, classes."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
import torch.nn.functional as F

from bic.data.images import Dataset, ImageSet, Labels, array_set
from bic.errors import UserError

Array = npt.NDArray[Any]

# What numpy and zipfile raise on a file that is damaged or holds Python objects.
UNREADABLE = (OSError, ValueError, EOFError, NotImplementedError, BadZipFile, zlib.error)
REQUIRED = ("x_train", "y_train", "x_test", "y_test")


def open_npz(path: Path, name: str) -> Dataset:
    """Images [n, h, w], [n, h, w, 1 or 3] or vectors [n, dim], with integer or string labels."""
    found = load(path)
    check_images(found["x_train"], found["x_test"], path)
    for part in ("train", "test"):
        num_images, num_labels = len(found[f"x_{part}"]), len(found[f"y_{part}"])
        if num_images != num_labels:
            raise UserError(
                f"x_{part} of {path} has {num_images} images but y_{part} {num_labels} labels; "
                "save one label an image"
            )
    x_train, x_test = as_images(found["x_train"], found["x_test"], path)
    classes, y_train, y_test = as_labels(found, path)
    return Dataset(
        name=name,
        classes=classes,
        train=array_set(x_train, y_train),
        test=array_set(x_test, y_test),
    )


def load(path: Path) -> dict[str, Array]:
    try:
        # Opened here, because numpy leaves a file that it can't read open.
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            missing = [key for key in REQUIRED if key not in file.files]
            if missing:
                raise UserError(
                    f"{path} has no {', '.join(missing)} (it has {', '.join(file.files)}); "
                    f"save it with numpy.savez and the names {', '.join(REQUIRED)}"
                )
            found = {key: file[key] for key in (*REQUIRED, "classes") if key in file.files}
    except UNREADABLE as problem:
        reason = " ".join(str(problem).split())
        raise UserError(f"can't read {path} ({reason}); save plain arrays again") from problem
    for key, array in found.items():
        if not key.startswith("x_") and array.ndim != 1:
            raise UserError(f"{key} of {path} must be [n], got shape {array.shape}; flatten it")
    return found


def check_images(train: Array, test: Array, path: Path) -> None:
    """Raise UserError unless both are numbers of the same kind in a shape that we know."""
    shape = train.shape[1:]
    known = len(shape) in (1, 2) or (len(shape) == 3 and shape[2] in (1, 3))
    if not known or 0 in shape:
        raise UserError(
            f"x_train of {path} must be [n, h, w], [n, h, w, 1], [n, h, w, 3] or [n, dim], "
            f"got shape {train.shape}; reorder its axes"
        )
    if (test.shape[1:], test.dtype) != (shape, train.dtype):
        raise UserError(
            f"x_train and x_test of {path} must be of one size and type, got {train.dtype} "
            f"{list(shape)} and {test.dtype} {list(test.shape[1:])}; convert one of them"
        )
    if train.dtype.kind not in "buif":
        raise UserError(f"images of {path} must be numbers, got {train.dtype}; convert them")


def as_images(train: Array, test: Array, path: Path) -> tuple[Array, Array]:
    """Both as uint8 images or as float32 vectors; what floats mean is decided for both at once."""
    if train.ndim == 2:
        return as_vectors(train, path), as_vectors(test, path)
    low = min(float(array.min(initial=0)) for array in (train, test))
    high = max(float(array.max(initial=0)) for array in (train, test))
    if not 0 <= low <= high <= 255:
        raise UserError(
            f"pixels of {path} must lie in 0..255, or in 0..1 for floats, got {low:g}..{high:g}; "
            "scale them before saving"
        )
    scale = 255 if train.dtype.kind in "bf" and high <= 1 else 1
    return as_bytes(train, scale), as_bytes(test, scale)


def as_vectors(array: Array, path: Path) -> Array:
    with np.errstate(over="ignore"):
        vectors = array.astype(np.float32)
    if not np.isfinite(vectors).all():
        raise UserError(f"vectors of {path} must be finite, got NaN or infinity; clean them first")
    return vectors


def as_bytes(array: Array, scale: int) -> Array:
    if array.dtype == np.uint8:
        return array
    return np.rint(array * np.float32(scale)).astype(np.uint8)


def as_labels(found: dict[str, Array], path: Path) -> tuple[tuple[str, ...], Labels, Labels]:
    """Class names, and the labels of train and test as positions in them."""
    train, test = found["y_train"], found["y_test"]
    kinds = {train.dtype.kind, test.dtype.kind}
    named = tuple(str(each) for each in found["classes"]) if "classes" in found else None
    if kinds == {"U"}:
        return number_names(train.tolist(), test.tolist(), named, path)
    if not kinds <= {"i", "u"}:
        raise UserError(
            f"labels of {path} must be integers or strings, got {train.dtype} in y_train and "
            f"{test.dtype} in y_test; convert them before saving"
        )
    used = np.union1d(train, test).tolist()
    if named is None and used != list(range(len(used))):
        raise UserError(
            f"labels of {path} must be 0, 1, 2, … without a gap, got {len(used)} of them in "
            f"{used[0]}..{used[-1]}; number the classes anew"
        )
    if named is not None and used and (used[0] < 0 or used[-1] != len(named) - 1):
        raise UserError(
            f"classes of {path} has {len(named)} names but labels run {used[0]}..{used[-1]}; "
            "give one name for each label from 0 on"
        )
    names = named or tuple(str(label) for label in used)
    return names, train.astype(np.int64), test.astype(np.int64)


def number_names(
    train: list[str], test: list[str], classes: tuple[str, ...] | None, path: Path
) -> tuple[tuple[str, ...], Labels, Labels]:
    names = classes or tuple(sorted({*train, *test}))
    position = {name: index for index, name in enumerate(names)}
    stray = sorted({*train, *test} - position.keys())
    if stray:
        raise UserError(f"label {stray[0]!r} of {path} is not in its classes; add it there")
    y_train, y_test = (np.array([position[name] for name in part]) for part in (train, test))
    return names, y_train, y_test


def resized(dataset: Dataset, size: int) -> Dataset:
    """The data set with its pixels brought to [size, size], cut in the middle if not square."""
    return replace(
        dataset, train=resize_set(dataset.train, size), test=resize_set(dataset.test, size)
    )


def resize_set(images: ImageSet, size: int) -> ImageSet:
    pixels = images.pixels
    assert pixels is not None
    if pixels.ndim == 2:
        raise UserError("vectors have no image size; leave out --image-size")
    if pixels.shape[2:] == (size, size):
        return images
    scale = size / min(pixels.shape[2:])
    height, width = (max(size, round(side * scale)) for side in pixels.shape[2:])
    top, left = (height - size) // 2, (width - size) // 2
    whole = F.interpolate(pixels, size=(height, width), mode="bilinear", antialias=True)
    square = whole[:, :, top : top + size, left : left + size].contiguous()
    return replace(images, pixels=square, view=replace(images.view, size=size))
