"""A small problem that several test files learn, and one member of an ensemble of two."""

import numpy as np
import torch

from bic import Dataset, ImageSet
from bic.data.images import array_set
from bic.model.backbones import Ensemble
from bic.model.network import Network


def toy_dataset(clearness: float, *, train: int = 24, test: int = 10) -> Dataset:
    """Six classes of 8 × 8 images, with `train` and `test` images per class.

    Each image is the pattern of its class with weight `clearness`, and noise. No two images are
    the same, and no image is its own mirror image.
    """
    patterns = np.random.default_rng(0).integers(0, 256, (6, 8, 8))

    def part(images_per_class: int, seed: int) -> ImageSet:
        labels = np.tile(np.arange(6), images_per_class).astype(np.int64)
        noise = np.random.default_rng(seed).integers(0, 256, (len(labels), 8, 8))
        pixels = clearness * patterns[labels] + (1 - clearness) * noise
        return array_set(pixels.astype(np.uint8), labels)

    return Dataset(name="toy", classes=tuple("abcdef"), train=part(train, 1), test=part(test, 2))


def alone(network: Network, number: int) -> Network:
    """One member of the ensemble small+small, with its part of the head, as a network."""
    assert isinstance(network.backbone, Ensemble)
    member = Network("small", channels=1, image_size=8)
    member.backbone.load_state_dict(network.backbone.members[number].state_dict())
    member.head.grow(network.num_classes)
    with torch.no_grad():
        member.head.weight.copy_(network.head.weight.chunk(2, dim=1)[number])
        member.head.bias.copy_(network.head.bias)
    return member
