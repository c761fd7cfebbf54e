"""Encoded images (files, rows of Parquet) checked, decoded and gathered into a Dataset."""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import BinaryIO, overload

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from bic.data.images import FORMATS, GREY_MODES, Dataset, ImageSet, Indices, Labels, View, pick
from bic.errors import UserError
from bic.progress import Progress

DEFAULT_SIZE = 64
PIXELS_IN_MEMORY = 4 * 2**30  # bytes; beyond, images are decoded when taken
CHUNK = 256  # images a thread works through before it reports


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How encoded images are brought in, as the user asked for it."""

    image_size: int | None = None
    resize: int | None = None
    skip_bad: bool = False
    keep_files: bool = False
    progress: Progress = field(default_factory=lambda: Progress("quiet"))

    def __post_init__(self) -> None:
        for flag, value in (("--image-size", self.image_size), ("--resize", self.resize)):
            if value is not None and value < 1:
                raise UserError(f"{flag} must be at least 1, got {value}")


class EncodedFiles(Sequence[bytes], ABC):
    """Images as the bytes of their files, read when asked for."""

    @abstractmethod
    def read(self, index: int) -> bytes: ...

    @abstractmethod
    def name(self, index: int) -> str:
        """How an error calls image `index`."""

    def open(self, index: int) -> BinaryIO:
        """For a look at the header alone."""
        return io.BytesIO(self.read(index))

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            return pick(self, np.arange(len(self), dtype=np.int64)[index])
        return self.read(range(len(self))[index])


@dataclass(frozen=True)
class Part:
    """The train or test images of a source; a label of -1 is one that is missing."""

    title: str
    files: EncodedFiles
    labels: Labels


def read_dataset(
    name: str,
    classes: Sequence[str],
    parts: tuple[Part, Part],
    reading: Reading,
    *,
    keep_own_size: bool,
) -> Dataset:
    """Check every image of (train, test), and decode them if all the pixels fit in memory.

    `keep_own_size`: if no size is asked for and all images share a small square one, keep that.
    Raises UserError for an image that can't be read, unless `reading.skip_bad`.
    """
    kept, modes, sizes = [], set[str](), set[tuple[int, int]]()
    for part in parts:
        kept.append(check_headers(part, modes, sizes, reading))
    size = reading.image_size or (own_size(sizes) if keep_own_size else None) or DEFAULT_SIZE
    if reading.resize is not None and reading.resize < size:
        raise UserError(f"--resize must be at least --image-size ({size}), got {reading.resize}")
    view = View(channels=1 if modes <= GREY_MODES else 3, size=size, resize=reading.resize)
    num_bytes = sum(map(len, kept)) * view.channels * size**2
    decode = not reading.keep_files and num_bytes <= PIXELS_IN_MEMORY
    sets = [
        decode_all(part, good, view, reading) if decode else gather(part, good, view, None)
        for part, good in zip(parts, kept, strict=True)
    ]
    return Dataset(
        name=name,
        classes=tuple(classes),
        train=sets[0],
        test=sets[1],
        num_skipped=sum(len(part.files) for part in parts) - sum(map(len, sets)),
    )


def check_headers(
    part: Part, modes: set[str], sizes: set[tuple[int, int]], reading: Reading
) -> Indices:
    """The images that have a label and look like an image; their modes and sizes are noted."""

    def check(index: int) -> None:
        if part.labels[index] < 0:
            raise ValueError("it has no label")
        with part.files.open(index) as file, Image.open(file, formats=FORMATS) as image:
            modes.add(image.mode)
            sizes.add(image.size)

    everything = np.arange(len(part.files), dtype=np.int64)
    return try_each(part, everything, check, f"checking {part.title} images", reading)


def own_size(sizes: set[tuple[int, int]]) -> int | None:
    """The side all images share, if they are square and small."""
    if len(sizes) != 1:
        return None
    width, height = next(iter(sizes))
    return width if width == height <= DEFAULT_SIZE else None


def decode_all(part: Part, indices: Indices, view: View, reading: Reading) -> ImageSet:
    assert view.size is not None
    # Indexed like the files; memory is taken only for rows that are written.
    shape = (len(part.files), view.channels, view.size, view.size)
    pixels = torch.empty(shape, dtype=torch.uint8)
    rows = pixels.numpy()

    def decode(index: int) -> None:
        rows[index] = view.decode(part.files[index]).numpy()

    good = try_each(part, indices, decode, f"reading {part.title} images", reading)
    if len(good) < len(pixels):
        pixels = pixels[torch.from_numpy(good)]
    return gather(part, good, view, pixels)


def gather(part: Part, good: Indices, view: View, pixels: Tensor | None) -> ImageSet:
    files = part.files if len(good) == len(part.files) else pick(part.files, good)
    return ImageSet(labels=part.labels[good], view=view, pixels=pixels, files=files)


def try_each(
    part: Part, indices: Indices, work: Callable[[int], None], title: str, reading: Reading
) -> Indices:
    """Do `work` on images in threads (Pillow decodes outside the GIL); those it didn't fail on."""

    def try_chunk(chunk: Indices) -> list[int]:
        good = []
        for index in chunk.tolist():
            try:
                work(index)
            except Exception as problem:  # Pillow's readers raise nearly anything
                if not reading.skip_bad:
                    raise bad_image(part.files.name(index), problem) from problem
            else:
                good.append(index)
        return good

    chunks = [indices[start : start + CHUNK] for start in range(0, len(indices), CHUNK)]
    good: list[int] = []
    with (
        reading.progress.task(title, len(indices)) as task,
        ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        for chunk, good_ones in zip(chunks, pool.map(try_chunk, chunks), strict=True):
            good += good_ones
            task.advance(len(chunk))
    return np.array(good, dtype=np.int64)


def bad_image(name: str, problem: Exception) -> UserError:
    # Pillow's own words name a BytesIO object here.
    reason = "it is not an image" if isinstance(problem, UnidentifiedImageError) else str(problem)
    return UserError(f"can't read {name} ({reason}); mend it, or leave it out with --skip-bad")
