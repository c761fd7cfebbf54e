"""Augmentation of batches. Every draw comes from the generator that is passed in."""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from bic.data.augmentation import Augmentation


def augment(images: Tensor, augmentation: Augmentation, draws: np.random.Generator) -> Tensor:
    """Crop, mirror and shift colours. images [n, channels, h, w] uint8; vectors are unchanged."""
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
