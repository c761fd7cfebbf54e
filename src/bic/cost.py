"""What a run will cost here: images to train on, and the time of one."""

import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from bic.config import Plan, Recipe
from bic.data.images import Dataset
from bic.methods import Method
from bic.network import Network
from bic.randomness import seeded

TIMED_UPDATES, TIMED_SECONDS = 3, 0.3  # at least


def images_trained_on(recipe: Recipe, method: Method, *, num_images: int, num_exemplars: int, num_steps: int) -> int:
    """Over all epochs of all steps, roughly: equal steps, and a memory that is always full."""
    first = num_images // num_steps
    epochs, first_epochs = recipe.epochs, recipe.first_epochs or recipe.epochs
    if method.sees_old_data == "network":  # every step anew, on all that was seen
        return first_epochs * first * num_steps * (num_steps + 1) // 2
    exemplars = min(num_exemplars, num_images) * (num_steps - 1) if method.keeps_exemplars else 0
    return first_epochs * first + epochs * (num_images - first + exemplars)


def with_teacher(method: Method) -> float:
    """An update's cost, where a student's forward and backward pass are 1: the teacher's forward pass is a third."""
    return 4 / 3 if method.uses_teacher else 1.0


def seconds_per_image(network: Network, images: Tensor, forward: Callable[[Tensor], Tensor] | None = None) -> float:
    """The time of an update without teacher and optimiser, per image: the quickest of several on this batch."""
    labels = torch.zeros(len(images) * network.num_members, dtype=torch.int64)
    network.train()
    times: list[float] = []
    while len(times) < TIMED_UPDATES or sum(times) < TIMED_SECONDS:
        began = time.perf_counter()
        scores = (forward or network)(images)
        torch.autograd.grad(F.cross_entropy(scores, labels), list(network.parameters()))
        times.append(time.perf_counter() - began)
    return min(times) / len(images)


def fresh_network(backbone: str, *, channels: int, image_size: int | None, num_classes: int) -> Network:
    with seeded("check"):
        network = Network(backbone, channels=channels, image_size=image_size)
        network.head.grow(num_classes)
    return network


def network_and_batch(plan: Plan, dataset: Dataset) -> tuple[Network, Tensor]:
    """What a run's updates can be timed with: its network before it has learned, and a batch of its images."""
    view = dataset.train.view
    backbone, num_classes = plan.recipe.backbone, plan.step_sizes[0]
    network = fresh_network(backbone, channels=view.channels, image_size=view.size, num_classes=num_classes)
    images, _ = dataset.train.take_readable(dataset.train.everything[: plan.recipe.batch_size])
    return network.train(), images
