"""ImageSets from plain Python values: arrays, tensors, PIL images and paths."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from bic.data.array_images import Array, as_images, check_images
from bic.data.decode import FORMATS, GREY_MODES, plain_image
from bic.data.decode_files import Decode, decode_files, reason_of
from bic.data.decode_jpeg import Pixels
from bic.data.fitting import fitted, holds_vectors, refuse_vectors, resized
from bic.data.images import PIXELS_IN_MEMORY, ImageSet, Labels, array_set, encode
from bic.data.preprocessing import DEFAULT_SIZE, Preprocessing
from bic.errors import UserError
from bic.foreign_files import open_regular_file

Images = ImageSet | Array | Tensor | Sequence[Image.Image] | Sequence[str | Path]

REMEDY = "pass an array of numbers, a list of PIL images or a list of paths"


def as_image_set(
    images: Images,
    *,
    image_size: int | None = None,
    resize: int | None = None,
    labels: Labels | None = None,
) -> ImageSet:
    """An ImageSet of an array, a tensor, PIL images or paths. An ImageSet is returned as it is.

    Arrays and tensors are [n, h, w], [n, h, w, 1 or 3] or vectors [n, dim]; pixels are integers in
    0..255 or floats in 0..1 or 0..255. Images are brought to `image_size`: the shorter side is
    scaled to `resize`, by default to `image_size`, and the central square is cut out. Without
    `image_size` arrays and PIL images of one size keep it, and all others get 64. `labels` are
    int64 [n], by default zeros.

    Paths are opened here to see whether they are images, and decoded when they are used. Raises
    UserError for anything else, and for images that cannot be read.
    """
    image_set = _image_set(images, image_size, resize)
    if image_size is not None and not isinstance(images, ImageSet):
        refuse_vectors(image_set)
    if labels is None:
        return image_set
    if len(labels) != len(image_set):
        problem = f"there must be one label per image, got {len(labels):,} for {len(image_set):,}"
        raise UserError(problem, "pass one label per image")
    return replace(image_set, labels=labels)


def as_model_input(images: Images, preprocessing: Preprocessing) -> ImageSet:
    """An ImageSet of any kind of images, converted for a model with this preprocessing.

    Raises UserError as `as_image_set` and `fitted` do.
    """
    image_set = _image_set(images, preprocessing.size, preprocessing.resize)
    return fitted(image_set, preprocessing)


def in_memory(images: ImageSet, *, decode: Decode = decode_files) -> ImageSet:
    """The set with its files decoded once and for all, unless the pixels need too much memory.

    With `skip_bad`, the result has only the readable images. Raises UserError as `decode` does.
    """
    size = images.preprocessing.size
    if images.pixels is not None or size is None:
        return images
    if len(images) * images.preprocessing.channels * size**2 > PIXELS_IN_MEMORY:
        return images
    pixels, readable = images.take_readable(images.everything, decode=decode)
    readable_images = images if len(readable) == len(images) else images.select(readable)
    return replace(readable_images, pixels=pixels)


def _image_set(images: Any, image_size: int | None, resize: int | None) -> ImageSet:
    """As `as_image_set`, but vectors stay vectors whatever the `image_size`."""
    if isinstance(images, ImageSet):
        return images
    if isinstance(images, str | os.PathLike | Image.Image):
        problem = f"images must be an array or a list, got a single {type(images).__name__}"
        raise UserError(problem, "put it in a list")
    if isinstance(images, Tensor | np.ndarray):
        return _from_array(_as_array(images), image_size, resize)
    if not isinstance(images, Iterable):
        raise UserError(f"images must be an array or a list, got {type(images).__name__}", REMEDY)
    items = list(images)
    if not items:
        raise UserError("there are no images", REMEDY)
    if all(isinstance(item, Image.Image) for item in items):
        return _from_pillow(items, image_size, resize)
    if all(isinstance(item, str | os.PathLike) for item in items):
        return _from_paths([os.fsdecode(item) for item in items], image_size, resize)
    return _from_array(_as_array(items), image_size, resize)


def _as_array(images: Any) -> Array:
    """An array of a tensor, of numbers in lists, or of a list of arrays or tensors."""
    try:
        if isinstance(images, list) and any(isinstance(item, Tensor) for item in images):
            images = torch.stack(images)
        if isinstance(images, Tensor):
            images = images.detach().cpu()
            if images.dtype == torch.bfloat16:  # numpy has no such type
                images = images.float()
            images = images.numpy()
        array: Array = np.asarray(images)
        return array
    except (TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        problem = f"images must be an array of numbers, or a list of one kind of items ({reason})"
        raise UserError(problem, REMEDY) from error


def _from_array(array: Array, image_size: int | None, resize: int | None) -> ImageSet:
    try:
        check_images(array, f"{array.dtype} {list(array.shape)}")
        (values,) = as_images([array])
    except ValueError as error:
        raise UserError(str(error), "convert the array") from error
    if len(values) == 0:
        raise UserError(f"there are no images, got {array.dtype} {list(array.shape)}", REMEDY)
    if values is array:
        values = values.copy()  # the caller may write to its array later
    image_set = array_set(values, _zeros(len(values)))
    if image_size is None or holds_vectors(image_set):
        return image_set
    square = resized(image_set, image_size, resize)
    return replace(square, preprocessing=replace(square.preprocessing, resize=resize))


def _from_pillow(
    images: Sequence[Image.Image], image_size: int | None, resize: int | None
) -> ImageSet:
    """Scale images at once if the size is known. Otherwise keep them as they are, without loss."""
    channels = _num_channels({image.mode for image in images})
    labels = _zeros(len(images))
    if image_size is not None:
        preprocessing = Preprocessing(channels=channels, size=image_size, resize=resize)
        rows = [preprocessing.scale(pixels) for pixels in _pixels_of(images, channels)]
        square = torch.stack(rows).contiguous(memory_format=torch.channels_last)
        return ImageSet(labels=labels, preprocessing=preprocessing, pixels=square)
    arrays = list(_pixels_of(images, channels))
    if len({array.shape for array in arrays}) == 1:
        return array_set(np.stack(arrays), labels)
    files = [encode(torch.from_numpy(array).permute(2, 0, 1)) for array in arrays]
    preprocessing = Preprocessing(channels=channels, size=DEFAULT_SIZE, resize=resize)
    return ImageSet(labels=labels, preprocessing=preprocessing, files=files)


def _pixels_of(images: Sequence[Image.Image], channels: int) -> Iterator[Pixels]:
    """The pixels [height, width, channels] of PIL images. The images do not change."""
    for number, image in enumerate(images):
        try:
            upright = ImageOps.exif_transpose(image)  # a copy
            plain = plain_image(upright, channels)
        except Exception as error:  # Pillow's decoders raise almost anything
            problem = f"can't read image {number} ({reason_of(error)})"
            raise UserError(problem, "fix it, or leave it out") from error
        if 0 in plain.size:
            raise UserError(f"image {number} has no pixels", "leave it out")
        yield np.atleast_3d(np.array(plain, dtype=np.uint8))


def _from_paths(paths: Sequence[str], image_size: int | None, resize: int | None) -> ImageSet:
    modes: set[str] = set()
    for path in paths:
        try:
            with open_regular_file(path) as file, Image.open(file, formats=FORMATS) as image:
                modes.add(image.mode)
        except Exception as error:
            problem = f"can't read {path} ({reason_of(error)})"
            raise UserError(problem, "fix it, or leave it out") from error
    channels = _num_channels(modes)
    size = image_size or DEFAULT_SIZE
    preprocessing = Preprocessing(channels=channels, size=size, resize=resize)
    return ImageSet(labels=_zeros(len(paths)), preprocessing=preprocessing, files=paths)


def _num_channels(modes: set[str]) -> int:
    """Grey if all images are grey, as for the images of a folder."""
    return 1 if modes <= GREY_MODES else 3


def _zeros(count: int) -> Labels:
    return np.zeros(count, dtype=np.int64)
