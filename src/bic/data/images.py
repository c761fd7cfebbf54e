"""ImageSet: labelled images in memory or in files. Dataset: a training and a test set."""

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, overload

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from bic.class_names import name_problem
from bic.data.decode_files import Decode, decode_files, reason_of
from bic.data.image_files import File, name_of, read
from bic.data.preprocessing import Cut, Preprocessing
from bic.errors import UserError

Labels = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

PIXELS_IN_MEMORY = 4 * 2**30  # bytes; larger sets are decoded each time they are used


@dataclass(frozen=True)
class Features:
    """What a frozen network computed of images, float16 [n, dim].

    `mirrored` has the features of the mirrored images, for training that mirrors half of them.
    """

    plain: Tensor
    mirrored: Tensor | None = None

    def select(self, rows: Tensor) -> "Features":
        mirrored = None if self.mirrored is None else self.mirrored[rows]
        return Features(self.plain[rows], mirrored)


@dataclass(frozen=True, kw_only=True)
class ImageSet:
    """Labelled images, as pixels in memory, as encoded files, or both.

    `labels` is int64 [n]. `pixels` is uint8 [n, channels, height, width] in channels-last layout,
    or float32 [n, dim] for vectors. `files` are decoded through `preprocessing` each time they are
    used. A set with both trains on `pixels` and stores `files` in the memory. With `skip_bad`,
    broken files are left out when they are decoded. Square `pixels` may be grey or smaller than
    `preprocessing` says: they are converted when they are used. A set with `features` gives these
    in place of pixels.
    """

    labels: Labels
    preprocessing: Preprocessing
    pixels: Tensor | None = None
    files: Sequence[File] | None = None
    skip_bad: bool = False
    features: Features | None = None

    def __post_init__(self) -> None:
        lengths = [len(part) for part in (self.pixels, self.files) if part is not None]
        assert set(lengths) == {len(self.labels)}

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def may_break(self) -> bool:
        """Whether images may be left out when they are decoded."""
        return self.skip_bad and self.is_decoded

    @property
    def is_decoded(self) -> bool:
        """Whether files have to be decoded to use the images."""
        return self.pixels is None and self.features is None

    def take(self, indices: Indices, *, decode: Decode = decode_files) -> Tensor:
        """The pixels of some images, uint8 [len(indices), channels, size, size].

        A set with features returns those, float32 [len(indices), dim].
        `decode` decodes the files. Raises UserError for a file that cannot be read.
        """
        rows = torch.from_numpy(np.asarray(indices, dtype=np.int64))
        if self.features is not None:
            return self.features.plain[rows].float()
        if self.pixels is not None:
            return self.preprocessing.completed(self.pixels[rows])
        assert self.files is not None
        pixels, _ = decode([self.files[index] for index in indices], self.preprocessing)
        return pixels

    def take_readable(
        self, indices: Indices, cuts: Sequence[Cut] | None = None, *, decode: Decode = decode_files
    ) -> tuple[Tensor, Indices]:
        """The pixels of the readable images, and their indices.

        `cuts` has one crop per image; by default the central square is used. All images are
        returned unless the set has `skip_bad`. `decode` decodes the files.
        """
        if self.features is not None or (self.pixels is not None and cuts is None):
            return self.take(indices), indices
        files: list[File]
        if self.files is None:
            files = [self.encoded(index) for index in indices]
        else:
            files = [self.files[index] for index in indices]
        pixels, good = decode(files, self.preprocessing, cuts, skip_bad=self.skip_bad)
        return pixels, indices if len(good) == len(indices) else indices[good]

    def encoded(self, index: int) -> bytes:
        """One image as the bytes of its file, or of a lossless file made from its pixels.

        Raises UserError if the file is gone.
        """
        if self.files is None:
            assert self.pixels is not None
            return encode(self.pixels[int(index)])
        file = self.files[int(index)]
        try:
            return read(file)
        except Exception as error:
            problem = f"can't read {name_of(file)} ({reason_of(error)})"
            raise UserError(problem, "put it back and run again") from error

    def sampled_bytes(self) -> npt.NDArray[np.int64]:
        """The sizes of 100 encoded images, evenly spaced."""
        indices = np.linspace(0, len(self) - 1, 100).astype(int)
        return np.array([len(self.encoded(index)) for index in indices])

    def select(self, indices: Indices) -> Self:
        indices = np.asarray(indices, dtype=np.int64)
        rows = torch.from_numpy(indices)
        pixels = None if self.pixels is None else self.pixels[rows]
        files = None if self.files is None else [self.files[index] for index in indices]
        features = None if self.features is None else self.features.select(rows)
        labels = self.labels[indices]
        return replace(self, labels=labels, pixels=pixels, files=files, features=features)

    def of_classes(self, classes: Sequence[int], *, first: int = 0) -> Self:
        """The images of `classes[first:]`. Their new labels are positions in `classes`."""
        num_labels = max([int(self.labels.max(initial=0)), *classes]) + 1
        position = np.full(num_labels, -1, dtype=np.int64)
        position[list(classes[first:])] = np.arange(first, len(classes))
        chosen = self.select(np.flatnonzero(position[self.labels] >= 0))
        return replace(chosen, labels=position[chosen.labels])

    @cached_property
    def everything(self) -> Indices:
        """The indices of all images."""
        return np.arange(len(self), dtype=np.int64)


