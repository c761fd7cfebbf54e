"""The training loop: learning rates, sums of losses, gradient noise, precision, resuming."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from support.learners import are_equal
from support.toy import alone
from support.training import (
    batches_for,
    classification_loss,
    copied,
    noisy_images,
    numbered_images,
    plain_recipe,
    small_network,
    train,
)
from torch import Tensor, nn

from bic import RECIPES, Correction, Recipe, UserError
from bic.data.augmentation import Augmentation
from bic.learn.losses import Losses, classification, distillation
from bic.learn.teacher import Teacher
from bic.learn.train import Training, fit, learning_rate
from bic.model.network import Network


class Weights(nn.Module):
    """Parameters that ignore the images. The logit of every image is their sum."""

    def __init__(self, count: int = 1) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(count, dtype=torch.float64))

    def forward(self, images: Tensor) -> Tensor:
        return self.weights.sum().expand(len(images))


def slope(logits: Tensor, labels: Tensor, targets: Tensor | None) -> Losses:
    """A loss with the gradient 1."""
    return {"slope": logits.mean()}


# Learning rates


def measured_rates(recipe: Recipe, num_images: int) -> list[float]:
    """The learning rate of every update.

    With a gradient of 1 and without momentum, it is how far a weight moves.
    """
    module = Weights()
    positions: list[float] = []

    def loss(logits: Tensor, labels: Tensor, targets: Tensor | None) -> Losses:
        positions.append(module.weights.item())
        return slope(logits, labels, targets)

    optimiser = recipe.optimiser.model_copy(
        update={"momentum": 0.0, "nesterov": False, "weight_decay": 0.0}
    )
    plain = recipe.model_copy(update={"optimiser": optimiser, "augmentation": Augmentation()})
    train(module, plain, numbered_images(num_images), loss)
    return (-np.diff([*positions, module.weights.item()])).tolist()


def test_rates_of_the_paper() -> None:
    expected = [0.1] * 100 + [0.01] * 50 + [0.001] * 50 + [0.0001] * 50
    assert measured_rates(RECIPES["paper-cifar100"], 4) == pytest.approx(expected, rel=1e-6)


def test_milestones_scale_with_the_epochs() -> None:
    recipe = RECIPES["paper-cifar100"].model_copy(update={"epochs": 25})
    expected = [0.1] * 10 + [0.01] * 5 + [0.001] * 5 + [0.0001] * 5
    assert measured_rates(recipe, 4) == pytest.approx(expected, rel=1e-6)


def test_the_rate_falls_between_epochs_and_not_inside() -> None:
    recipe = plain_recipe(epochs=4, schedule={"milestones": (0.5,), "decay": 0.2})
    assert measured_rates(recipe, 24) == pytest.approx([0.1] * 6 + [0.02] * 6, rel=1e-6)


def test_the_triangle_goes_up_and_down() -> None:
    schedule = {"kind": "triangle", "warmup": 0.2}
    recipe = plain_recipe(epochs=5, schedule=schedule, learning_rate=0.4)
    # Two updates per epoch, at 0.05, 0.15, … 0.95 of the training: up over two, down over eight.
    expected = [0.1, 0.3, 0.375, 0.325, 0.275, 0.225, 0.175, 0.125, 0.075, 0.025]
    assert measured_rates(recipe, 16) == pytest.approx(expected, abs=1e-9)


def test_a_triangle_without_warmup_only_falls() -> None:
    recipe = plain_recipe(epochs=4, schedule={"kind": "triangle", "warmup": 0.0})
    rates = [learning_rate(recipe, epoch, 0.5) for epoch in range(4)]
    assert rates == pytest.approx([0.0875, 0.0625, 0.0375, 0.0125])


# Updates


def test_the_losses_of_a_batch_are_summed() -> None:
    def loss(logits: Tensor, labels: Tensor, targets: Tensor | None) -> Losses:
        return {"one": logits.mean(), "two": 2 * logits.mean()}

    module = Weights()
    train(module, plain_recipe(epochs=1, learning_rate=1.0), numbered_images(4), loss)
    assert module.weights.item() == -3


def test_weight_decay_and_momentum_are_those_of_sgd() -> None:
    optimiser = {"momentum": 0.5, "weight_decay": 0.2}
    recipe = plain_recipe(epochs=2, learning_rate=0.1, optimiser=optimiser)
    module = Weights()
    train(module, recipe, numbered_images(4), slope)
    first = -0.1 * 1
    velocity = 0.5 * 1 + (1 + 0.2 * first)
    assert module.weights.item() == pytest.approx(first - 0.1 * velocity, rel=1e-12)


def test_gradient_noise_has_the_published_std() -> None:
    optimiser = {"momentum": 1e-12}
    recipe = plain_recipe(epochs=3, learning_rate=1.0, optimiser=optimiser)
    module = Weights(200_000)
    positions: list[Tensor] = []

    def loss(logits: Tensor, labels: Tensor, targets: Tensor | None) -> Losses:
        positions.append(module.weights.detach().clone())
        return {"flat": 0 * logits.sum()}

    train(module, recipe, numbered_images(16), loss, gradient_noise=0.3)
    positions.append(module.weights.detach().clone())
    moves = [after - before for before, after in pairwise(positions)]
    stds = [float(move.std()) for move in moves]
    # Two updates of 8 images per epoch. The published noise is for gradients summed over the
    # batch; ours are means.
    expected = [0.3 / (1 + epoch) ** 0.55 / 8 for epoch in (0, 0, 1, 1, 2, 2)]
    assert stds == pytest.approx(expected, rel=0.01)
    for move, std in zip(moves, stds, strict=True):
        assert abs(float(move.mean())) < 4 * std / 200_000**0.5
    first_two = torch.corrcoef(torch.stack(moves[:2]))
    assert abs(float(first_two[0, 1])) < 0.02  # every update draws anew


def test_training_that_diverges_is_stopped() -> None:
    def loss(logits: Tensor, labels: Tensor, targets: Tensor | None) -> Losses:
        return {"infinite": logits.mean() / 0}

    with pytest.raises(UserError, match="training diverged in epoch 1") as caught:
        train(Weights(), plain_recipe(), numbered_images(4), loss)
    assert "{recipe.learning_rate}" in caught.value.remedy


# Ensembles and precision


def test_training_that_diverges_in_the_last_update_is_stopped() -> None:
    """The loss of the only batch is finite, its gradient and so the weights are not."""
    module = Weights()

    def steep(logits: Tensor, labels: Tensor, targets: Tensor | None) -> Losses:
        return {"steep": logits.abs().sqrt().mean()}  # d√|x|/dx at 0

    epochs: list[int] = []
    recipe = plain_recipe(epochs=1)
    training = Training.start(module, recipe)
    batches = batches_for(recipe, numbered_images(4), 0)
    with pytest.raises(UserError, match="training diverged in epoch 1"):
        fit(training, batches, steep, recipe, after_epoch=lambda: epochs.append(training.epoch))
    assert epochs == []  # no checkpoint of these weights


def distils(logits: Tensor, labels: Tensor, targets: Tensor | None) -> Losses:
    assert targets is not None
    return {
        "classification": classification(logits, labels),
        "distillation": distillation(logits, targets),
    }


def test_each_member_of_an_ensemble_learns_as_if_alone() -> None:
    recipe = plain_recipe(learning_rate=0.01, optimiser={"weight_decay": 5e-4})
    torch.manual_seed(0)
    ensemble = Network("small+small", channels=1, image_size=8)
    ensemble.head.grow(4)
    lone_networks = [alone(ensemble, 0), alone(ensemble, 1)]
    teacher = Teacher(ensemble, None)
    for network in (ensemble, *lone_networks):
        network.head.bias.requires_grad_(False)  # the only parameter that members share
        train(network, recipe, noisy_images(40), distils, teacher=teacher)
    for number, lone_network in enumerate(lone_networks):
        member = alone(ensemble, number)
        pairs = zip(member.parameters(), lone_network.parameters(), strict=True)
        for parameter, lone_parameter in pairs:
            torch.testing.assert_close(parameter, lone_parameter, rtol=1e-3, atol=1e-5)


def test_only_the_backbone_computes_in_bfloat16() -> None:
    network = Network("small", channels=1, image_size=8)
    network.head.grow(4)
    teacher = Teacher(network, Correction(0.9, -1.0, 2))
    features: set[torch.dtype] = set()
    logits_and_targets: set[torch.dtype] = set()
    network.backbone.register_forward_hook(lambda _, __, output: features.add(output.dtype))

    def loss(logits: Tensor, labels: Tensor, targets: Tensor | None) -> Losses:
        assert targets is not None
        logits_and_targets.update((logits.dtype, targets.dtype))
        return distils(logits, labels, targets)

    recipe = plain_recipe(precision="bfloat16", epochs=1)
    train(network, recipe, noisy_images(16), loss, teacher=teacher)
    assert features == {torch.bfloat16}
    assert logits_and_targets == {torch.float32}
    assert {parameter.dtype for parameter in network.parameters()} == {torch.float32}
    network.eval()(torch.zeros(2, 1, 8, 8))
    assert features == {torch.bfloat16, torch.float32}  # answers are in float32


# The same numbers again


class KilledError(Exception):
    pass


def kill() -> None:
    raise KilledError


def test_training_resumes_to_the_last_bit() -> None:
    recipe = plain_recipe(
        optimiser={"nesterov": True, "weight_decay": 5e-4},
        augmentation={"crop_padding": 1, "flip": True},
    )
    batches = batches_for(recipe, noisy_images(40), 0, "stage 1", 1)
    noise = {"gradient_noise": 0.3}
    whole = Training.start(small_network(), recipe)
    fit(whole, batches, classification_loss, recipe, **noise)
    assert whole.epoch == 3

    first = Training.start(small_network(), recipe)
    with pytest.raises(KilledError):
        fit(first, batches, classification_loss, recipe, **noise, after_epoch=kill)
    assert first.epoch == 1
    saved = save({name: value.detach().contiguous() for name, value in first.tensors().items()})

    second = Training.start(small_network(seed=5), recipe)
    second.restore(load(saved), epoch=1)
    fit(second, batches, classification_loss, recipe, **noise)
    assert second.epoch == 3
    assert are_equal(whole.tensors(), second.tensors())
    assert any(name.startswith("momentum.") for name in whole.tensors())
    assert not are_equal(copied(first.module), copied(second.module))


def test_the_same_seed_trains_the_same_network_and_another_seed_does_not() -> None:
    def trained(seed: int) -> dict[str, Tensor]:
        network = small_network()
        train(network, plain_recipe(epochs=1), noisy_images(40), classification_loss, seed)
        return copied(network)

    assert are_equal(trained(0), trained(0))
    assert not are_equal(trained(0), trained(1))


class Drawing(nn.Module):
    """A backbone that draws random numbers in training, as dropout does."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: list[Sequence[float]] = []
        self.layer = nn.Linear(1, 1)

    def forward(self, images: Tensor) -> Tensor:
        self.drawn.append(torch.rand(3).tolist())
        return self.layer(images.flatten(1).float()).expand(-1, 4)


def test_a_backbone_that_draws_does_not_depend_on_earlier_draws() -> None:
    drawn = []
    for seed in (1, 2):
        module = Drawing()
        torch.manual_seed(seed)
        before = torch.random.get_rng_state()
        train(module, plain_recipe(), numbered_images(16), classification_loss)
        assert torch.equal(torch.random.get_rng_state(), before)
        drawn.append(module.drawn)
    assert drawn[0] == drawn[1]
    assert len({tuple(numbers) for numbers in drawn[0]}) == 6  # of every update, new ones
