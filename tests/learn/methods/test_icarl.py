"""iCaRL: the nearest class mean answers, and the learning rate grows with the classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from support.learners import (
    BUDGET,
    NUM_TRAIN,
    features_of,
    learn,
    normalised,
    pixels_of,
    toy_learner,
    toy_steps,
    watch_phases,
)
from support.toy import toy_dataset
from torch import Tensor

from bic import Dataset, Learner, Learning
from bic.model.answers import NearestMean


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return toy_dataset(0.7)


def means_of(learner: Learner) -> Tensor:
    answer = learner.model.answer
    assert isinstance(answer, NearestMean)
    return answer.means


def means_by_hand(learner: Learner, num_classes: int) -> tuple[Tensor, Tensor]:
    """The class means of the exemplars, and of the exemplars with their mirror images.

    The features of each image are normalised, and so is their mean.
    """
    plain = []
    mirrored = []
    for label in range(num_classes):
        exemplars = pixels_of(learner.memory.train_images([label]))
        assert len(exemplars) == BUDGET // num_classes
        mirror_images = torch.from_numpy(exemplars.numpy()[..., ::-1].copy())
        features = normalised(features_of(learner, torch.cat([exemplars, mirror_images])))
        plain.append(features[: len(exemplars)].mean(dim=0))
        mirrored.append(features.mean(dim=0))
    return normalised(torch.stack(plain)), normalised(torch.stack(mirrored))


@pytest.mark.parametrize("flip", [False, True])
def test_the_nearest_class_mean_answers(flip: bool, dataset: Dataset) -> None:
    """Mirror images join the means if the recipe flips images, and only then."""
    learner = toy_learner("icarl", {"augmentation": {"flip": flip}})
    pixels = pixels_of(dataset.test)
    for step in toy_steps(dataset)[:2]:
        learn(learner, step)
        plain, mirrored = means_by_hand(learner, 2 * step.number)
        means = means_of(learner)
        torch.testing.assert_close(means.norm(dim=1), torch.ones(2 * step.number))
        torch.testing.assert_close(means, mirrored if flip else plain)
        assert not torch.allclose(means, plain if flip else mirrored, atol=1e-3)

        raw, final = learner.model.logits(pixels)
        features = normalised(features_of(learner, pixels))
        nearest = [int((means - feature).norm(dim=1).argmin()) for feature in features]
        assert final.argmax(dim=1).tolist() == nearest
    assert raw.argmax(dim=1).tolist() != nearest  # the head would answer differently


def test_vectors_have_no_mirror_images() -> None:
    labels = np.arange(2 * NUM_TRAIN) % 2
    vectors = np.random.default_rng(0).normal(size=(len(labels), 5)) + 9 * np.eye(2, 5)[labels]
    learner = toy_learner("icarl", {"augmentation": {"flip": True}})
    learner.learn(vectors, labels)
    means = []
    for label in (0, 1):
        exemplars = pixels_of(learner.memory.train_images([label]))
        means.append(normalised(features_of(learner, exemplars)).mean(dim=0))
    torch.testing.assert_close(means_of(learner), normalised(torch.stack(means)))


def test_the_learning_rate_depends_on_the_classes_seen(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A learner does not know how many classes will come: in each step, it counts those seen."""
    phases = watch_phases(monkeypatch)
    recipe = {"learning_rate": 0.1, "optimiser": {"weight_decay": 0.01}}
    learner = toy_learner("icarl", recipe, num_classes=None)
    for step in toy_steps(dataset):
        learn(learner, step)
    learner.learn(dataset.train, classes=dataset.classes)  # a step without new classes
    for number, num_seen in ((1, 2), (2, 4), (3, 6), (4, 6)):
        used = phases["stage 1", number].recipe
        assert used.learning_rate == pytest.approx(0.1 * 0.2 * num_seen)
        assert used.optimiser.weight_decay == pytest.approx(0.01 / (0.2 * num_seen))


def test_a_known_number_of_classes_fixes_the_learning_rate(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    phases = watch_phases(monkeypatch)
    learner = toy_learner("icarl", num_classes=6)
    for step in toy_steps(dataset)[:2]:
        learn(learner, step)
    for number in (1, 2):
        used = phases["stage 1", number].recipe
        assert used.learning_rate == pytest.approx(0.15 * 0.2 * 6)
        assert used.optimiser.weight_decay == pytest.approx(5e-4 / (0.2 * 6))


def test_a_loaded_learner_counts_the_classes_seen(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """0.15 × 0.2 × 6 in the run; 0.15 × 0.2 × 4 after it, also if it is loaded twice."""
    phases = watch_phases(monkeypatch)
    steps = toy_steps(dataset)
    learner = toy_learner("icarl", num_classes=6)
    learn(learner, steps[0])
    for name in ("once", "twice"):
        learner.save(tmp_path / name)
        learner = Learner.load(tmp_path / name)
    learn(learner, steps[1])
    assert phases["stage 1", 1].recipe.learning_rate == pytest.approx(0.15 * 0.2 * 6)
    used = phases["stage 1", 2].recipe
    assert used.learning_rate == pytest.approx(0.15 * 0.2 * 4)
    assert used.optimiser.weight_decay == pytest.approx(5e-4 / (0.2 * 4))


def test_the_published_rate_counts_the_classes_seen(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2.0 is for 100 classes; two classes have been seen."""
    phases = watch_phases(monkeypatch)
    small = {"backbone": "small", "epochs": 1, "batch_size": 16, "image_size": 8, "resize": 8}
    recipe = {"name": "paper-imagenet", **small, "augmentation": {"random_resize": None}}
    learner = Learner(Learning(method="icarl", recipe=recipe, memory=BUDGET))
    learn(learner, toy_steps(dataset)[0])
    used = phases["stage 1", 1].recipe
    assert used.learning_rate == pytest.approx(2.0 * 2 / 100)
    assert used.optimiser.weight_decay == pytest.approx(1e-5 * 100 / 2)


@pytest.mark.parametrize("num_classes", [10, 100, 1000])
def test_the_published_rate_of_a_run_does_not_depend_on_its_classes(num_classes: int) -> None:
    recipe = Learning(method="icarl", recipe="paper-cifar100", num_classes=num_classes).recipe
    assert (recipe.learning_rate, recipe.optimiser.weight_decay) == (2.0, 1e-5)


def test_the_published_rate_is_that_of_a_hundred_classes() -> None:
    published = Learning(method="icarl", recipe="paper-cifar100", num_classes=100).recipe
    plain = Learning(recipe="paper-cifar100").recipe
    assert published.learning_rate == pytest.approx(20 * plain.learning_rate)
    assert published.epochs == 70
    assert published.schedule.decay == 0.2
