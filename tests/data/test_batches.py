"""Batches: order, size, threads, shards of several processes."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from bic.compute.distributed import World
from bic.data.augmentation import Augmentation
from bic.data.batches import Batches, ahead, plain_batches, random_cuts
from bic.data.images import ImageSet, array_set
from bic.errors import UserError
from bic.randomness import generator

PLAIN = Augmentation()
STRONG = Augmentation(
    crop_padding=2, flip=True, brightness=10, contrast=0.3, warp=0.5, colour=0.2, cutout=3
)


def numbered_images(count: int) -> ImageSet:
    """Image i is a single pixel of value i, and its label is i."""
    pixels = np.arange(count, dtype=np.uint8).reshape(count, 1, 1)
    return array_set(pixels, np.arange(count))


def noisy_images(count: int) -> ImageSet:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 8, 8), dtype=np.uint8)
    return array_set(pixels, np.arange(count))


def order_of(batches: Batches, epoch: int) -> list[int]:
    return torch.cat([labels for _, labels in batches.epoch(epoch)]).tolist()


@pytest.mark.parametrize(
    ("num_images", "batch_size", "sizes"),
    [(10, 4, [5, 5]), (8, 4, [4, 4]), (5, 4, [5]), (3, 4, [3]), (7, 2, [3, 2, 2]), (3, 1, [3])],
)
def test_each_image_comes_once_per_epoch_in_batches_of_nearly_one_size(
    num_images: int, batch_size: int, sizes: list[int]
) -> None:
    images = numbered_images(num_images)
    batches = Batches(images, (0,), batch_size=batch_size, augmentation=PLAIN)
    epoch = list(batches.epoch(0))
    assert [len(labels) for _, labels in epoch] == sizes
    assert len(batches) == len(sizes)
    for pixels, labels in epoch:
        assert pixels.flatten().tolist() == labels.tolist()
    assert sorted(order_of(batches, 0)) == list(range(num_images))


def test_the_order_depends_only_on_address_and_epoch() -> None:
    images = numbered_images(40)
    batches = Batches(images, (3,), batch_size=8, augmentation=PLAIN)
    first = order_of(batches, 1)
    np.random.seed(99)
    torch.manual_seed(99)
    assert order_of(Batches(images, (3,), batch_size=5, augmentation=PLAIN), 1) == first
    assert order_of(batches, 2) != first
    assert order_of(Batches(images, (4,), batch_size=8, augmentation=PLAIN), 1) != first


def test_the_augmentation_depends_only_on_address_and_epoch() -> None:
    images = noisy_images(24)
    first = list(Batches(images, (3,), batch_size=8, augmentation=STRONG).epoch(1))
    np.random.seed(99)
    torch.manual_seed(99)
    again = Batches(images, (3,), batch_size=8, augmentation=STRONG)
    for (pixels, _), (same_pixels, _) in zip(first, again.epoch(1), strict=True):
        assert torch.equal(pixels, same_pixels)
    other_epoch, _ = next(again.epoch(2))
    assert not torch.equal(first[0][0], other_epoch)


@pytest.mark.parametrize("workers", [1, 3, 10])
def test_any_number_of_workers_makes_the_same_batches(workers: int) -> None:
    images = noisy_images(90)
    alone = Batches(images, (3,), batch_size=8, augmentation=STRONG)
    together = Batches(images, (3,), batch_size=8, augmentation=STRONG, workers=workers)
    pairs = zip(alone.epoch(2), together.epoch(2), strict=True)
    for (pixels, labels), (same_pixels, same_labels) in pairs:
        assert torch.equal(pixels, same_pixels)
        assert torch.equal(labels, same_labels)


def test_workers_are_at_most_two_batches_ahead_each() -> None:
    made: list[int] = []

    def make(number: int) -> int:
        made.append(number)
        return number

    batches = ahead([partial(make, number) for number in range(20)], 2)
    for number in range(5):
        assert next(batches) == number
        assert len(made) <= number + 1 + 4
    batches.close()
    assert len(made) < 20


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_in_a_worker_is_raised_in_its_place(workers: int) -> None:
    def broken() -> int:
        raise ValueError("broken image")

    batches = ahead([lambda: 1, broken, lambda: 3], workers)
    assert next(batches) == 1
    with pytest.raises(ValueError, match="broken image"):
        next(batches)


@pytest.mark.parametrize("workers", [0, 1, 3, 30])
def test_everything_is_made_in_order(workers: int) -> None:
    assert list(ahead([partial(int, number) for number in range(10)], workers)) == list(range(10))


def test_every_process_gets_a_shard_of_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards differ by at most one image. Weighted, their mean is the mean of the whole batch."""
    images = array_set(np.zeros((60, 2), np.float32), np.arange(60))
    shards = []
    weights = []
    for rank in range(3):
        monkeypatch.setattr("bic.data.batches.world", lambda rank=rank: World(rank, 3))
        batches = Batches(images, (0,), batch_size=20, augmentation=PLAIN)
        labels_of_batches = [labels for _, labels in batches.epoch(0)]
        shards.append(torch.cat(labels_of_batches).tolist())
        sizes = [len(labels) for labels in labels_of_batches]
        weights.append([batches.weight_of(number, size) for number, size in enumerate(sizes)])
    assert sorted(label for shard in shards for label in shard) == list(range(60))
    assert [len(shard) for shard in shards] == [21, 21, 18]  # three batches of 7 + 7 + 6
    assert np.mean(weights, axis=0) == pytest.approx([1, 1, 1])
    assert weights[2] == pytest.approx([6 * 3 / 20] * 3)