def encode(pixels: Tensor) -> bytes:
    """A lossless file of one image: PNG for uint8 [1 or 3, h, w], .npy for anything else."""
    out = io.BytesIO()
    if pixels.dtype == torch.uint8 and pixels.ndim == 3 and pixels.shape[0] in (1, 3):
        grey_or_rgb = pixels[0] if len(pixels) == 1 else pixels.permute(1, 2, 0)
        Image.fromarray(grey_or_rgb.numpy()).save(out, "PNG")
    else:
        np.save(out, pixels.numpy(), allow_pickle=False)
    return out.getvalue()


def join(sets: Sequence[ImageSet], *, decode: Decode = decode_files) -> ImageSet:
    """The images of all sets, in order.

    If any set has its pixels in memory, the result has them too; `decode` decodes the other sets.
    """
    parts = [part for part in sets if len(part)] or sets[:1]
    if len(parts) == 1:
        return parts[0]
    labels = np.concatenate([part.labels for part in parts])
    files: Sequence[File] = [file for part in parts for file in part.files or ()]
    features = _joined_features([part.features for part in parts])
    if features is None:
        parts = [replace(part, features=None) for part in parts]
    pixels = None
    if features is None and any(part.pixels is not None for part in parts):
        pixels = torch.cat([part.take(part.everything, decode=decode) for part in parts])
    elif features is not None and len(files) < len(labels):
        files = _EncodedLater(parts)
    return ImageSet(
        labels=labels,
        preprocessing=parts[0].preprocessing,
        pixels=pixels,
        files=files if len(files) == len(labels) else None,
        skip_bad=any(part.skip_bad for part in parts),
        features=features,
    )


class _EncodedLater(Sequence[bytes]):
    """The images of several sets as encoded bytes, each encoded when it is asked for."""

    def __init__(self, parts: Sequence[ImageSet]) -> None:
        self.places = [(part, index) for part in parts for index in range(len(part))]

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return [part.encoded(place) for part, place in self.places[index]]
        part, place = self.places[index]
        return part.encoded(place)


def _joined_features(parts: Sequence[Features | None]) -> Features | None:
    """The features of all images, if all images have them."""
    present = [part for part in parts if part is not None]
    if len(present) < len(parts):
        return None
    mirrored = [part.mirrored for part in present if part.mirrored is not None]
    return Features(
        torch.cat([part.plain for part in present]),
        torch.cat(mirrored) if len(mirrored) == len(parts) else None,
    )


def array_set(images: npt.NDArray[Any], labels: Labels) -> ImageSet:
    """An ImageSet of uint8 images [n, h, w] or [n, h, w, channels], or of vectors [n, dim]."""
    if images.ndim == 2:
        vectors = torch.from_numpy(np.ascontiguousarray(images, dtype=np.float32))
        preprocessing = Preprocessing(channels=images.shape[1])
        return ImageSet(labels=labels, preprocessing=preprocessing, pixels=vectors)
    channels_last = images[..., None] if images.ndim == 3 else images
    _, height, width, channels = channels_last.shape
    preprocessing = Preprocessing(channels=channels, size=height if height == width else None)
    pixels = torch.from_numpy(np.ascontiguousarray(channels_last)).permute(0, 3, 1, 2)
    return ImageSet(labels=labels, preprocessing=preprocessing, pixels=pixels)


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Training and test images of the same classes. Labels are positions in `classes`.

    `source` is a checksum of file names and sizes, for files that are decoded when they are used.
    Raises UserError if two classes share a name, a class has no images, or a label has no class.
    """

    name: str
    classes: tuple[str, ...]
    train: ImageSet
    test: ImageSet
    num_skipped: int = 0
    source: str = ""

    def __post_init__(self) -> None:
        problem = name_problem(self.classes)
        if problem is not None:
            raise UserError(f"{self.name}: {problem}", "rename it")
        for part, images in (("train", self.train), ("test", self.test)):
            self._check_labels(part, images.labels)

    def _check_labels(self, part: str, labels: Labels) -> None:
        known = set(range(len(self.classes)))
        used = set(labels.tolist())
        without_class = used - known
        if without_class:
            label = min(without_class)
            reason = f"label {label} is not in 0..{len(known) - 1}, the class numbers"
            problem = f"{self.name} has wrong {part} labels ({reason})"
            raise UserError(problem, "correct the labels or the class names")
        without_images = known - used
        if without_images:
            name = self.classes[min(without_images)]
            problem = f"class {name!r} of {self.name} has no {part} images"
            raise UserError(problem, "add some, or leave the class out")

    @cached_property
    def fingerprint(self) -> str:
        """A checksum of everything in the data that can change a result.

        Files that are decoded when they are used count by name and size: reading all of them could
        take an hour.
        """
        names = "\0".join(self.classes).encode()
        digest = hashlib.blake2b(names + self.source.encode(), digest_size=16)
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
        return self.train.preprocessing.size
