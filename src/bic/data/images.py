"""ImageSet: labelled images, whatever they were read from."""

import hashlib
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from bic.data.decode import Cut, View
from bic.data.files import File, name_of, read
from bic.data.workers import decode_all, reason_of
from bic.errors import UserError

Labels = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int64]


def encode(pixels: Tensor) -> bytes:
    """A lossless file of one image: PNG for pixels, .npy for anything else."""
    out = io.BytesIO()
    if pixels.dtype == torch.uint8 and pixels.ndim == 3 and pixels.shape[0] in (1, 3):
        Image.fromarray(pixels[0].numpy() if len(pixels) == 1 else pixels.permute(1, 2, 0).numpy()).save(out, "PNG")
    else:
        np.save(out, pixels.numpy(), allow_pickle=False)
    return out.getvalue()


@dataclass(frozen=True, kw_only=True)
class ImageSet:
    """Labelled images.

    `labels` is int64 [n]. Pixels are in memory (`pixels`: uint8 [n, channels, height, width], a pixel's channels side
    by side, or float32 [n, dim] for vectors), or encoded (`files`) and decoded through `view` when taken, or both: then
    `files` are what a memory stores and `pixels` what is trained on. `skip_bad`: files that turn out to be broken when
    they are decoded are left out.
    """

    labels: Labels
    view: View
    pixels: Tensor | None = None
    files: Sequence[File] | None = None
    skip_bad: bool = False

    def __post_init__(self) -> None:
        lengths = [len(part) for part in (self.pixels, self.files) if part is not None]
        assert set(lengths) == {len(self.labels)}

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def may_break(self) -> bool:
        """Whether images can turn out to be broken, and be left out, when they are taken."""
        return self.skip_bad and self.pixels is None

    def take(self, indices: Indices) -> Tensor:
        """The pixels of some images, uint8 [len(indices), channels, size, size]."""
        if self.pixels is not None:
            return self.pixels[torch.from_numpy(np.asarray(indices, dtype=np.int64))]
        assert self.files is not None
        return decode_all([self.files[i] for i in indices], self.view)[0]

    def take_readable(self, indices: Indices, cuts: Sequence[Cut] | None = None) -> tuple[Tensor, Indices]:
        """The pixels of those images that can be read, each cut as told or in the middle, and their indices.

        Only with `skip_bad` can they be fewer than those asked for.
        """
        if self.pixels is not None and cuts is None:
            return self.take(indices), indices
        files = [self.encoded(i) if self.files is None else self.files[i] for i in indices]
        pixels, good = decode_all(files, self.view, cuts, skip_bad=self.skip_bad)
        return pixels, indices if len(good) == len(indices) else indices[good]

    def encoded(self, index: int) -> bytes:
        """One image as a file's bytes: the file it came from, or a lossless one made now."""
        if self.files is None:
            assert self.pixels is not None
            return encode(self.pixels[int(index)])
        file = self.files[int(index)]
        try:
            return read(file)
        except Exception as problem:
            what = f"can't read {name_of(file)} ({reason_of(problem)})"
            raise UserError(f"{what}; put it back and run the same command again") from problem

    def sampled_bytes(self) -> npt.NDArray[np.int64]:
        """The sizes of 100 encoded images."""
        return np.array([len(self.encoded(index)) for index in np.linspace(0, len(self) - 1, 100).astype(int)])

    def select(self, indices: Indices) -> Self:
        indices = np.asarray(indices, dtype=np.int64)
        pixels = None if self.pixels is None else self.pixels[torch.from_numpy(indices)]
        files = None if self.files is None else [self.files[index] for index in indices]
        return replace(self, labels=self.labels[indices], pixels=pixels, files=files)

    def of_classes(self, classes: Sequence[int], *, first: int = 0) -> Self:
        """The images of `classes[first:]`, relabelled by their position in `classes`."""
        position = np.full(max([int(self.labels.max(initial=0)), *classes]) + 1, -1, dtype=np.int64)
        position[list(classes[first:])] = np.arange(first, len(classes))
        chosen = self.select(np.flatnonzero(position[self.labels] >= 0))
        return replace(chosen, labels=position[chosen.labels])

    @cached_property
    def everything(self) -> Indices:
        return np.arange(len(self), dtype=np.int64)


