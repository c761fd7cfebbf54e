"""ImageSet: labelled images, whatever they were read from."""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageOps
from torch import Tensor

from bic.errors import UserError

Labels = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int64]

GREY_MODES = {"1", "L", "LA", "I", "I;16", "I;16B", "F"}
# Pillow knows more formats, but some of those run other programs (EPS) or are rarely looked at.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")


@dataclass(frozen=True, kw_only=True)
class View:
    """How an encoded image becomes pixels: grey or RGB, shorter side to `resize`, centre `size`.

    `size=None` keeps the image as it is.
    """

    channels: int
    size: int | None = None
    resize: int | None = None

    def decode(self, encoded: bytes) -> Tensor:
        """Pixels, uint8 [channels, size, size]; a vector saved as .npy comes back as it was."""
        if encoded.startswith(b"\x93NUMPY"):
            return torch.from_numpy(np.load(io.BytesIO(encoded), allow_pickle=False))
        image = open_image(encoded, channels=self.channels)
        if self.size is not None:
            image = resize_shorter(image, self.resize or self.size)
            image = centre_crop(image, self.size)
        return to_pixels(image)


def open_image(encoded: bytes, *, channels: int) -> Image.Image:
    """Decode the first frame, upright; whatever its mode, it becomes plain grey or RGB.

    What is transparent shows white, as on a page; 16-bit grey is scaled to 8 bits.
    """
    image: Image.Image = Image.open(io.BytesIO(encoded), formats=FORMATS)
    ImageOps.exif_transpose(image, in_place=True)
    if image.mode.startswith("I"):
        deep = np.clip(np.asarray(image), 0, 65535).astype(np.uint32)
        image = Image.fromarray(((deep + 128) // 257).astype(np.uint8))
    if "A" in image.getbands() or "transparency" in image.info:
        page = Image.new("RGBA", image.size, "white")
        page.alpha_composite(image.convert("RGBA"))
        image = page
    mode = "L" if channels == 1 else "RGB"
    return image if image.mode == mode else image.convert(mode)


def resize_shorter(image: Image.Image, side: int) -> Image.Image:
    """Bring the shorter side to `side`, keeping the aspect."""
    if min(image.size) == side:
        return image
    scale = side / min(image.size)
    width, height = (max(side, round(length * scale)) for length in image.size)
    return image.resize((width, height), Image.Resampling.BILINEAR)


def centre_crop(image: Image.Image, side: int) -> Image.Image:
    if image.size == (side, side):
        return image
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return image.crop((left, top, left + side, top + side))


def to_pixels(image: Image.Image) -> Tensor:
    """uint8 [channels, height, width]."""
    pixels = np.array(image, dtype=np.uint8)
    channels_first = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return torch.from_numpy(np.ascontiguousarray(channels_first))


def encode(pixels: Tensor) -> bytes:
    """A lossless file of one image: PNG for pixels, .npy for anything else."""
    out = io.BytesIO()
    if pixels.dtype == torch.uint8 and pixels.ndim == 3 and pixels.shape[0] in (1, 3):
        array = pixels.permute(1, 2, 0).numpy()
        Image.fromarray(array[..., 0] if array.shape[-1] == 1 else array).save(out, "PNG")
    else:
        np.save(out, pixels.numpy(), allow_pickle=False)
    return out.getvalue()


@dataclass(frozen=True)
class Picked(Sequence[bytes]):
    """Some of the encoded images of a longer sequence, read when asked for."""

    base: Sequence[bytes]
    indices: Indices

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            return Picked(self.base, self.indices[index])
        return self.base[int(self.indices[index])]


@dataclass(frozen=True, kw_only=True)
class ImageSet:
    """Labelled images.

    `labels` is int64 [n]. Pixels are in memory (`pixels`: uint8 [n, channels, height, width], or
    float32 [n, dim] for vectors), or encoded (`files`) and decoded through `view` when taken, or
    both: then `files` are what a memory stores and `pixels` what is trained on.
    """

    labels: Labels
    view: View
    pixels: Tensor | None = None
    files: Sequence[bytes] | None = None

    def __post_init__(self) -> None:
        assert self.pixels is not None or self.files is not None
        for part in (self.pixels, self.files):
            assert part is None or len(part) == len(self.labels)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: Indices) -> Tensor:
        """The pixels of some images, uint8 [len(indices), channels, size, size]."""
        if self.pixels is not None:
            return self.pixels[torch.from_numpy(np.asarray(indices, dtype=np.int64))]
        return torch.stack([self.view.decode(self.encoded(i)) for i in indices])

    def encoded(self, index: int) -> bytes:
        """One image as a file's bytes: the file it came from, or a lossless one made now."""
        if self.files is not None:
            return self.files[int(index)]
        assert self.pixels is not None
        return encode(self.pixels[int(index)])

    def select(self, indices: Indices) -> ImageSet:
        indices = np.asarray(indices, dtype=np.int64)
        return ImageSet(
            labels=self.labels[indices],
            view=self.view,
            pixels=None if self.pixels is None else self.pixels[torch.from_numpy(indices)],
            files=None if self.files is None else pick(self.files, indices),
        )

    def of_classes(self, classes: Sequence[int], *, first: int = 0) -> ImageSet:
        """The images of `classes[first:]`, relabelled by their position in `classes`."""
        position = np.full(max([int(self.labels.max(initial=0)), *classes]) + 1, -1, dtype=np.int64)
        position[list(classes[first:])] = np.arange(first, len(classes))
        chosen = self.select(np.flatnonzero(position[self.labels] >= 0))
        return replace(chosen, labels=position[chosen.labels])

    @cached_property
    def everything(self) -> Indices:
        return np.arange(len(self), dtype=np.int64)

    def digest(self, digest: hashlib.blake2b) -> None:
        """Add labels and content to a checksum."""
        digest.update(np.ascontiguousarray(self.labels).tobytes())
        if self.pixels is not None:
            digest.update(repr((self.pixels.dtype, tuple(self.pixels.shape))).encode())
            digest.update(self.pixels.contiguous().numpy().data.cast("B"))
        else:
            for index in range(len(self)):
                digest.update(self.encoded(index))


def pick(files: Sequence[bytes], indices: Indices) -> Sequence[bytes]:
    if isinstance(files, Picked):
        return Picked(files.base, files.indices[indices])
    return Picked(files, indices)


def join(sets: Sequence[ImageSet]) -> ImageSet:
    """One set after the other. If any has its pixels in memory, all of them will."""
    parts = [part for part in sets if len(part)] or list(sets[:1])
    if len(parts) == 1:
        return parts[0]
    labels = np.concatenate([part.labels for part in parts])
    view = parts[0].view
    if any(part.pixels is not None for part in parts):
        pixels = torch.cat([part.take(part.everything) for part in parts])
        return ImageSet(labels=labels, view=view, pixels=pixels, files=Chained(parts))
    return ImageSet(labels=labels, view=view, files=Chained(parts))


class Chained(Sequence[bytes]):
    """The encoded images of one set after the other, read when asked for."""

    def __init__(self, parts: Sequence[ImageSet]) -> None:
        self.parts = parts
        self.ends = np.cumsum([len(part) for part in parts])

    def __len__(self) -> int:
        return int(self.ends[-1])

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            return Picked(self, np.arange(len(self), dtype=np.int64)[index])
        part = int(np.searchsorted(self.ends, index, side="right"))
        before = int(self.ends[part - 1]) if part else 0
        return self.parts[part].encoded(index - before)


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Training and test images of the same classes, by name. Labels index `classes`."""

    name: str
    classes: tuple[str, ...]
    train: ImageSet
    test: ImageSet
    num_skipped: int = 0

    def __post_init__(self) -> None:
        twice = [name for name, count in Counter(self.classes).items() if count > 1]
        if twice:
            raise UserError(f"{self.name} names the class {twice[0]!r} twice; rename one of them")
        for part, images in (("train", self.train), ("test", self.test)):
            if len(images) == 0:
                raise UserError(f"{self.name} has no {part} images; check that the data is whole")
            low, high = int(images.labels.min()), int(images.labels.max())
            if low < 0 or high >= len(self.classes):
                raise UserError(
                    f"{part} labels of {self.name} must lie in 0..{len(self.classes) - 1} "
                    f"(it names {len(self.classes)} classes), got {low}..{high}"
                )
        for part, images in (("train", self.train), ("test", self.test)):
            counts = np.bincount(images.labels, minlength=len(self.classes))
            if (counts == 0).any():
                missing = self.classes[int(np.flatnonzero(counts == 0)[0])]
                raise UserError(
                    f"class {missing!r} of {self.name} has no {part} images; "
                    "add some or leave the class out"
                )

    @cached_property
    def fingerprint(self) -> str:
        """A checksum of everything in the data that can change a result."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update("\0".join(self.classes).encode())
        self.train.digest(digest)
        self.test.digest(digest)
        return digest.hexdigest()

    @property
    def image_size(self) -> int | None:
        return self.train.view.size


def array_set(images: npt.NDArray[Any], labels: Labels) -> ImageSet:
    """An ImageSet of an array: [n, h, w], [n, h, w, channels] or vectors [n, dim]."""
    if images.ndim == 2:
        pixels = torch.from_numpy(np.ascontiguousarray(images, dtype=np.float32))
        return ImageSet(labels=labels, view=View(channels=images.shape[1]), pixels=pixels)
    pixels = torch.from_numpy(np.ascontiguousarray(images))
    pixels = pixels[:, None] if pixels.ndim == 3 else pixels.permute(0, 3, 1, 2).contiguous()
    size = pixels.shape[2] if pixels.shape[2] == pixels.shape[3] else None
    view = View(channels=pixels.shape[1], size=size)
    return ImageSet(labels=labels, view=view, pixels=pixels)
