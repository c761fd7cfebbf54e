"""Augmentation of batches. Every draw comes from the generator that is passed in."""

import math
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bic.data.augmentation import Augmentation

# The ranges of `warp`.
LARGEST_ANGLE = math.radians(15)
LARGEST_SCALE = 0.15
LARGEST_SHEAR = 0.2
GREY = 128  # of an erased square


def augment(images: Tensor, augmentation: Augmentation, draws: np.random.Generator) -> Tensor:
    """Crop, mirror, warp, change colours and erase. Vectors are unchanged.

    images [n, channels, h, w] are uint8. Some augmentations return float32 in 0..255.
    """
    if images.ndim != 4:
        return images
    if augmentation.crop_padding or augmentation.flip:
        images = crop_and_flip(
            images,
            augmentation.crop_padding,
            draws,
            flip=augmentation.flip,
            fill=augmentation.crop_fill,
        )
    if augmentation.brightness or augmentation.contrast:
        images = shift_colours(images, augmentation.brightness, augmentation.contrast, draws)
    if augmentation.warp:
        images = warp(images, augmentation.warp, draws)
    if augmentation.colour:
        images = change_colours(images, augmentation.colour, draws)
    if augmentation.cutout:
        images = cut_out(images, augmentation.cutout, draws)
    return images


def crop_and_flip(
    images: Tensor,
    padding: int,
    draws: np.random.Generator,
    *,
    flip: bool,
    fill: Literal["black", "mirror"] = "black",
) -> Tensor:
    """Move each image by up to `padding` pixels, and mirror it with probability 1/2 if `flip`.

    The border that appears is black, or the image mirrored at its edge. images [n, channels, h, w].
    """
    # Copying slices is twenty times as fast as an indexed gather. It uses none of torch's threads,
    # so an update of the network can run at the same time.
    pixels = images.permute(0, 2, 3, 1).numpy()
    count, height, width, _ = pixels.shape
    border = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    padded = np.pad(pixels, border, mode="constant" if fill == "black" else "reflect")
    tops, lefts = draws.integers(0, 2 * padding + 1, (2, count)).tolist()
    is_mirrored = np.less(draws.random(count), 0.5 if flip else 0.0).tolist()
    moved = np.empty(pixels.shape, pixels.dtype)
    for target, image, top, left, mirrored in zip(
        moved, padded, tops, lefts, is_mirrored, strict=True
    ):
        crop = image[top : top + height, left : left + width]
        target[...] = crop[:, ::-1] if mirrored else crop
    return torch.from_numpy(moved).permute(0, 3, 1, 2)


def shift_colours(
    images: Tensor, brightness: float, contrast: float, draws: np.random.Generator
) -> Tensor:
    """EEIL's augmentation: a brightness shift per image and a contrast factor per channel.

    Returns float32 in 0..255.
    """
    pixels = images.permute(0, 2, 3, 1).numpy().astype(np.float32)
    count, *_, channels = pixels.shape
    shift = draws.uniform(-brightness, brightness, (count, 1, 1, 1)).astype(np.float32)
    factor = draws.uniform(1 - contrast, 1 + contrast, (count, 1, 1, channels)).astype(np.float32)
    mean = pixels.mean(axis=(1, 2), keepdims=True)
    pixels = np.clip((pixels - mean) * factor + mean + shift, 0, 255)
    return torch.from_numpy(pixels).permute(0, 3, 1, 2)


def warp(images: Tensor, share: float, draws: np.random.Generator) -> Tensor:
    """Rotate, scale and shear this share of the images. Returns float32 in 0..255.

    Pixels from outside of an image are those of the image mirrored at its edge.
    """
    count = len(images)
    is_warped = torch.from_numpy(draws.random(count) < share)
    angle, scale, shear = torch.from_numpy(draws.uniform(-1, 1, (3, count))).float()
    angle = angle * LARGEST_ANGLE
    scale = 1 + scale * LARGEST_SCALE
    across = shear * LARGEST_SHEAR - angle.sin()
    rows = [
        torch.stack([angle.cos(), across, torch.zeros(count)], dim=1),
        torch.stack([angle.sin(), angle.cos(), torch.zeros(count)], dim=1),
    ]
    maps = torch.stack(rows, dim=1) * scale[:, None, None]
    warped = images.float().clone()
    chosen = warped[is_warped]
    grid = F.affine_grid(maps[is_warped], list(chosen.shape), align_corners=False)
    warped[is_warped] = F.grid_sample(chosen, grid, padding_mode="reflection", align_corners=False)
    return warped


def change_colours(images: Tensor, change: float, draws: np.random.Generator) -> Tensor:
    """Multiply brightness, contrast and saturation of each image by factors in 1 ± change.

    Returns float32 in 0..255.
    """
    factors = torch.from_numpy(draws.uniform(1 - change, 1 + change, (3, len(images)))).float()
    brightness, contrast, saturation = factors[:, :, None, None, None]
    pixels = images.float() * brightness
    mean = pixels.mean(dim=(1, 2, 3), keepdim=True)
    pixels = (pixels - mean) * contrast + mean
    grey = pixels.mean(dim=1, keepdim=True)
    pixels = (pixels - grey) * saturation + grey
    in_range: Tensor = pixels.clamp_(0, 255)
    return in_range


def cut_out(images: Tensor, side: int, draws: np.random.Generator) -> Tensor:
    """Erase a square in half of the images. Its centre is any pixel, so that it may be cut off."""
    count, _, height, width = images.shape
    images = images.clone()
    tops = draws.integers(-(side // 2), height - side // 2, count).tolist()
    lefts = draws.integers(-(side // 2), width - side // 2, count).tolist()
    for index in np.flatnonzero(draws.random(count) < 0.5).tolist():
        top, left = tops[index], lefts[index]
        images[index, :, max(0, top) : top + side, max(0, left) : left + side] = GREY
    return images
