"""Encoded images (files, rows of Parquet) checked, decoded and gathered into a Dataset."""

import hashlib
import io
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from bic.data.decode import FORMATS, GREY_MODES, View, upright
from bic.data.files import File, read
from bic.data.images import Dataset, ImageSet, Indices, Labels
from bic.data.index import Facts, Index
from bic.data.workers import reason_of
from bic.errors import UserError
from bic.progress import Progress

DEFAULT_SIZE = 64
PIXELS_IN_MEMORY = 4 * 2**30  # bytes; beyond, images are decoded when taken
SMALL = 10_000  # bytes of an image below which threads only wait for each other
NAMED = 10  # images that are left out
CHUNK = 256  # images a thread works through before it reports


@dataclass(frozen=True)
class Part:
    """The train or test images of a source; a label of -1 is one that is missing."""

    title: str
    files: Sequence[File]
    labels: Labels
    name: Callable[[int], str]  # what an error calls an image
    facts: Facts  # what is known of them before they are looked at
    chosen: Indices | None = None  # those that are wanted; None: all

    @cached_property
    def wanted(self) -> Indices:
        return np.arange(len(self.files)) if self.chosen is None else self.chosen


@dataclass(frozen=True, kw_only=True)
class Reader:
    """Brings in encoded images as the user asked for it."""

    image_size: int | None
    resize: int | None
    skip_bad: bool
    keep_files: bool
    progress: Progress
    cache: Path  # where indices are kept

    def read(
        self, name: str, classes: Sequence[str], parts: Sequence[Part], *, index: Index, keep_own_size: bool
    ) -> Dataset:
        """Check every image of (train, test), and decode them if all the pixels fit in memory.

        `keep_own_size`: if no size is asked for and all images share a small square one, keep that. Raises UserError
        for an image that can't be read, unless `skip_bad`.
        """
        try:
            kept = [self._check(part) for part in parts]
        finally:  # a broken image must not cost the look at all the others
            index.save(Facts.join([part.facts for part in parts]))
        modes = {mode for part, good in zip(parts, kept, strict=True) for mode in np.unique(part.facts.modes[good])}
        sides = np.unique(
            np.concatenate([part.facts.sides[good].ravel() for part, good in zip(parts, kept, strict=True)])
        )
        own_size = int(sides[0]) if keep_own_size and len(sides) == 1 else DEFAULT_SIZE
        size = self.image_size or min(own_size, DEFAULT_SIZE)
        view = View(channels=1 if modes <= GREY_MODES else 3, size=size, resize=self.resize)
        decode = not self.keep_files and sum(map(len, kept)) * view.channels * size**2 <= PIXELS_IN_MEMORY
        train, test = (self._gather(*each, view, decode=decode) for each in zip(parts, kept, strict=True))
        num_skipped = sum(len(part.wanted) for part in parts) - len(train) - len(test)
        if num_skipped:
            self.progress.say(f"left out {num_skipped:,} broken image{'s' * (num_skipped > 1)}")
        source = "" if decode else _names_and_sizes(parts, kept)
        return Dataset(
            name=name, classes=tuple(classes), train=train, test=test, num_skipped=num_skipped, source=source
        )

    def _check(self, part: Part) -> Indices:
        """Look at the headers of images that are not known yet; those that are good."""
        facts = part.facts

        def check(part: Part, index: int) -> None:
            if part.labels[index] < 0:
                raise ValueError("it has no label")
            file = part.files[index]
            if not isinstance(file, str):
                facts.sizes[index] = len(encoded := read(file))
            with Image.open(file if isinstance(file, str) else io.BytesIO(encoded), formats=FORMATS) as image:
                facts.modes[index], facts.sides[index] = image.mode, image.size

        known = (facts.modes[part.wanted] != "") & (part.labels[part.wanted] >= 0)
        looked_at = self._try_each("checking", part, part.wanted[~known], check)
        return np.sort(np.concatenate([part.wanted[known], looked_at]))

    def _gather(self, part: Part, good: Indices, view: View, *, decode: bool) -> ImageSet:
        images = ImageSet(labels=part.labels, view=view, files=part.files, skip_bad=self.skip_bad)
        if decode:
            assert view.size is not None
            # Indexed like the files; memory is taken only for rows that are written.
            rows = np.empty((len(images), view.size, view.size, view.channels), dtype=np.uint8)
            whole = (part.facts.sides == view.size).all(axis=1)  # nothing to scale, or to cut off

            def fill(part: Part, index: int) -> None:
                encoded = images.encoded(index)
                if whole[index]:
                    rows[index] = upright(encoded, view.channels)
                else:
                    rows[index] = view.decode(encoded).permute(1, 2, 0)

            good = self._try_each("reading", part, good, fill)
            images = replace(images, pixels=torch.from_numpy(rows).permute(0, 3, 1, 2))
        return images if len(good) == len(images) else images.select(good)

    def _try_each(self, verb: str, part: Part, indices: Indices, work: Callable[[Part, int], None]) -> Indices:
        """Do `work` on images; those it didn't fail on. Of the others the first few are named.

        In threads, since Pillow decodes outside the GIL; small images are decoded sooner than they are handed over.
        """
        left_out: list[str] = []

        def works(index: int) -> bool:
            try:
                work(part, index)
            except Exception as problem:  # Pillow's readers raise nearly anything
                what = f"{part.name(index)} ({reason_of(problem)})"
                if self.skip_bad:
                    left_out.append(what)
                    return False
                raise UserError(f"can't read {what}; mend it, or leave it out with --skip-bad") from problem
            return True

        chunks = np.split(indices, range(CHUNK, len(indices), CHUNK))
        good = []
        small = len(indices) > 0 and 0 < part.facts.sizes[indices].mean() < SMALL
        task = self.progress.task(f"{verb} {part.title} images", len(indices))
        with task as progress, ThreadPoolExecutor(1 if small else os.cpu_count()) as pool:
            for chunk in pool.map(lambda chunk: chunk[[works(index) for index in chunk]], chunks):
                good.append(chunk)
                progress.advance(len(chunk))
        for what in sorted(left_out)[:NAMED]:
            warnings.warn(f"left out {what}", stacklevel=2)
        return np.concatenate(good)


def _names_and_sizes(parts: Sequence[Part], kept: Sequence[Indices]) -> str:
    """A checksum that stands for the content of files, all of which can't be read at every start."""
    digest = hashlib.blake2b(digest_size=16)
    for part, good in zip(parts, kept, strict=True):
        digest.update("\0".join([part.facts.names[index] for index in good]).encode())
        digest.update(part.facts.sizes[good].tobytes())
    return digest.hexdigest()
