"""A small problem that several test files learn, and one of two networks side by side."""

import numpy as np
import torch

from bic import Dataset, ImageSet
from bic.data.images import array_set
from bic.model.network import Network


def toy_dataset(clearness: float, *, train: int = 24, test: int = 10) -> Dataset:
    """Six classes of 8 × 8 images, so many of each; no two images are the same, and none is its own mirror image.

    Each image is its class's pattern with weight `clearness`, the rest noise.
    """
    patterns = np.random.default_rng(0).integers(0, 256, (6, 8, 8))

    def part(per_class: int, seed: int) -> ImageSet:
        labels = np.tile(np.arange(6), per_class).astype(np.int64)
        noise = np.random.default_rng(seed).integers(0, 256, (len(labels), 8, 8))
        return array_set(
            (clearness * patterns[labels] + (1 - clearness) * noise).astype(np.uint8), labels
        )

    return Dataset(name="toy", classes=tuple("abcdef"), train=part(train, 1), test=part(test, 2))


def alone(network: Network, number: int) -> Network:
    """One of two small backbones side by side, with its part of the head, as a network of its own."""
    one = Network("small", channels=1, image_size=8)
    one.backbone.load_state_dict(network.backbone.members[number].state_dict())  # type: ignore[union-attr, index]
    one.head.grow(network.num_classes)
    with torch.no_grad():
        one.head.weight.copy_(network.head.weight.chunk(2, dim=1)[number])
        one.head.bias.copy_(network.head.bias)
    return one
