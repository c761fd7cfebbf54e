"""Batches: which images come when, cut and augmented, made ahead of their use."""

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
from bic.data.decode import Cut
from bic.data.images import ImageSet, Indices
from bic.data.workers import batches_ahead
from bic.distributed import gathered_objects, world
from bic.errors import UserError
from bic.randomness import Address, generator

Made = TypeVar("Made")


class Batches:
    """An image set in shuffled, augmented batches; each image once an epoch.

    Order and augmentation of a batch depend on (address, epoch, batch) alone, so any epoch can be made again without
    the ones before it. Images in memory are prepared by `workers` threads, files by the decode processes if there are
    any. `pinned`: in memory from which a GPU fetches while it computes. Of several processes each gets its share of
    every batch, and augments it by draws of its own.
    """

    def __init__(
        self, images: ImageSet, recipe: Recipe, address: Address, *, workers: int = 0, pinned: bool = False
    ) -> None:
        self.images, self.recipe, self.address, self.pinned = images, recipe, address, pinned
        self.workers = batches_ahead() if images.pixels is None else workers
        self.labels = torch.from_numpy(images.labels)
        self.world = world()
        self.may_break = images.may_break
        if len(images) // len(self) < 2 * self.world.size:
            few = f"batches come to {len(images) // len(self)} images, too few for {self.world.size} processes"
            raise UserError(f"{few} of two each; raise recipe.batch_size or start fewer processes")

    def __len__(self) -> int:
        """Batches in an epoch."""
        return max(1, min(round(len(self.images) / self.recipe.batch_size), len(self.images) // 2))

    def weight_of(self, number: int, count: int) -> float:
        """What a mean over `count` images weighs in the mean over processes, to make that the whole batch's mean."""
        size, rest = divmod(len(self.images), len(self))
        whole = sum(gathered_objects(count)) if self.may_break else size + (number < rest)
        return count * self.world.size / whole

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Images [batch, channels, size, size] and labels [batch].

        Batches are of nearly equal size, so that none is too small for batch-norm. One of which any process can read
        fewer than two images is left out, by all of them.
        """
        order = generator(*self.address, "shuffle", epoch).permutation(len(self.images))

        def make(number: int, indices: Indices) -> tuple[Tensor, Tensor]:
            draws = generator(*self.address, "augment", epoch, number, *self.world.own_address)
            images, readable = self._cut(self.world.share(indices), draws)
            return images.pin_memory() if self.pinned else images, self.labels[torch.from_numpy(readable)]

        parts = enumerate(np.array_split(order, len(self)))
        made = ahead([partial(make, number, indices) for number, indices in parts], self.workers)
        return (batch for batch in made if not self.may_break or min(gathered_objects(len(batch[1]))) >= 2)

    def _cut(self, indices: Indices, draws: np.random.Generator) -> tuple[Tensor, Indices]:
        recipe, cuts = self.recipe, None
        if recipe.random_resize is not None:
            cuts = random_cuts(len(indices), recipe.random_resize, draws, flip=recipe.flip)
            recipe = recipe.model_copy(update={"flip": False})
        images, readable = self.images.take_readable(indices, cuts)
        return augment(images, recipe, draws), readable


def random_cuts(count: int, sides: tuple[int, int], draws: np.random.Generator, *, flip: bool) -> list[Cut]:
    """VGG's augmentation of so many images, drawn without looking at them."""
    chosen = draws.integers(sides[0], sides[1] + 1, count).tolist()
    x, y, coins = draws.random((3, count))
    return list(map(Cut, chosen, x.tolist(), y.tolist(), (coins < (0.5 if flip else 0.0)).tolist()))


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


def plain_batches(images: ImageSet, batch_size: int = 512, *, num_outputs: int = 1) -> Iterator[tuple[Tensor, Indices]]:
    """All images that can be read in their order, neither shuffled nor augmented, and their indices.

    Batches are smaller where images are larger than 128 × 128, since a network takes 100 times the memory of the image,
    and where each has more than 4,096 outputs. Of several processes each gets a share, in the order of the processes.
    """
    batch_size = min(batch_size, max(32, min(2**23 // (images.view.size or 1) ** 2, 2**21 // num_outputs)))
    own = world().share(images.everything)
    parts = [own[start : start + batch_size] for start in range(0, len(own), batch_size)]
    threads = batches_ahead() if images.pixels is None else 0
    made = ahead([partial(images.take_readable, indices) for indices in parts], threads)
    return (batch for batch in made if len(batch[1]))
