"""fit(): the only optimisation loop."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from bic.config import Recipe
from bic.correction import Correction
from bic.data.loader import Batches
from bic.methods import Losses
from bic.network import Network
from bic.progress import Task
from bic.randomness import generator

Tensors = dict[str, Tensor]

# (scores, labels, teacher's scores or None) → named terms
BatchLoss = Callable[[Tensor, Tensor, Tensor | None], Losses]


class Teacher:
    """The previous step's model, frozen in evaluation mode, with its correction applied."""

    def __init__(self, network: Network, correction: Correction | None) -> None:
        self.network = copy.deepcopy(network).eval().requires_grad_(False)
        self.correction = correction

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        scores: Tensor = self.network(images)
        return scores if self.correction is None else self.correction.apply(scores)


def learning_rate(recipe: Recipe, progress: float) -> float:
    """The rate after a share `progress` of the epochs.

    `milestones`: the rate times `decay` for every milestone passed. `triangle`: up over the first
    `warmup`, then down to zero.
    """
    if recipe.schedule == "triangle":
        up = progress / recipe.warmup if recipe.warmup else 1.0
        down = (1 - progress) / (1 - recipe.warmup)
        return recipe.learning_rate * min(up, down)
    epoch = progress * recipe.epochs + 1e-9
    passed = sum(epoch >= round(milestone * recipe.epochs) for milestone in recipe.milestones)
    return recipe.learning_rate * recipe.decay**passed


@dataclass
class Training:
    """A module in training: what must be kept to go on after an interruption."""

    module: nn.Module
    optimiser: torch.optim.SGD
    epoch: int = 0  # epochs done

    @staticmethod
    def start(module: nn.Module, recipe: Recipe) -> Training:
        optimiser = torch.optim.SGD(
            [parameter for parameter in module.parameters() if parameter.requires_grad],
            lr=recipe.learning_rate,
            momentum=recipe.momentum,
            nesterov=recipe.nesterov,
            weight_decay=recipe.weight_decay,
            foreach=True,
        )
        return Training(module, optimiser)

    def tensors(self) -> Tensors:
        """Weights under `module.`, momentum under `momentum.`."""
        named = {f"module.{name}": value for name, value in self.module.state_dict().items()}
        for name, parameter in self.module.named_parameters():
            buffer = self.optimiser.state[parameter].get("momentum_buffer")
            if buffer is not None:
                named[f"momentum.{name}"] = buffer
        return named

    def restore(self, tensors: Tensors, epoch: int) -> None:
        """Go on from `tensors()`, taken after `epoch` epochs.

        Momentum is laid out in memory like its parameter, as the optimiser would have, so that
        the resumed arithmetic is the same to the last bit.
        """
        self.module.load_state_dict(unprefixed(tensors, "module."))
        for name, parameter in self.module.named_parameters():
            if f"momentum.{name}" in tensors:
                buffer = torch.empty_like(parameter).copy_(tensors[f"momentum.{name}"])
                self.optimiser.state[parameter]["momentum_buffer"] = buffer.detach()
        self.epoch = epoch


def unprefixed(tensors: Tensors, prefix: str) -> Tensors:
    """The tensors whose names start with `prefix`, without it."""
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


def fit(
    training: Training,
    batches: Batches,
    loss: BatchLoss,
    recipe: Recipe,
    *,
    teacher: Teacher | None = None,
    after_epoch: Callable[[Training], None] | None = None,
    task: Task | None = None,
) -> None:
    """Train the module for the recipe's remaining epochs; each update sees one batch."""
    module, optimiser = training.module, training.optimiser
    module.train()
    device = next(module.parameters()).device
    for epoch in range(training.epoch, recipe.epochs):
        for number, (images, labels) in enumerate(batches.epoch(epoch)):
            images, labels = images.to(device), labels.to(device)
            progress = (epoch + number / len(batches)) / recipe.epochs
            rate = learning_rate(
                recipe, progress if recipe.schedule == "triangle" else epoch / recipe.epochs
            )
            for group in optimiser.param_groups:
                group["lr"] = rate
            targets = None if teacher is None else teacher(images)
            losses = loss(module(images), labels, targets)
            optimiser.zero_grad(set_to_none=True)
            torch.autograd.backward(torch.stack(list(losses.values())).sum())
            if recipe.gradient_noise:
                add_gradient_noise(module, recipe, epoch, len(labels), (*batches.address, number))
            optimiser.step()
            if task is not None:
                task.advance(
                    len(labels), **{name: float(term.detach()) for name, term in losses.items()}
                )
        training.epoch = epoch + 1
        if after_epoch is not None:
            after_epoch(training)


def add_gradient_noise(
    module: nn.Module, recipe: Recipe, epoch: int, batch_size: int, address: tuple[int | str, ...]
) -> None:
    """EEIL's noise, of deviation 0.3/(1+epoch)^0.55 on gradients summed over the batch.

    Ours are means, so it is divided by the batch size, as the authors' code does after adding it.
    """
    deviation = recipe.gradient_noise / (1 + epoch) ** 0.55 / batch_size
    draws = generator(*address, "noise", epoch)
    for parameter in module.parameters():
        if parameter.grad is not None:
            noise = draws.standard_normal(parameter.shape, dtype=np.float32) * np.float32(deviation)
            parameter.grad += torch.from_numpy(noise).to(parameter.grad.device)
