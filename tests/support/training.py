"""Recipes, images and networks for tests of the training loop."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bic import ImageSet, Recipe
from bic.data.batches import Batches
from bic.data.images import array_set
from bic.learn.losses import Losses, classification
from bic.learn.train import Training, fit
from bic.model.network import Network


def plain_recipe(**changes: Any) -> Recipe:
    """Three epochs of SGD without augmentation."""
    plain = {
        "name": "test",
        "backbone": "small",
        "epochs": 3,
        "batch_size": 8,
        "learning_rate": 0.1,
    }
    return Recipe.model_validate({**plain, **changes})


def batches_for(recipe: Recipe, images: ImageSet, *address: int | str) -> Batches:
    """The batches that the recipe asks for."""
    return Batches(images, address, batch_size=recipe.batch_size, augmentation=recipe.augmentation)


def train(
    module: nn.Module, recipe: Recipe, images: ImageSet, loss: Any, seed: int = 0, **options: Any
) -> Training:
    """Train a module from the start."""
    training = Training.start(module, recipe)
    fit(training, batches_for(recipe, images, seed), loss, recipe, **options)
    return training


def numbered_images(count: int) -> ImageSet:
    """Image i is a single pixel of value i, with label i % 4."""
    pixels = np.arange(count, dtype=np.uint8).reshape(count, 1, 1)
    return array_set(pixels, np.arange(count, dtype=np.int64) % 4)


def noisy_images(count: int, seed: int = 0) -> ImageSet:
    """Images of 8 × 8 pixels in four classes, which differ in brightness."""
    draws = np.random.default_rng(seed)
    labels = np.arange(count, dtype=np.int64) % 4
    pixels = draws.integers(0, 100, (count, 8, 8)) + 40 * labels[:, None, None]
    return array_set(pixels.astype(np.uint8), labels)


def small_network(seed: int = 0) -> Network:
    """A small network for `noisy_images`."""
    torch.manual_seed(seed)
    network = Network("small", channels=1, image_size=8)
    network.prepare(noisy_images(40).take(np.arange(40)))
    network.head.grow(4)
    return network


def classification_loss(logits: Tensor, labels: Tensor, targets: Tensor | None) -> Losses:
    return {"classification": classification(logits, labels)}


def copied(module: nn.Module) -> dict[str, Tensor]:
    """A copy of the module's state."""
    return {name: value.clone() for name, value in module.state_dict().items()}
