"""Check and decode the images of a source (files or rows of Parquet), and build a Dataset."""

import hashlib
import io
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from PIL import Image

from bic.data.decode import FORMATS, GREY_MODES, decode_image
from bic.data.decode_files import broken_image, reason_of
from bic.data.image_files import File, read
from bic.data.images import PIXELS_IN_MEMORY, Dataset, ImageSet, Indices, Labels
from bic.data.index import Facts, Index
from bic.data.preprocessing import DEFAULT_SIZE, Preprocessing
from bic.errors import warn
from bic.foreign_files import open_regular_file
from bic.progress import Progress

SMALL_BYTES = 10_000  # handing a smaller image to another thread takes longer than decoding it
MAX_WARNINGS = 10  # more images that are left out are not named
CHUNK = 256  # images that a thread works on before it reports


@dataclass(frozen=True)
class Part:
    """The train or test images of a source. A label of -1 is missing."""

    title: str
    files: Sequence[File]
    labels: Labels
    name: Callable[[int], str]  # what an error message calls an image
    facts: Facts  # what is known before the images are opened
    chosen: Indices | None = None  # the images to use; None: all

    @cached_property
    def wanted(self) -> Indices:
        return np.arange(len(self.files)) if self.chosen is None else self.chosen


@dataclass(frozen=True, kw_only=True)
class Reader:
    """Reads encoded images with the user's settings."""

    image_size: int | None
    resize: int | None
    skip_bad: bool
    keep_files: bool
    progress: Progress
    cache: Path  # the folder of index files

    def read(
        self,
        name: str,
        classes: Sequence[str],
        parts: Sequence[Part],
        *,
        index: Index,
        keep_own_size: bool,
    ) -> Dataset:
        """Check all train and test images, and decode all of them if their pixels fit in memory.

        `keep_own_size`: if no size is given and all images share a small square one, keep that
        size. Raises UserError for an image that cannot be read, unless `skip_bad`.
        """
        try:
            good_indices = [self._check(part) for part in parts]
        finally:  # a broken image must not discard the facts about all the others
            index.save(Facts.join([part.facts for part in parts]))
        pairs = list(zip(parts, good_indices, strict=True))
        preprocessing = self._preprocessing(pairs, keep_own_size=keep_own_size)
        assert preprocessing.size is not None
        num_images = sum(map(len, good_indices))
        num_bytes = num_images * preprocessing.channels * preprocessing.size**2
        decode = not self.keep_files and num_bytes <= PIXELS_IN_MEMORY
        train, test = (
            self._image_set(part, good, preprocessing, decode=decode) for part, good in pairs
        )
        num_skipped = sum(len(part.wanted) for part in parts) - len(train) - len(test)
        if num_skipped:
            self.progress.say(f"left out {num_skipped:,} broken image{'s' * (num_skipped > 1)}")
        return Dataset(
            name=name,
            classes=tuple(classes),
            train=train,
            test=test,
            num_skipped=num_skipped,
            source="" if decode else _names_and_sizes(pairs),
        )

    def _preprocessing(
        self, pairs: Sequence[tuple[Part, Indices]], *, keep_own_size: bool
    ) -> Preprocessing:
        modes: set[str] = set()
        for part, good in pairs:
            modes.update(np.unique(part.facts.modes[good]).tolist())
        sides = np.unique(np.concatenate([part.facts.sides[good].ravel() for part, good in pairs]))
        size = self.image_size or DEFAULT_SIZE
        if not self.image_size and keep_own_size and len(sides) == 1:
            size = min(int(sides[0]), DEFAULT_SIZE)
        channels = 1 if modes <= GREY_MODES else 3
        return Preprocessing(channels=channels, size=size, resize=self.resize)

    def _check(self, part: Part) -> Indices:
        """Open the images that the index does not know, and return the indices of the good ones."""
        facts = part.facts

        def check(index: int) -> None:
            if part.labels[index] < 0:
                raise ValueError("it has no label")
            file = part.files[index]
            source: BinaryIO
            if isinstance(file, str):
                source = open_regular_file(file)
            else:
                encoded = read(file)
                facts.sizes[index] = len(encoded)
                source = io.BytesIO(encoded)
            with source, Image.open(source, formats=FORMATS) as image:
                facts.modes[index] = image.mode
                facts.sides[index] = image.size

        is_known = (facts.modes[part.wanted] != "") & (part.labels[part.wanted] >= 0)
        opened = self._try_each("checking", part, part.wanted[~is_known], check)
        return np.sort(np.concatenate([part.wanted[is_known], opened]))

    def _image_set(
        self, part: Part, good: Indices, preprocessing: Preprocessing, *, decode: bool
    ) -> ImageSet:
        images = ImageSet(
            labels=part.labels,
            preprocessing=preprocessing,
            files=part.files,
            skip_bad=self.skip_bad,
        )
        if decode:
            size = preprocessing.size
            channels = preprocessing.channels
            assert size is not None
            # One row per file. The system provides memory only for the rows that are written.
            rows = np.empty((len(images), size, size, channels), dtype=np.uint8)
            has_right_size = (part.facts.sides == size).all(axis=1)

            def fill(index: int) -> None:
                encoded = images.encoded(index)
                if has_right_size[index]:
                    rows[index] = decode_image(encoded, channels)
                else:
                    rows[index] = preprocessing.decode(encoded).permute(1, 2, 0)

            good = self._try_each("reading", part, good, fill)
            images = replace(images, pixels=torch.from_numpy(rows).permute(0, 3, 1, 2))
        return images if len(good) == len(images) else images.select(good)

    def _try_each(
        self, verb: str, part: Part, indices: Indices, work: Callable[[int], None]
    ) -> Indices:
        """Call `work` for every index and return the indices for which it succeeded.

        Raises UserError for the first failure. With `skip_bad`, warns about the first few instead.
        """
        left_out: list[str] = []

        def works(index: int) -> bool:
            try:
                work(index)
            except Exception as error:  # Pillow's decoders raise almost anything
                image = f"{part.name(index)} ({reason_of(error)})"
                if self.skip_bad:
                    left_out.append(image)
                    return False
                raise broken_image(image) from error
            return True

        def work_on(chunk: Indices) -> Indices:
            return chunk[[works(index) for index in chunk]]

        chunks = np.split(indices, range(CHUNK, len(indices), CHUNK))
        good = []
        task_context = self.progress.task(f"{verb} {part.title} images", len(indices))
        # Pillow decodes without the GIL, so threads help.
        with task_context as task, ThreadPoolExecutor(self._num_threads(part, indices)) as pool:
            for good_chunk in pool.map(work_on, chunks):
                good.append(good_chunk)
                task.advance(len(good_chunk))
        for image in sorted(left_out)[:MAX_WARNINGS]:
            warn(f"left out {image}")
        return np.concatenate(good)

    def _num_threads(self, part: Part, indices: Indices) -> int | None:
        if len(indices) == 0:
            return os.cpu_count()
        mean_bytes = part.facts.sizes[indices].mean()  # 0: not known yet
        return 1 if 0 < mean_bytes < SMALL_BYTES else os.cpu_count()


def _names_and_sizes(pairs: Sequence[tuple[Part, Indices]]) -> str:
    """A checksum of file names and sizes: reading all the files at every start takes too long."""
    digest = hashlib.blake2b(digest_size=16)
    for part, good in pairs:
        digest.update("\0".join([part.facts.names[index] for index in good]).encode())
        digest.update(part.facts.sizes[good].tobytes())
    return digest.hexdigest()
