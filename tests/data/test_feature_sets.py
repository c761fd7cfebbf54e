"""Image sets with features, and small images that are enlarged when they are used."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from bic.data.augmentation import Augmentation
from bic.data.batches import Batches
from bic.data.fitting import fitted
from bic.data.images import Features, ImageSet, array_set, join
from bic.data.preprocessing import Preprocessing

LARGE = Preprocessing(channels=3, size=12, bicubic=True)


def with_numbers(first: int, count: int, *, files: bool = False) -> ImageSet:
    """Images whose only feature is their number; that of a mirrored image is negative."""
    numbers = torch.arange(first, first + count, dtype=torch.float16)[:, None]
    pixels = (
        np.arange(first, first + count, dtype=np.uint8)[:, None, None].repeat(4, 1).repeat(4, 2)
    )
    images = array_set(pixels, np.arange(count))
    if files:
        encoded = [images.encoded(index) for index in range(count)]
        images = replace(images, pixels=None, files=encoded)
    return replace(images, features=Features(numbers, -numbers))


def test_features_are_selected_and_joined_with_their_images() -> None:
    images = join([with_numbers(1, 4), with_numbers(10, 2, files=True)])
    assert images.features is not None
    assert images.take(images.everything)[:, 0].tolist() == [1, 2, 3, 4, 10, 11]
    chosen = images.select(np.array([5, 1]))
    assert chosen.take(chosen.everything).dtype == torch.float32
    assert chosen.take(chosen.everything)[:, 0].tolist() == [11, 2]
    decoded = chosen.preprocessing.decode(chosen.encoded(0))
    assert decoded[0, 0, 0] == 11  # the file is still that of the image


def test_pixels_are_used_if_not_all_images_have_features() -> None:
    plain = replace(with_numbers(7, 2), features=None)
    images = join([plain, with_numbers(1, 1)])
    assert images.features is None
    assert images.take(images.everything)[:, 0, 0, 0].tolist() == [7, 8, 1]


@pytest.mark.parametrize("flip", [False, True])
def test_training_draws_the_image_or_the_mirrored_one(flip: bool) -> None:
    images = with_numbers(1, 40)
    batches = Batches(images, (0, "test"), batch_size=40, augmentation=Augmentation(flip=flip))
    values = next(batches.epoch(0))[0][:, 0]
    assert sorted(values.abs().tolist()) == list(range(1, 41))
    assert torch.equal(values, next(batches.epoch(0))[0][:, 0])
    num_mirrored = int((values < 0).sum())
    assert 8 < num_mirrored < 32 if flip else num_mirrored == 0
    if flip:
        assert not torch.equal(values.sign(), next(batches.epoch(1))[0][:, 0].sign())


def test_many_small_images_are_enlarged_when_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 4, 4), dtype=np.uint8)
    images = array_set(pixels, np.zeros(5, dtype=np.int64))
    at_once = fitted(images, LARGE)
    assert at_once.pixels is not None
    assert at_once.pixels.shape == (5, 3, 12, 12)
    monkeypatch.setattr("bic.data.fitting.ENLARGED_BYTES", 0)
    later = fitted(images, LARGE)
    assert later.pixels is not None
    assert later.pixels.shape == (5, 1, 4, 4)
    taken = later.take(np.array([3, 1]))
    assert torch.equal(taken, at_once.pixels[[3, 1]])
    # The memory stores the small image; decoding it gives the same pixels.
    assert torch.equal(LARGE.decode(later.encoded(3)), taken[0])


def test_images_are_scaled_bicubically_or_bilinearly() -> None:
    pixels = np.zeros((3, 3, 1), dtype=np.uint8)
    pixels[1, 1] = 200
    bilinear = Preprocessing(channels=1, size=9).scale(pixels)
    bicubic = Preprocessing(channels=1, size=9, bicubic=True).scale(pixels)
    assert bilinear.max() == 200
    assert not torch.equal(bilinear, bicubic)
    pillow = Image.fromarray(pixels[:, :, 0]).resize((9, 9), Image.Resampling.BICUBIC)
    difference = bicubic[0].int() - torch.from_numpy(np.array(pillow)).int()
    assert difference.abs().max() <= 1
