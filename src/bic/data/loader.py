"""Batches: which images come when, cut and augmented."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from bic.config import Recipe
from bic.data.augment import augment
from bic.data.images import ImageSet, Indices, open_image, resize_shorter, stacked, to_pixels
from bic.randomness import Address, generator

Made = TypeVar("Made")


class Batches:
    """An image set in shuffled, augmented batches; each image once an epoch.

    Order and augmentation of a batch depend on (address, epoch, batch) alone, so any epoch can be made again without
    the ones before it.
    """

    def __init__(self, images: ImageSet, recipe: Recipe, address: Address, *, workers: int = 0) -> None:
        self.images, self.recipe, self.address, self.workers = images, recipe, address, workers
        self.labels = torch.from_numpy(images.labels)

    def __len__(self) -> int:
        """Batches in an epoch."""
        return max(1, min(round(len(self.images) / self.recipe.batch_size), len(self.images) // 2))

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Images [batch, channels, size, size] and labels [batch].

        Batches are of nearly equal size, so that none is too small for batch-norm.
        """
        order = generator(*self.address, "shuffle", epoch).permutation(len(self.images))

        def make(number: int, indices: Indices) -> tuple[Tensor, Tensor]:
            draws = generator(*self.address, "augment", epoch, number)
            return self._cut(indices, draws), self.labels[torch.from_numpy(indices)]

        parts = enumerate(np.array_split(order, len(self)))
        return ahead([partial(make, number, indices) for number, indices in parts], self.workers)

    def _cut(self, indices: Indices, draws: np.random.Generator) -> Tensor:
        if self.recipe.random_resize is None:
            return augment(self.images.take(indices), self.recipe, draws)
        pixels = stacked([self._resized_crop(int(index), draws) for index in indices])
        return augment(pixels, self.recipe, draws)

    def _resized_crop(self, index: int, draws: np.random.Generator) -> Tensor:
        """VGG's preprocessing: shorter side to a random length, then a random square."""
        size = self.recipe.image_size
        assert size is not None
        assert self.recipe.random_resize is not None
        image = open_image(self.images.encoded(index), channels=self.images.view.channels)
        low, high = self.recipe.random_resize
        image = resize_shorter(image, int(draws.integers(low, high + 1)))
        left = int(draws.integers(image.width - size + 1))
        top = int(draws.integers(image.height - size + 1))
        return to_pixels(image.crop((left, top, left + size, top + size)))


def ahead(makers: Sequence[Callable[[], Made]], workers: int) -> Iterator[Made]:
    """What the makers make, in their order, made by threads while earlier ones are in use; without workers, in line.

    At most two a worker are waiting, so that memory is bounded.
    """
    if not workers:
        yield from (make() for make in makers)
        return
    with ThreadPoolExecutor(workers, "batches") as pool:
        waiting = deque(pool.submit(make) for make in makers[: 2 * workers])
        for make in (*makers[2 * workers :], *(None,) * len(waiting)):
            made = waiting.popleft().result()
            if make is not None:
                waiting.append(pool.submit(make))
            yield made


def plain_batches(images: ImageSet, batch_size: int = 512) -> Iterator[tuple[Tensor, Indices]]:
    """All images in their order, neither shuffled nor augmented."""
    for start in range(0, len(images), batch_size):
        indices = images.everything[start : start + batch_size]
        yield images.take(indices), indices
