"""WA: the new rows of the head are scaled to the mean norm of the old rows."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from support.learners import are_equal, learn, state_of, toy_learner, toy_steps
from support.toy import toy_dataset

from bic import METHODS, Dataset
from bic.learn.methods.wa import align
from bic.model.network import Network


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return toy_dataset(0.7)


def test_new_rows_are_scaled_by_the_ratio_of_mean_norms() -> None:
    network = Network("mlp", channels=2, image_size=None, num_features=2)
    network.head.grow(4)
    with torch.no_grad():
        network.head.weight.copy_(torch.tensor([[3.0, 4.0], [0.0, 1.0], [6.0, 8.0], [0.0, 2.0]]))
        network.head.bias.copy_(torch.tensor([0.1, 0.2, 0.3, 0.4]))
    align(network, num_old=2)
    # The norms are 5 and 1, with mean 3, and 10 and 2, with mean 6: the factor is ½.
    expected = torch.tensor([[3.0, 4.0], [0.0, 1.0], [3.0, 4.0], [0.0, 1.0]])
    assert torch.equal(network.head.weight, expected)
    assert torch.equal(network.head.bias, torch.tensor([0.1, 0.2, 0.3, 0.4]))
    assert network.head.weight.requires_grad


def watch_alignment(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Network, int]]:
    """Record each alignment as the network before it and the number of old classes."""
    aligned: list[tuple[Network, int]] = []
    wa = METHODS["wa"]
    after_training = wa.after_training
    assert after_training is not None

    def watched(network: Network, num_old: int) -> None:
        aligned.append((copy.deepcopy(network), num_old))
        after_training(network, num_old)

    monkeypatch.setitem(METHODS, "wa", replace(wa, after_training=watched))
    return aligned


def test_the_head_is_aligned_after_training(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    aligned = watch_alignment(monkeypatch)
    learner = toy_learner("wa")
    first, second, _ = toy_steps(dataset)
    learn(learner, first)
    assert aligned == []
    learn(learner, second)
    ((trained, num_old),) = aligned
    assert num_old == 2
    head = learner.model.network.head
    norms = trained.head.weight.norm(dim=1)
    factor = norms[:2].mean() / norms[2:].mean()
    assert factor != 1
    assert torch.equal(head.weight[:2], trained.head.weight[:2])
    assert torch.equal(head.weight[2:], trained.head.weight[2:] * factor)
    assert torch.equal(head.bias, trained.head.bias)
    learner.learn(first.images, classes=first.classes)  # no new classes
    assert len(aligned) == 1


def test_the_first_step_is_that_of_distill(dataset: Dataset) -> None:
    first = toy_steps(dataset)[0]
    states = []
    for method in ("wa", "distill"):
        learner = toy_learner(method)
        learn(learner, first)
        states.append(state_of(learner))
    assert are_equal(*states)
