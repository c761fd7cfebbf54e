"""Batches of images, shuffled and augmented or in order, prepared before they are needed."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from bic.compute.distributed import gathered_objects, world
from bic.data.augment import augment
from bic.data.augmentation import Augmentation
from bic.data.decode_pool import batches_ahead, decode_all
from bic.data.images import ImageSet, Indices
from bic.data.preprocessing import Cut
from bic.errors import UserError
from bic.randomness import Address, generator

Item = TypeVar("Item")


class Batches:
    """The images of a set in shuffled, augmented batches. Each image comes once per epoch.

    The order and the augmentation of a batch depend only on (address, epoch, batch), so any epoch
    can be made again without the earlier epochs. `workers` threads prepare images in memory; the
    decode pool prepares files. `pinned` puts batches into pinned memory for a GPU. With
    several processes, each gets its shard of every batch and augments it with its own draws.
    Raises UserError if a batch has fewer than two images per process.
    """

    def __init__(
        self,
        images: ImageSet,
        address: Address,
        *,
        batch_size: int,
        augmentation: Augmentation,
        workers: int = 0,
        pinned: bool = False,
    ) -> None:
        self.images = images
        self.address = address
        self.batch_size = batch_size
        self.augmentation = augmentation
        self.pinned = pinned
        self.workers = batches_ahead() if images.is_decoded else workers
        self.labels = torch.from_numpy(images.labels)
        self.world = world()
        self.may_break = images.may_break
        smallest_batch = len(images) // len(self)
        if smallest_batch < 2 * self.world.size:
            problem = (
                f"each of {self.world.size} processes needs two images of every batch, "
                f"but there are batches of {smallest_batch}"
            )
            raise UserError(problem, "raise {recipe.batch_size} or start fewer processes")

    def __len__(self) -> int:
        """The number of batches per epoch."""
        return max(1, min(round(len(self.images) / self.batch_size), len(self.images) // 2))

    def weight_of(self, number: int, count: int) -> float:
        """The weight of this process's mean over `count` images of batch `number`.

        With these weights, the mean over processes is the mean over the whole batch.
        """
        return count * self.world.size / self.size_of(number, count)

    def size_of(self, number: int, count: int) -> int:
        """The number of images of batch `number` in all processes; this one has `count` of them."""
        if self.may_break:
            return sum(gathered_objects(count))
        batch_size, num_larger = divmod(len(self.images), len(self))
        return batch_size + (number < num_larger)

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of an epoch: images [batch, channels, size, size] and labels [batch].

        Batches differ in size by at most one, so that none is too small for batch norm. If any
        process can read fewer than two images of a batch, all processes leave that batch out.
        """
        order = generator(*self.address, "shuffle", epoch).permutation(len(self.images))
        parts = enumerate(np.array_split(order, len(self)))
        makers = [partial(self._make, epoch, number, indices) for number, indices in parts]
        batches = ahead(makers, self.workers)
        return (batch for batch in batches if self._is_large_enough(batch))

    def _is_large_enough(self, batch: tuple[Tensor, Tensor]) -> bool:
        _, labels = batch
        return not self.may_break or min(gathered_objects(len(labels))) >= 2

    def _make(self, epoch: int, number: int, indices: Indices) -> tuple[Tensor, Tensor]:
        draws = generator(*self.address, "augment", epoch, number, *self.world.own_address)
        images, readable = self._augmented(self.world.share(indices), draws)
        if self.pinned:
            images = images.pin_memory()
        return images, self.labels[torch.from_numpy(readable)]

    def _augmented(self, indices: Indices, draws: np.random.Generator) -> tuple[Tensor, Indices]:
        augmentation = self.augmentation
        cuts = None
        if augmentation.random_resize is not None:
            sides = augmentation.random_resize
            cuts = random_cuts(len(indices), sides, draws, flip=augmentation.flip)
            augmentation = augmentation.model_copy(update={"flip": False})  # the cuts are mirrored
        features = self.images.features
        if features is not None and features.mirrored is not None and augmentation.flip:
            rows = torch.from_numpy(indices)
            is_mirrored = torch.from_numpy(draws.random(len(indices)) < 0.5)
            mixed = torch.where(is_mirrored[:, None], features.mirrored[rows], features.plain[rows])
            return mixed.float(), indices
        images, readable = self.images.take_readable(indices, cuts, decode=decode_all)
        return augment(images, augmentation, draws), readable


def random_cuts(
    count: int, sides: tuple[int, int], draws: np.random.Generator, *, flip: bool
) -> list[Cut]:
    """VGG's augmentation of `count` images: random scale, position and mirroring."""
    scaled_sides = draws.integers(sides[0], sides[1] + 1, count).tolist()
    x, y, coins = draws.random((3, count))
    mirrored = coins < (0.5 if flip else 0.0)
    return list(map(Cut, scaled_sides, x.tolist(), y.tolist(), mirrored.tolist()))


def ahead(makers: Sequence[Callable[[], Item]], workers: int) -> Iterator[Item]:
    """The results of `makers`, in order. `workers` threads make them while earlier ones are in use.

    At most two results per worker wait, so memory is bounded. Without workers the calling thread
    makes each result when it is asked for.
    """
    if not workers:
        for make in makers:
            yield make()
        return
    num_ahead = 2 * workers
    with ThreadPoolExecutor(workers, "batches") as pool:
        waiting = deque(pool.submit(make) for make in makers[:num_ahead])
        for make in makers[num_ahead:]:
            item = waiting.popleft().result()
            waiting.append(pool.submit(make))
            yield item
        while waiting:
            yield waiting.popleft().result()


def plain_batches(
    images: ImageSet, batch_size: int = 512, *, num_outputs: int = 1
) -> Iterator[tuple[Tensor, Indices]]:
    """The readable images in order, neither shuffled nor augmented, and their indices.

    Batches are smaller for images larger than 128 × 128, because a network needs about 100 times
    the memory of its input, and for more than 4,096 outputs per image. In a distributed run each
    process gets a contiguous shard.
    """
    side = images.preprocessing.size or 1
    largest_batch = max(1, min(2**23 // side**2, max(32, 2**21 // num_outputs)))
    batch_size = min(batch_size, largest_batch)
    shard = world().share(images.everything)
    starts = range(0, len(shard), batch_size)
    parts = [shard[start : start + batch_size] for start in starts]
    take = partial(images.take_readable, decode=decode_all)
    makers = [partial(take, indices) for indices in parts]
    workers = batches_ahead() if images.is_decoded else 0
    batches = ahead(makers, workers)
    return ((pixels, indices) for pixels, indices in batches if len(indices))
