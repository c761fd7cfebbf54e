"""Learners of the toy problem, its steps, and what tests compare after a step."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

import bic.learn.stage1
from bic import Dataset, ImageSet, Learned, Learner, Learning, Recipe
from bic.data.augmentation import Augmentation
from bic.data.batches import Batches
from bic.lab.steps import ProtocolStep, protocol_steps
from bic.learn.methods import find_method
from bic.learn.train import Training, fit

ORDER = (3, 0, 5, 1, 4, 2)
SIZES = (2, 2, 2)
NUM_TRAIN = 24  # images per class
BUDGET = 36

# Weights stay where they start.
FROZEN = {"learning_rate": 1e-12, "epochs": 1, "optimiser": {"weight_decay": 0.0}}

Array = npt.NDArray[Any]
State = dict[str, Tensor]


def toy_learner(
    method: str = "bic", recipe: dict[str, Any] | None = None, **settings: Any
) -> Learner:
    """A learner with the demo recipe and a memory of 36 images. `recipe` changes its recipe."""
    learning = {
        "method": method,
        "recipe": {"name": "demo", "epochs": 2, "batch_size": 16, **(recipe or {})},
        "memory": BUDGET,
        "held_out": 0.3,
        "num_classes": 6,
        **settings,
    }
    return Learner(Learning(**learning))


def toy_steps(dataset: Dataset, method: str = "bic") -> list[ProtocolStep]:
    """Three steps of two classes, in an order that is not the order of the labels."""
    sees_old_data = find_method(method).is_upper_bound
    return list(protocol_steps(dataset, ORDER, SIZES, with_everything=sees_old_data))


def learn(learner: Learner, step: ProtocolStep, **options: Any) -> Learned:
    """Give a step of a protocol to a learner."""
    return learner.learn(step.images, classes=step.classes, everything=step.everything, **options)


def arrays_of(images: ImageSet, classes: str) -> tuple[Array, list[str]]:
    """The images [n, 8, 8] of some of the classes a to f, and their names."""
    indices = ["abcdef".index(name) for name in classes]
    chosen = images.select(np.flatnonzero(np.isin(images.labels, indices)))
    assert chosen.pixels is not None
    return chosen.pixels[:, 0].numpy(), ["abcdef"[label] for label in chosen.labels]


def pixels_of(images: ImageSet) -> Tensor:
    return images.take(images.everything)


def state_of(learner: Learner) -> State:
    """A copy of the network's weights and statistics."""
    return {name: value.clone() for name, value in learner.model.network.state_dict().items()}


def are_equal(state: State, other: State) -> bool:
    """Whether two states have the same names and the same numbers, to the last bit."""
    if state.keys() != other.keys():
        return False
    return all(torch.equal(value, other[name]) for name, value in state.items())


@torch.no_grad()
def features_of(learner: Learner, pixels: Tensor) -> Tensor:
    return learner.model.network.eval().features(pixels)


def normalised(rows: Tensor) -> Tensor:
    """Rows of length one, by hand."""
    return rows / rows.square().sum(dim=1, keepdim=True).sqrt()


@dataclass(frozen=True)
class Phase:
    """What one phase of a step was trained with."""

    images: ImageSet
    augmentation: Augmentation
    recipe: Recipe
    gradient_noise: float


def watch_phases(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, int], Phase]:
    """Record every phase of stage 1 from now on, by its name and the number of the step."""
    phases: dict[tuple[str, int], Phase] = {}

    def watched(
        training: Training, batches: Batches, loss: Any, recipe: Recipe, **options: Any
    ) -> None:
        _, name, number = batches.address
        assert (name, number) not in phases
        noise = options["gradient_noise"]
        phases[str(name), int(number)] = Phase(batches.images, batches.augmentation, recipe, noise)
        fit(training, batches, loss, recipe, **options)

    monkeypatch.setattr(bic.learn.stage1, "fit", watched)
    return phases
