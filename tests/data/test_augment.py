"""Augmentation: crops, mirroring and colours."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bic.data.augment import augment, crop_and_flip, shift_colours
from bic.data.augmentation import Augmentation


@pytest.mark.parametrize("flip", [True, False])
def test_crops_are_shifted_and_perhaps_mirrored_images(flip: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(1, 256, (400, 3, 5, 4), generator=generator, dtype=torch.uint8)
    crops = crop_and_flip(images, 2, np.random.default_rng(0), flip=flip)
    assert crops.dtype == torch.uint8
    offsets = set()
    num_mirrored = 0
    for image, crop in zip(images, crops, strict=True):
        padded = torch.zeros(3, 9, 8, dtype=torch.uint8)
        padded[:, 2:7, 2:6] = image
        matches = []
        for top in range(5):
            for left in range(5):
                candidate = padded[:, top : top + 5, left : left + 4]
                if torch.equal(crop, candidate):
                    matches.append((top, left, False))
                if torch.equal(crop, candidate.flip(2)):
                    matches.append((top, left, True))
        ((top, left, mirrored),) = matches
        offsets.add((top, left))
        num_mirrored += mirrored
    assert offsets == {(top, left) for top in range(5) for left in range(5)}
    if flip:
        assert 150 < num_mirrored < 250
    else:
        assert num_mirrored == 0


def test_crops_can_be_filled_with_the_mirrored_image() -> None:
    images = torch.arange(25, dtype=torch.uint8).reshape(1, 1, 5, 5).repeat(300, 1, 1, 1)
    crops = crop_and_flip(images, 2, np.random.default_rng(0), flip=False, fill="mirror")
    # Moved by two to the right and down, rows and columns 0 and 1 show columns and rows 2 and 1.
    row = [2, 1, 0, 1, 2]
    corner = torch.tensor([[5 * y + x for x in row] for y in row], dtype=torch.uint8)
    num_corners = sum(torch.equal(crop[0], corner) for crop in crops)
    assert num_corners > 300 / 25 / 3
    num_zeros = (crops == 0).flatten(1).sum(1)
    assert num_zeros.max() <= 4  # only pixel (0, 0) is 0, and it appears at most four times


def test_colours_shift_within_the_published_ranges() -> None:
    # Half the pixels are 118 and half 138: the mean is 128, and nothing reaches 0 or 255.
    images = torch.full((2000, 3, 2, 2), 118, dtype=torch.uint8)
    images[:, :, 0] = 138
    shifted = shift_colours(images, 63, 0.8, np.random.default_rng(0))
    shifts = shifted.mean(dim=(2, 3)) - 128
    one_per_image = shifts[:, :1].expand(-1, 3)
    torch.testing.assert_close(shifts, one_per_image, atol=1e-3, rtol=0)
    assert shifts.abs().max() <= 63
    assert shifts.min() < -60
    assert shifts.max() > 60
    factors = (shifted[:, :, 0, 0] - shifted[:, :, 1, 0]) / 20
    assert 0.2 <= factors.min() < 0.22
    assert 1.78 < factors.max() <= 1.8
    assert (factors[:, 0] - factors[:, 1]).abs().mean() > 0.3  # every channel has its own


def test_colours_stay_within_pixel_values() -> None:
    images = torch.tensor([0, 255], dtype=torch.uint8).repeat(50, 3, 4, 1)
    shifted = shift_colours(images, 63, 0.8, np.random.default_rng(0))
    assert shifted.min() == 0
    assert shifted.max() == 255


def test_no_augmentation_and_vectors_change_nothing() -> None:
    images = torch.zeros(2, 1, 3, 3, dtype=torch.uint8)
    vectors = torch.ones(2, 5)
    everything = Augmentation(crop_padding=1, flip=True, brightness=3, contrast=0.1)
    assert augment(images, Augmentation(), np.random.default_rng(0)) is images
    assert augment(vectors, everything, np.random.default_rng(0)) is vectors
