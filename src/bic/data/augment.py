"""Batch augmentation on tensors. Every draw comes from the generator that is passed in."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bic.config import Recipe


def augment(images: Tensor, recipe: Recipe, draws: np.random.Generator) -> Tensor:
    """Crop, mirror and shift colours as the recipe says. images [n, channels, h, w] uint8."""
    if images.ndim != 4:
        return images
    if recipe.crop_padding or recipe.flip:
        images = crop_and_flip(images, recipe.crop_padding, draws, flip=recipe.flip)
    if recipe.brightness or recipe.contrast:
        images = shift_colours(images, recipe.brightness, recipe.contrast, draws)
    return images


def crop_and_flip(images: Tensor, padding: int, draws: np.random.Generator, *, flip: bool) -> Tensor:
    """Each image moved by up to `padding` pixels (black comes in), and mirrored half the time."""
    count, channels, height, width = images.shape
    padded = F.pad(images, (padding,) * 4)
    top, left = torch.from_numpy(draws.integers(0, 2 * padding + 1, (2, count)))
    mirrored = torch.from_numpy(draws.random(count) < 0.5)
    rows = top[:, None] + torch.arange(height)
    columns = torch.arange(width).expand(count, width)
    if flip:
        columns = torch.where(mirrored[:, None], width - 1 - columns, columns)
    columns = left[:, None] + columns
    image, channel = torch.arange(count)[:, None, None, None], torch.arange(channels)[None, :, None, None]
    return padded[image, channel, rows[:, None, :, None], columns[:, None, None, :]]


def shift_colours(images: Tensor, brightness: float, contrast: float, draws: np.random.Generator) -> Tensor:
    """EEIL's enhancement: a brightness shift per image, a contrast factor per channel."""
    count, channels = images.shape[:2]
    shift = torch.from_numpy(draws.uniform(-brightness, brightness, (count, 1, 1, 1)).astype("f"))
    factor = torch.from_numpy(draws.uniform(1 - contrast, 1 + contrast, (count, channels, 1, 1)).astype("f"))
    values = images.float()
    mean = values.mean(dim=(2, 3), keepdim=True)
    return ((values - mean) * factor + mean + shift).clamp_(0, 255)
