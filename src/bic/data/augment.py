"""Batch augmentation on tensors. Every draw comes from the generator that is passed in."""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from bic.config import Recipe


def augment(images: Tensor, recipe: Recipe, draws: np.random.Generator) -> Tensor:
    """Crop, mirror and shift colours as the recipe says. images [n, channels, h, w] uint8."""
    if images.ndim != 4:
        return images
    if recipe.crop_padding or recipe.flip:
        fill = recipe.crop_fill
        images = crop_and_flip(images, recipe.crop_padding, draws, flip=recipe.flip, fill=fill)
    if recipe.brightness or recipe.contrast:
        images = shift_colours(images, recipe.brightness, recipe.contrast, draws)
    return images


def crop_and_flip(
    images: Tensor, padding: int, draws: np.random.Generator, *, flip: bool, fill: Literal["black", "mirror"] = "black"
) -> Tensor:
    """Each image moved by up to `padding` pixels, and mirrored half the time.

    Black comes in at the side, or the image itself, mirrored at its edge.

    Images are copied slice by slice: twenty times as fast as an indexed gather, and without torch's threads, so that it
    can go on beside an update.
    """
    pixels = images.permute(0, 2, 3, 1).numpy()
    count, height, width, _ = pixels.shape
    around = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    padded = np.pad(pixels, around, mode="constant" if fill == "black" else "reflect")
    tops, lefts = draws.integers(0, 2 * padding + 1, (2, count)).tolist()
    mirrored = np.less(draws.random(count), 0.5 if flip else 0.0).tolist()
    moved = np.empty(pixels.shape, pixels.dtype)
    for into, image, top, left, mirror in zip(moved, padded, tops, lefts, mirrored, strict=True):
        cut = image[top : top + height, left : left + width]
        into[...] = cut[:, ::-1] if mirror else cut
    return torch.from_numpy(moved).permute(0, 3, 1, 2)


def shift_colours(images: Tensor, brightness: float, contrast: float, draws: np.random.Generator) -> Tensor:
    """EEIL's enhancement: a brightness shift per image, a contrast factor per channel."""
    pixels = images.permute(0, 2, 3, 1).numpy().astype(np.float32)
    count, *_, channels = pixels.shape
    shift = draws.uniform(-brightness, brightness, (count, 1, 1, 1)).astype(np.float32)
    factor = draws.uniform(1 - contrast, 1 + contrast, (count, 1, 1, channels)).astype(np.float32)
    mean = pixels.mean(axis=(1, 2), keepdims=True)
    pixels = np.clip((pixels - mean) * factor + mean + shift, 0, 255)
    return torch.from_numpy(pixels).permute(0, 3, 1, 2)
