"""How exemplars are chosen: herding by its definition, and herding and chance in a learner."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.learners import BUDGET, features_of, learn, pixels_of, toy_learner, toy_steps
from support.toy import toy_dataset

import bic.learn.exemplar_features
from bic import Dataset, Learner
from bic.lab.steps import ProtocolStep
from bic.learn.exemplars import herd


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return toy_dataset(0.7)


# Herding


@settings(max_examples=60, deadline=None)
@given(
    num_images=st.integers(1, 30), dim=st.integers(2, 8), seed=st.integers(0, 10**6), data=st.data()
)
def test_herding_is_its_definition(
    num_images: int, dim: int, seed: int, data: st.DataObject
) -> None:
    """iCaRL's algorithm 4: image k brings the mean of the first k nearest to the class mean."""
    count = data.draw(st.integers(1, num_images))
    features = np.random.default_rng(seed).normal(size=(num_images, dim)) + 0.5
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    mean = unit.mean(axis=0)
    ranks = herd(torch.from_numpy(features), count).tolist()
    assert len(ranks) == len(set(ranks)) == count
    for k, best in enumerate(ranks, start=1):
        chosen = ranks[: k - 1]
        distances = {}
        for index in set(range(num_images)) - set(chosen):
            mean_with_it = (unit[chosen].sum(axis=0) + unit[index]) / k
            distances[index] = np.linalg.norm(mean - mean_with_it)
        assert distances[best] <= min(distances.values()) + 1e-12


def test_herding_normalises_features() -> None:
    features = torch.randn(20, 4, generator=torch.Generator().manual_seed(0)) + 1
    lengths = torch.linspace(0.1, 50, 20)[:, None]
    assert herd(features * lengths, 20).tolist() == herd(features, 20).tolist()


def test_a_shorter_ranking_is_a_prefix_and_no_image_comes_twice() -> None:
    features = torch.randn(50, 6, generator=torch.Generator().manual_seed(1))
    ranks = herd(features, 50).tolist()
    assert sorted(ranks) == list(range(50))
    assert herd(features, 7).tolist() == ranks[:7]
    assert sorted(herd(features[:3], 7).tolist()) == [0, 1, 2]
    assert sorted(herd(torch.ones(4, 2), 4).tolist()) == [0, 1, 2, 3]  # all features are equal


# In a learner


def kept_positions(learner: Learner, step: ProtocolStep) -> list[list[int]]:
    """For each class of a step, its exemplars' positions among its images, best first."""
    positions = []
    first = learner.model.classes.index(step.classes[0])
    for number in range(len(step.classes)):
        members = step.images.select(np.flatnonzero(step.images.labels == number))
        images = [image.tolist() for image in pixels_of(members)]
        exemplars = pixels_of(learner.memory.train_images([first + number]))
        positions.append([images.index(exemplar.tolist()) for exemplar in exemplars])
    return positions


def test_exemplars_are_herded_with_the_new_model(dataset: Dataset) -> None:
    learner = toy_learner("finetune")
    earlier: list[tuple[ProtocolStep, list[list[int]]]] = []
    for step in toy_steps(dataset):
        learn(learner, step)
        limit = BUDGET // (2 * step.number)
        features = features_of(learner, pixels_of(step.images))
        expected = []
        for label in (0, 1):
            rows = torch.from_numpy(step.images.labels == label)
            expected.append(herd(features[rows], limit).tolist())
        kept = kept_positions(learner, step)
        assert kept == expected
        for positions in kept:  # not the order of the data
            best = positions[: limit // 2]
            assert best != sorted(best)
        for old_step, old_positions in earlier:
            cut = [positions[:limit] for positions in old_positions]
            assert kept_positions(learner, old_step) == cut
        earlier.append((step, kept))


def random_positions(
    dataset: Dataset, seed: int, recipe: dict[str, Any] | None = None
) -> list[list[int]]:
    """Positions of 18 exemplars of each class of step 1, and of 9 of each class of step 2."""
    recipe = {"epochs": 1, **(recipe or {})}
    learner = toy_learner("finetune", recipe, exemplars="random", seed=seed)
    positions = []
    for step in toy_steps(dataset)[:2]:
        learn(learner, step)
        positions += kept_positions(learner, step)
    return positions


def test_random_exemplars_depend_only_on_the_seed(dataset: Dataset) -> None:
    positions = random_positions(dataset, seed=0)
    assert [len(drawn) for drawn in positions] == [18, 18, 9, 9]
    for drawn in positions:
        assert len(set(drawn)) == len(drawn)
        assert drawn != sorted(drawn)
        assert set(drawn) != set(range(len(drawn)))
    assert len({tuple(drawn[:9]) for drawn in positions}) == 4  # every class and step draws anew
    assert random_positions(dataset, seed=0) == positions
    # The network does not matter.
    assert random_positions(dataset, seed=0, recipe={"learning_rate": 1e-3}) == positions
    others = random_positions(dataset, seed=1)
    for drawn, other_drawn in zip(positions, others, strict=True):
        assert drawn != other_drawn


@pytest.mark.parametrize("method", ["finetune", "icarl"])
def test_exemplars_are_not_hashed_if_there_are_no_features(
    method: str, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Features are kept by the hash of their image, and only a frozen backbone has them."""
    hashed: list[bytes] = []
    monkeypatch.setattr(bic.learn.exemplar_features, "key_of", hashed.append)
    learner = toy_learner(method, {"epochs": 1})
    for step in toy_steps(dataset)[:2]:
        learn(learner, step)
    assert hashed == []
