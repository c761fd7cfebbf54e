"""Arrays in an .npz file: x_train, y_train, x_test, y_test and, if wished, classes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from bic.data.images import Dataset, ImageSet, array_set, number_labels, reading
from bic.errors import UserError

Array = npt.NDArray[Any]

REQUIRED = ("x_train", "y_train", "x_test", "y_test")


def open_npz(path: Path, name: str) -> Dataset:
    """Images [n, h, w], [n, h, w, 1 or 3] or vectors [n, dim], with integer or string labels."""
    # Opened here, because numpy leaves a file that it can't read open.
    with reading(path), path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
        found = {key: file[key] for key in (*REQUIRED, "classes") if key in file}
    try:
        check(found, path)
        x_train, x_test = as_images(found["x_train"], found["x_test"])
        names = found["classes"].astype(str).tolist() if "classes" in found else None
        classes, y_train, y_test = number_labels(found["y_train"].tolist(), found["y_test"].tolist(), names)
    except ValueError as problem:
        raise UserError(f"{path}: {problem}; mend the arrays and save them again") from problem
    train, test = array_set(x_train, y_train), array_set(x_test, y_test)
    return Dataset(name=name, classes=classes, train=train, test=test)


def check(found: dict[str, Array], path: Path) -> None:
    """Raise UserError or ValueError unless the arrays are there, of known types and shapes, and fit each other."""
    if missing := [key for key in REQUIRED if key not in found]:
        raise UserError(f"{path} has no array {', '.join(missing)}; add what is missing with numpy.savez")
    given = ", ".join(f"{key} {array.dtype} {list(array.shape)}" for key, array in found.items())
    train, test = found["x_train"], found["x_test"]
    shape = train.shape[1:]
    known = len(shape) in (1, 2) or (len(shape) == 3 and shape[2] in (1, 3))
    if not known or 0 in shape or train.dtype.kind not in "buif":
        raise ValueError(f"images must be numbers [n, h, w], [n, h, w, 1 or 3] or [n, dim], got {given}")
    if (test.shape[1:], test.dtype) != (shape, train.dtype):
        raise ValueError(f"x_train and x_test must be of one size and type, got {given}")
    labels = [found["y_train"], found["y_test"]]
    if [array.shape for array in labels] != [(len(train),), (len(test),)]:
        raise ValueError(f"there must be one label an image, got {given}")
    kinds = {array.dtype.kind for array in labels}
    if kinds != {"U"} and not kinds <= {"i", "u"}:
        raise ValueError(f"labels must be integers or strings, got {given}")


def as_images(train: Array, test: Array) -> list[Array]:
    """Both as uint8 images or as float32 vectors; what floats mean is decided for both at once."""
    both = [train, test]
    if train.ndim == 2:
        with np.errstate(over="ignore"):
            both = [each.astype(np.float32) for each in both]
        if not all(np.isfinite(each).all() for each in both):
            raise ValueError("vectors must be finite, got NaN or infinity")
        return both
    low = min(float(each.min(initial=0)) for each in both)
    high = max(float(each.max(initial=0)) for each in both)
    if not 0 <= low <= high <= 255:
        raise ValueError(f"pixels must lie in 0..255, or in 0..1 for floats, got {low:g}..{high:g}")
    if train.dtype == np.uint8:
        return both
    scale = np.float32(255 if train.dtype.kind in "bf" and high <= 1 else 1)
    return [np.rint(each * scale).astype(np.uint8) for each in both]


def resized(images: ImageSet, size: int) -> ImageSet:
    """The set with its pixels brought to [size, size], cut in the middle if not square."""
    pixels = images.pixels
    assert pixels is not None
    if pixels.ndim == 2:
        raise UserError("vectors have no image size; leave out recipe.image_size")
    if pixels.shape[2:] == (size, size):
        return images
    scale = size / min(pixels.shape[2:])
    height, width = (max(size, round(side * scale)) for side in pixels.shape[2:])
    top, left = (height - size) // 2, (width - size) // 2
    whole = F.interpolate(pixels, size=(height, width), mode="bilinear", antialias=True)
    square = whole[:, :, top : top + size, left : left + size].contiguous(memory_format=torch.channels_last)
    return replace(images, pixels=square, view=replace(images.view, size=size))
