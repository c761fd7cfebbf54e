"""Batches: which images come when, cut and augmented."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from bic.config import Recipe
from bic.data.augment import augment
from bic.data.images import ImageSet, Indices, open_image, resize_shorter, to_pixels
from bic.randomness import Address, generator


class Batches:
    """An image set in shuffled, augmented batches; each image once an epoch.

    Order and augmentation of a batch depend on (address, epoch, batch) alone, so any epoch can be made again without
    the ones before it.
    """

    def __init__(self, images: ImageSet, recipe: Recipe, address: Address) -> None:
        self.images, self.recipe, self.address = images, recipe, address
        self.labels = torch.from_numpy(images.labels)

    def __len__(self) -> int:
        """Batches in an epoch."""
        return max(1, min(round(len(self.images) / self.recipe.batch_size), len(self.images) // 2))

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Images [batch, channels, size, size] and labels [batch].

        Batches are of nearly equal size, so that none is too small for batch-norm.
        """
        order = generator(*self.address, "shuffle", epoch).permutation(len(self.images))
        for number, indices in enumerate(np.array_split(order, len(self))):
            draws = generator(*self.address, "augment", epoch, number)
            yield self._cut(indices, draws), self.labels[torch.from_numpy(indices)]

    def _cut(self, indices: Indices, draws: np.random.Generator) -> Tensor:
        if self.recipe.random_resize is None:
            return augment(self.images.take(indices), self.recipe, draws)
        pixels = torch.stack([self._resized_crop(int(index), draws) for index in indices])
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


def plain_batches(images: ImageSet, batch_size: int = 512) -> Iterator[tuple[Tensor, Indices]]:
    """All images in their order, neither shuffled nor augmented."""
    for start in range(0, len(images), batch_size):
        indices = images.everything[start : start + batch_size]
        yield images.take(indices), indices
