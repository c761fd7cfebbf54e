"""Arrays of numbers as images or vectors: which arrays are allowed, and what their values mean."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


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
            vectors = [array.astype(np.float32) for array in arrays]
        if not all(np.isfinite(array).all() for array in vectors):
            raise ValueError("vectors must be finite, got NaN or infinity")
        return vectors
    low = min(float(array.min(initial=0)) for array in arrays)
    high = max(float(array.max(initial=0)) for array in arrays)
    if not 0 <= low <= high <= 255:
        raise ValueError(f"pixels must lie in 0..255, or in 0..1 for floats, got {low:g}..{high:g}")
    if first.dtype == np.uint8:
        return list(arrays)
    scale = np.float32(255 if first.dtype.kind in "bf" and high <= 1 else 1)
    return [np.rint(array * scale).astype(np.uint8) for array in arrays]
