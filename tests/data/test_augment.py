"""Augmentation: crops, mirroring and colours."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import bic.data.augment
from bic.data.augment import (
    GREY,
    augment,
    change_colours,
    crop_and_flip,
    cut_out,
    shift_colours,
    warp,
)
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
    everything = Augmentation(
        crop_padding=1, flip=True, brightness=3, contrast=0.1, warp=0.5, colour=0.1, cutout=2
    )
    assert augment(images, Augmentation(), np.random.default_rng(0)) is images
    assert augment(vectors, everything, np.random.default_rng(0)) is vectors


class Fixed:
    """Stands in for a generator whose draws are known."""

    def __init__(self, values: list[float]) -> None:
        self.values = np.array(values)

    def random(self, count: int) -> np.ndarray:
        return np.arange(count) / count  # with a share of 0.5, the first half is chosen

    def uniform(self, low: float, high: float, shape: tuple[int, int]) -> np.ndarray:
        return np.repeat(self.values[:, None], shape[1], axis=1)


def test_half_of_the_images_are_rotated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest angle is drawn: here a quarter turn, which moves every pixel onto another one."""
    monkeypatch.setattr(bic.data.augment, "LARGEST_ANGLE", np.pi / 2)
    images = torch.arange(4 * 3 * 6 * 6, dtype=torch.uint8).reshape(4, 3, 6, 6)
    warped = warp(images, 0.5, Fixed([1.0, 0.0, 0.0]))
    turned = images[:2].rot90(1, (2, 3)).float()
    assert warped.dtype == torch.float32
    assert torch.allclose(warped[:2], turned, atol=1e-3)
    assert torch.equal(warped[2:], images[2:].float())


def test_scale_and_shear_move_the_places_that_are_read() -> None:
    """Pixel values grow by 1 per column. At scale 1.15 the column x is read at 1.15·x from the
    centre, and with a shear of 0.2 the row y moves this by 1.15·0.2·y."""
    columns = torch.arange(16.0).repeat(16, 1)
    images = columns.to(torch.uint8).repeat(2, 1, 1, 1)
    warped = warp(images, 1.0, Fixed([0.0, 1.0, 1.0]))[0, 0]
    x = columns - 7.5
    y = columns.T - 7.5
    expected = 7.5 + 1.15 * (x + 0.2 * y)
    middle = slice(5, 11)
    assert torch.allclose(warped[middle, middle], expected[middle, middle], atol=1e-3)


def test_colours_by_hand() -> None:
    """One red and one black pixel: brightness × 1.2, contrast × 0.5, saturation × 0.8."""
    images = torch.zeros(1, 3, 1, 2, dtype=torch.uint8)
    images[0, 0, 0, 0] = 150
    changed = change_colours(images, 0.5, Fixed([1.2, 0.5, 0.8]))
    # Brightness: red is 180. The mean of the six values is 30. Contrast: 30 + (180 − 30) / 2 = 105,
    # and 15 for all others. Saturation: the first pixel has the grey 45, the second 15.
    first = [45 + 0.8 * (105 - 45), 45 + 0.8 * (15 - 45), 45 + 0.8 * (15 - 45)]
    assert changed[0, :, 0, 0].tolist() == pytest.approx(first)
    assert changed[0, :, 0, 1].tolist() == pytest.approx([15, 15, 15])


def test_colours_stay_within_the_range_of_pixels() -> None:
    images = torch.randint(0, 256, (50, 3, 4, 4), dtype=torch.uint8)
    changed = change_colours(images, 0.9, np.random.default_rng(0))
    assert changed.min() == 0
    assert changed.max() == 255


def test_a_square_is_erased_in_half_of_the_images() -> None:
    images = torch.zeros(2000, 3, 8, 8, dtype=torch.uint8)
    erased = cut_out(images, 4, np.random.default_rng(0)) == GREY
    assert not images.any()  # the images that were passed in do not change
    counts = erased[:, 0].flatten(1).sum(1)
    assert torch.equal(erased[:, 0], erased[:, 1])
    assert 900 < int((counts > 0).sum()) < 1100
    # A whole square has 16 pixels. One at a corner, whose centre is the first pixel, has 2 × 2.
    assert counts.max() == 16
    assert counts[counts > 0].min() == 4
    assert erased[:, 0].any(dim=0).all()  # any pixel may be erased
