"""Stage 1: what a step starts from, its epochs and learning rate, and its loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from support.learners import FROZEN, learn, pixels_of, toy_learner, toy_steps, watch_phases
from support.toy import toy_dataset

import bic.learn.methods
import bic.learn.stage1
from bic import Dataset
from bic.learn.losses import Losses
from bic.learn.methods.bic import distilling

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return toy_dataset(0.7)


@pytest.mark.parametrize("method", ["bic", "joint"])
def test_a_later_step_has_other_epochs_and_a_lower_rate_unless_it_starts_afresh(
    method: str, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    phases = watch_phases(monkeypatch)
    recipe = {"learning_rate": 0.2, "first_epochs": 3, "optimiser": {"later_rate": 0.5}}
    learner = toy_learner(method, recipe)
    for step in toy_steps(dataset, method)[:2]:
        learn(learner, step)
    used = [(phase.recipe.epochs, phase.recipe.learning_rate) for phase in phases.values()]
    assert used == [(3, 0.2), (2, 0.1) if method == "bic" else (3, 0.2)]


def test_the_distillation_loss_has_a_factor(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(4)
    terms: list[dict[str, float]] = []

    def watched(training: Any, batches: Any, loss: Any, recipe: Any, **options: Any) -> None:
        targets = None if options["teacher"] is None else torch.ones(4, 2)
        losses = loss(logits, labels, targets)
        terms.append({name: float(term) for name, term in losses.items()})

    monkeypatch.setattr(bic.learn.stage1, "fit", watched)
    for factor in (1.0, 4.0):
        learner = toy_learner("bic", {"distillation_factor": factor})
        for step in toy_steps(dataset)[:2]:
            learn(learner, step)
    _, plain, _, stronger = terms
    assert stronger["distillation"] == pytest.approx(4 * plain["distillation"])
    assert stronger["classification"] == plain["classification"]


def test_a_step_starts_from_the_network_of_the_step_before(dataset: Dataset) -> None:
    """Normalisation is measured in the first step and stays fixed; the head gets new rows."""
    learner = toy_learner("finetune", FROZEN)
    first, second, _ = toy_steps(dataset)
    learn(learner, first)
    before = learner.model.network
    learn(learner, second)
    after = learner.model.network
    assert after is not before
    torch.testing.assert_close(after.mean, pixels_of(first.images).float().mean().view(1))
    assert torch.equal(after.mean, before.mean)
    assert torch.equal(after.std, before.std)
    for name, value in before.named_parameters():
        parameter = dict(after.named_parameters())[name]
        torch.testing.assert_close(parameter[: len(value)], value, atol=1e-8, rtol=0)
    assert (before.num_classes, after.num_classes) == (2, 4)


def test_the_weight_decay_can_fall_as_the_authors_code_lets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In step t of three equal steps it is 3/t times that of the recipe."""
    phases = watch_phases(monkeypatch)
    optimiser = {"weight_decay": 0.006, "weight_decay_by_share": True}
    learner = toy_learner("distill", {"optimiser": optimiser}, num_classes=6)
    for step in toy_steps(toy_dataset(0.6)):
        learn(learner, step)
    decays = [phases["stage 1", number].recipe.optimiser.weight_decay for number in (1, 2, 3)]
    assert decays == pytest.approx([0.018, 0.009, 0.006])


def test_the_weight_decay_stays_if_the_number_of_classes_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    phases = watch_phases(monkeypatch)
    optimiser = {"weight_decay": 0.006, "weight_decay_by_share": True}
    learner = toy_learner("distill", {"optimiser": optimiser}, num_classes=None)
    learn(learner, toy_steps(toy_dataset(0.6))[0])
    assert phases["stage 1", 1].recipe.optimiser.weight_decay == 0.006


@pytest.mark.parametrize("method", ["distill", "finetune"])
def test_the_rate_can_undo_lambda(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In steps of two classes 1 − λ is 1, 1/2 and 1/3. Without a teacher there is no λ."""
    phases = watch_phases(monkeypatch)
    optimiser = {"weight_decay": 0.006, "muon_rate": 0.05, "undo_lambda": True}
    learner = toy_learner(method, {"learning_rate": 0.02, "optimiser": optimiser})
    for step in toy_steps(toy_dataset(0.6)):
        learn(learner, step)
    recipes = [phases["stage 1", number].recipe for number in (1, 2, 3)]
    rates = [recipe.learning_rate for recipe in recipes]
    decays = [recipe.optimiser.weight_decay for recipe in recipes]
    taught = method == "distill"
    assert rates == pytest.approx([0.02, 0.04, 0.06] if taught else [0.02, 0.02, 0.02])
    assert decays == pytest.approx([0.006, 0.003, 0.002] if taught else [0.006, 0.006, 0.006])
    assert [recipe.optimiser.muon_rate for recipe in recipes] == [0.05, 0.05, 0.05]


def test_a_step_without_new_classes_undoes_a_half(monkeypatch: pytest.MonkeyPatch) -> None:
    phases = watch_phases(monkeypatch)
    recipe = {"learning_rate": 0.02, "optimiser": {"undo_lambda": True}}
    learner = toy_learner("distill", recipe)
    first = toy_steps(toy_dataset(0.6))[0]
    learn(learner, first)
    learn(learner, first)
    assert phases["stage 1", 2].recipe.learning_rate == pytest.approx(0.04)


def test_undoing_lambda_trains_as_a_loss_divided_by_its_complement(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the second of two equal steps 1 − λ is a half, so the loss is doubled."""
    doubled = dict(bic.learn.methods.METHODS)

    def loss(*arguments: Any) -> Losses:
        factor = 1.0 if arguments[2] is None else 2.0
        return {name: factor * term for name, term in distilling(*arguments).items()}

    def trained(undo_lambda: bool) -> dict[str, torch.Tensor]:
        learner = toy_learner("distill", {"optimiser": {"undo_lambda": undo_lambda}})
        for step in toy_steps(dataset)[:2]:
            learn(learner, step)
        return learner.model.network.state_dict()

    by_rate = trained(undo_lambda=True)
    unchanged = trained(undo_lambda=False)
    doubled["distill"] = replace(doubled["distill"], loss=loss)
    monkeypatch.setattr(bic.learn.methods, "METHODS", doubled)
    by_loss = trained(undo_lambda=False)
    for name, tensor in by_loss.items():
        torch.testing.assert_close(by_rate[name], tensor, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(unchanged["head.weight"], by_rate["head.weight"], atol=1e-3)