def test_too_many_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    images = array_set(np.zeros((60, 2), np.float32), np.arange(60))
    monkeypatch.setattr("bic.data.batches.world", lambda: World(0, 11))
    with pytest.raises(UserError, match=r"11 processes .* batches of 20; .*recipe.batch_size"):
        Batches(images, (0,), batch_size=20, augmentation=PLAIN)


def test_batches_are_pinned_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    num_pinned = []

    def pin(images: torch.Tensor) -> torch.Tensor:
        num_pinned.append(len(images))
        return images

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    images = numbered_images(30)
    list(Batches(images, (3,), batch_size=7, augmentation=PLAIN).epoch(0))
    assert num_pinned == []
    list(Batches(images, (3,), batch_size=7, augmentation=PLAIN, pinned=True).epoch(0))
    assert sum(num_pinned) == 30


def test_random_cuts_are_uniform_and_mirrored_only_if_asked_for() -> None:
    cuts = random_cuts(20_000, (48, 96), generator("cuts"), flip=True)
    sides = np.array([cut.side for cut in cuts])
    x = np.array([cut.x for cut in cuts])
    y = np.array([cut.y for cut in cuts])
    assert (sides.min(), sides.max()) == (48, 96)
    assert sides.mean() == pytest.approx(72, abs=0.5)
    assert x.mean() == pytest.approx(0.5, abs=0.01)
    assert y.mean() == pytest.approx(0.5, abs=0.01)
    assert np.corrcoef(x, y)[0, 1] == pytest.approx(0, abs=0.03)
    assert np.mean([cut.mirrored for cut in cuts]) == pytest.approx(0.5, abs=0.02)
    unmirrored = random_cuts(100, (48, 96), generator("cuts"), flip=False)
    assert not any(cut.mirrored for cut in unmirrored)


def test_random_resize_cuts_images_that_are_in_memory() -> None:
    """They are encoded without loss first: a crop of the full side is the image itself."""
    images = noisy_images(6)
    augmentation = Augmentation(random_resize=(8, 8))
    for pixels, labels in Batches(images, (3,), batch_size=3, augmentation=augmentation).epoch(0):
        assert torch.equal(pixels, images.take(labels.numpy()))


def test_plain_batches_keep_order_and_pixels() -> None:
    parts = list(plain_batches(numbered_images(10), batch_size=4))
    assert [indices.tolist() for _, indices in parts] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert torch.cat([pixels.flatten() for pixels, _ in parts]).tolist() == list(range(10))


@pytest.mark.parametrize(
    ("num_outputs", "batch_size"), [(10, 512), (4096, 512), (10_000, 209), (100_000, 32)]
)
def test_plain_batches_times_outputs_are_bounded(num_outputs: int, batch_size: int) -> None:
    images = array_set(np.zeros((1000, 3), np.float32), np.zeros(1000, np.int64))
    _, indices = next(plain_batches(images, num_outputs=num_outputs))
    assert len(indices) == batch_size


@pytest.mark.parametrize(("side", "batch_size"), [(128, 512), (256, 128), (600, 23), (4096, 1)])
def test_plain_batches_of_large_images_are_smaller(side: int, batch_size: int) -> None:
    image = array_set(np.zeros((1, side, side), np.uint8), np.zeros(1, np.int64))
    assert image.pixels is not None
    images = ImageSet(
        labels=np.zeros(600, np.int64),
        preprocessing=image.preprocessing,
        pixels=image.pixels.expand(600, -1, -1, -1),
    )
    _, indices = next(plain_batches(images))
    assert len(indices) == batch_size
