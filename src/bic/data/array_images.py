"""Arrays of numbers as images or vectors: which arrays are allowed, and what their values mean."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

PART_ITEMS = 2**22  # that are converted at once


def check_images(array: Array, description: str) -> None:
    """Raise ValueError unless the array has a type and a shape that images or vectors can have.

    The message ends with `description`, which says what was given.
    """
    shape = array.shape[1:]
    is_vector_or_grey = len(shape) in (1, 2)
    has_channels = len(shape) == 3 and shape[2] in (1, 3)
    is_number = array.dtype.kind in "buif"
    if not (is_vector_or_grey or has_channels) or 0 in shape or not is_number:
        allowed = "numbers [n, h, w], [n, h, w, 1 or 3] or [n, dim]"
        raise ValueError(f"images must be {allowed}, got {description}")


def as_images(arrays: Sequence[Array]) -> list[Array]:
    """Arrays of one shape and type as uint8 images, or as float32 vectors if they are [n, dim].

    Floats in 0..1 are scaled to 0..255 if all arrays stay within 0..1. Raises ValueError for pixels
    outside 0..255 and for vectors that are not finite.
    """
    first = arrays[0]
    if first.ndim == 2:
        with np.errstate(over="ignore"):
            vectors = [array.astype(np.float32, copy=False) for array in arrays]
        if not all(np.isfinite(part).all() for array in vectors for part in _parts(array)):
            raise ValueError("vectors must be finite, got NaN or infinity")
        return vectors
    low = min(float(array.min(initial=0)) for array in arrays)
    high = max(float(array.max(initial=0)) for array in arrays)
    if not 0 <= low <= high <= 255:
        raise ValueError(f"pixels must lie in 0..255, or in 0..1 for floats, got {low:g}..{high:g}")
    if first.dtype == np.uint8:
        return list(arrays)
    scale = np.float32(255 if first.dtype.kind in "bf" and high <= 1 else 1)
    return [_as_bytes(array, scale) for array in arrays]


def _as_bytes(array: Array, scale: np.float32) -> Array:
    """The array times `scale`, rounded. Only a part of it is ever in memory as floats."""
    pixels = np.empty(array.shape, dtype=np.uint8)
    start = 0
    for part in _parts(array):
        pixels[start : start + len(part)] = np.rint(part * scale)
        start += len(part)
    return pixels


def _parts(array: Array) -> Iterator[Array]:
    """The array in pieces of some rows, together about 16 MB each as floats."""
    num_rows = max(1, PART_ITEMS // max(1, array[:1].size))
    for start in range(0, len(array), num_rows):
        yield array[start : start + num_rows]
