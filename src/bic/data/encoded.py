"""Encoded images (files, rows of Parquet) checked, decoded and gathered into a Dataset."""

import io
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError

from bic.data.images import FORMATS, GREY_MODES, Dataset, File, ImageSet, Indices, Labels, View
from bic.errors import UserError
from bic.progress import Progress

DEFAULT_SIZE = 64
PIXELS_IN_MEMORY = 4 * 2**30  # bytes; beyond, images are decoded when taken
CHUNK = 256  # images a thread works through before it reports


@dataclass(frozen=True)
class Part:
    """The train or test images of a source; a label of -1 is one that is missing."""

    title: str
    files: Sequence[File]
    labels: Labels
    name: Callable[[int], str]  # what an error calls an image


@dataclass(frozen=True, kw_only=True)
class Reader:
    """Brings in encoded images as the user asked for it."""

    image_size: int | None
    resize: int | None
    skip_bad: bool
    keep_files: bool
    progress: Progress

    def read(self, name: str, classes: Sequence[str], parts: Sequence[Part], *, keep_own_size: bool) -> Dataset:
        """Check every image of (train, test), and decode them if all the pixels fit in memory.

        `keep_own_size`: if no size is asked for and all images share a small square one, keep that. Raises UserError
        for an image that can't be read, unless `skip_bad`.
        """
        modes, sides = set[str](), set[int]()

        def check(part: Part, index: int) -> None:
            if part.labels[index] < 0:
                raise ValueError("it has no label")
            file = part.files[index]
            with Image.open(io.BytesIO(file) if isinstance(file, bytes) else file, formats=FORMATS) as image:
                modes.add(image.mode)
                sides.update(image.size)

        kept = [self._try_each("checking", part, np.arange(len(part.files)), check) for part in parts]
        own_size = sides.pop() if keep_own_size and len(sides) == 1 else DEFAULT_SIZE
        size = self.image_size or min(own_size, DEFAULT_SIZE)
        view = View(channels=1 if modes <= GREY_MODES else 3, size=size, resize=self.resize)
        decode = not self.keep_files and sum(map(len, kept)) * view.channels * size**2 <= PIXELS_IN_MEMORY
        train, test = (self._gather(*each, view, decode=decode) for each in zip(parts, kept, strict=True))
        num_skipped = sum(len(part.files) for part in parts) - len(train) - len(test)
        if num_skipped:
            self.progress.say(f"left out {num_skipped} broken images")
        return Dataset(name=name, classes=tuple(classes), train=train, test=test, num_skipped=num_skipped)

    def _gather(self, part: Part, good: Indices, view: View, *, decode: bool) -> ImageSet:
        images = ImageSet(labels=part.labels, view=view, files=part.files)
        if decode:
            assert view.size is not None
            # Indexed like the files; memory is taken only for rows that are written.
            pixels = torch.empty((len(images), view.size, view.size, view.channels), dtype=torch.uint8)
            pixels = pixels.permute(0, 3, 1, 2)

            def fill(part: Part, index: int) -> None:
                pixels[index] = view.decode(images.encoded(index))

            good = self._try_each("reading", part, good, fill)
            images = replace(images, pixels=pixels)
        return images if len(good) == len(images) else images.select(good)

    def _try_each(self, verb: str, part: Part, indices: Indices, work: Callable[[Part, int], None]) -> Indices:
        """Do `work` on images in threads (Pillow decodes outside the GIL); those it didn't fail on."""

        def works(index: int) -> bool:
            try:
                work(part, index)
            except Exception as problem:  # Pillow's readers raise nearly anything
                if self.skip_bad:
                    return False
                # Pillow's own words name a BytesIO object here.
                reason = "it is not an image" if isinstance(problem, UnidentifiedImageError) else problem
                mend = "mend it, or leave it out with --skip-bad"
                raise UserError(f"can't read {part.name(index)} ({reason}); {mend}") from problem
            return True

        chunks = np.split(indices, range(CHUNK, len(indices), CHUNK))
        good = []
        task = self.progress.task(f"{verb} {part.title} images", len(indices))
        with task as progress, ThreadPoolExecutor(os.cpu_count()) as pool:
            for chunk in pool.map(lambda chunk: chunk[[works(index) for index in chunk]], chunks):
                good.append(chunk)
                progress.advance(len(chunk))
        return np.concatenate(good)