def join(sets: Sequence[ImageSet]) -> ImageSet:
    """One set after the other. If any has its pixels in memory, all of them will."""
    parts = [part for part in sets if len(part)] or sets[:1]
    if len(parts) == 1:
        return parts[0]
    labels = np.concatenate([part.labels for part in parts])
    files = [file for part in parts for file in part.files or ()]
    in_memory = any(part.pixels is not None for part in parts)
    pixels = torch.cat([part.take(part.everything) for part in parts]) if in_memory else None
    return ImageSet(
        labels=labels,
        view=parts[0].view,
        pixels=pixels,
        files=files if len(files) == len(labels) else None,
        skip_bad=any(part.skip_bad for part in parts),
    )


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Training and test images of the same classes, by name. Labels index `classes`."""

    name: str
    classes: tuple[str, ...]
    train: ImageSet
    test: ImageSet
    num_skipped: int = 0
    source: str = ""  # a checksum of names and sizes, which stands for files that are decoded when needed

    def __post_init__(self) -> None:
        for name, count in Counter(self.classes).items():
            if count > 1 or not name.isprintable():
                raise UserError(f"class {name!r} of {self.name} is named twice or unprintable; rename it")
        known = set(range(len(self.classes)))
        for part, images in (("train", self.train), ("test", self.test)):
            used = set(images.labels.tolist())
            if stray := used - known:
                reason = f"label {min(stray)} is not in 0..{len(known) - 1}, the classes it names"
                raise UserError(f"{self.name} has wrong {part} labels ({reason}); correct either")
            if missing := known - used:
                name = self.classes[min(missing)]
                raise UserError(f"class {name!r} of {self.name} has no {part} images; add some or leave it out")

    @cached_property
    def fingerprint(self) -> str:
        """A checksum of everything in the data that can change a result.

        Files that are decoded when needed enter it by their names and sizes: reading them all would take an hour.
        """
        digest = hashlib.blake2b("\0".join(self.classes).encode() + self.source.encode(), digest_size=16)
        for images in (self.train, self.test):
            digest.update(np.ascontiguousarray(images.labels).tobytes())
            if images.pixels is not None:
                digest.update(repr((images.pixels.dtype, tuple(images.pixels.shape))).encode())
                digest.update(images.pixels.contiguous().numpy().data.cast("B"))
            elif not self.source:
                for index in range(len(images)):
                    digest.update(images.encoded(index))
        return digest.hexdigest()

    @property
    def image_size(self) -> int | None:
        return self.train.view.size


def array_set(images: npt.NDArray[Any], labels: Labels) -> ImageSet:
    """An ImageSet of an array: [n, h, w], [n, h, w, channels] or vectors [n, dim]."""
    if images.ndim == 2:
        vectors = torch.from_numpy(np.ascontiguousarray(images, dtype=np.float32))
        return ImageSet(labels=labels, view=View(channels=images.shape[1]), pixels=vectors)
    channels_last = images[..., None] if images.ndim == 3 else images
    _, height, width, channels = channels_last.shape
    view = View(channels=channels, size=height if height == width else None)
    pixels = torch.from_numpy(np.ascontiguousarray(channels_last)).permute(0, 3, 1, 2)
    return ImageSet(labels=labels, view=view, pixels=pixels)


def number_labels(
    train: Sequence[Any], test: Sequence[Any], names: Sequence[str] | None
) -> tuple[tuple[str, ...], Labels, Labels]:
    """Class names, and labels as positions in them, -1 for none.

    Numbers are positions in `names`; without `names`, classes are called by their labels.
    """
    used = sorted({*train, *test} - {None, -1}, key=lambda value: (isinstance(value, str), value))
    position = {value: index for index, value in enumerate(used if names is None else names)}
    if names is not None:
        position |= {value: value for value in used if isinstance(value, int)}
        if stray := set(used) - position.keys():
            raise UserError(f"label {min(stray)!r} is not in its classes; add it there")
    y_train, y_test = (np.array([position.get(each, -1) for each in part], np.int64) for part in (train, test))
    return tuple(map(str, used if names is None else names)), y_train, y_test


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Name `path` in whatever is raised: other people's files can fail a reader in any way."""
    try:
        yield
    except UserError:
        raise
    except Exception as problem:
        reason = f"{type(problem).__name__}: {' '.join(str(problem).split())}"
        raise UserError(f"can't read {path} ({reason}); save or download it again") from problem
