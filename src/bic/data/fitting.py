"""Bring images to the size and the channels that a model takes."""

from dataclasses import replace

import torch
from torch import Tensor

from bic.data.images import ImageSet
from bic.data.preprocessing import Preprocessing
from bic.errors import UserError

# Pillow's weights of red, green and blue when it converts to grey (ITU-R 601), in 1/65536.
LUMA = (19595, 38470, 7471)
ENLARGED_BYTES = 2**28  # of enlarged images; more than that are enlarged each time they are used
SCALED_BYTES = 2**26  # of images that are scaled at once, before they are cut
MAX_RATIO = 100  # of the longer side to the shorter one: what is cut away is scaled too


def resized(images: ImageSet, size: int, resize: int | None = None) -> ImageSet:
    """The set with its pixels [n, channels, size, size]: scaled, and cut to the central square.

    The shorter side is scaled to `resize`, by default to `size`. Raises UserError for vectors, and
    for images that are too long.
    """
    refuse_vectors(images)
    pixels = images.pixels
    assert pixels is not None
    if pixels.shape[2:] == (size, size):
        return images
    shorter, longer = sorted(pixels.shape[2:])
    if longer > MAX_RATIO * shorter:
        shape = " × ".join(f"{side:,}" for side in pixels.shape[2:])
        raise UserError(
            f"images of {shape} pixels are too long to become squares", "cut them to squares first"
        )
    scale = (resize or size) / shorter
    height, width = (max(size, round(side * scale)) for side in pixels.shape[2:])
    top = (height - size) // 2
    left = (width - size) // 2
    squares = []
    at_once = max(1, SCALED_BYTES // (pixels.shape[1] * height * width))
    for some in torch.split(pixels, at_once):
        scaled = images.preprocessing.interpolated(some, (height, width))
        squares.append(scaled[:, :, top : top + size, left : left + size].clone())
    square = torch.cat(squares).contiguous(memory_format=torch.channels_last)
    return replace(images, pixels=square, preprocessing=replace(images.preprocessing, size=size))


def refuse_vectors(images: ImageSet) -> None:
    """Raise UserError for vectors: they cannot be brought to a size."""
    if holds_vectors(images):
        raise UserError("vectors have no image size", "leave out {recipe.image_size}")


def holds_vectors(images: ImageSet) -> bool:
    if images.pixels is not None:
        return images.pixels.ndim == 2
    return images.preprocessing.size is None


def fitted(images: ImageSet, preprocessing: Preprocessing) -> ImageSet:
    """The images, converted for a model with this preprocessing.

    Files are decoded in this way from now on. Pixels in memory are converted between grey and
    RGB and, if they have another size, scaled. Raises UserError for vectors of another dimension,
    and for images if the model takes vectors or the other way round.
    """
    are_vectors = holds_vectors(images)
    if preprocessing.size is None:
        if not are_vectors or images.preprocessing.channels != preprocessing.channels:
            wanted = f"vectors of {preprocessing.channels:,} numbers"
            raise _other_kind(images, wanted)
        return images
    if are_vectors:
        raise _other_kind(images, "images")
    if images.preprocessing == preprocessing:
        return images
    images = replace(images, features=None)
    if images.files is not None:
        return replace(images, preprocessing=preprocessing, pixels=None)
    assert images.pixels is not None
    if _is_completed_later(images.pixels, preprocessing):
        return replace(images, preprocessing=preprocessing)
    pixels = _with_channels(images.pixels, preprocessing.channels)
    own = replace(images.preprocessing, bicubic=preprocessing.bicubic)
    converted = replace(images, pixels=pixels, preprocessing=own)
    square = resized(converted, preprocessing.size, preprocessing.resize)
    return replace(square, preprocessing=preprocessing)


def _is_completed_later(pixels: Tensor, preprocessing: Preprocessing) -> bool:
    """Whether images stay grey and small in memory, because enlarged ones would be too large."""
    count, channels, height, width = pixels.shape
    size = preprocessing.size or 0
    num_bytes = count * preprocessing.channels * size**2
    fits = height == width <= size and channels <= preprocessing.channels
    return fits and num_bytes > ENLARGED_BYTES and preprocessing.resize in (None, size)


def _other_kind(images: ImageSet, wanted: str) -> UserError:
    """The error for vectors or images that a model cannot take."""
    given = "images"
    if holds_vectors(images):
        given = f"vectors of {images.preprocessing.channels:,} numbers"
    problem = f"the model takes {wanted}, got {given}"
    return UserError(problem, "pass the kind of data that the model has learned from")


def _with_channels(pixels: Tensor, channels: int) -> Tensor:
    """Pixels [n, 1 or 3, h, w] uint8 as grey or RGB, channels last."""
    if pixels.shape[1] == channels:
        return pixels
    if channels == 3:
        return pixels.expand(-1, 3, -1, -1).contiguous(memory_format=torch.channels_last)
    weights = torch.tensor(LUMA, dtype=torch.int32).view(1, 3, 1, 1)
    rounded = (pixels.int() * weights).sum(dim=1, keepdim=True) + 2**15
    return (rounded >> 16).to(torch.uint8).contiguous(memory_format=torch.channels_last)
