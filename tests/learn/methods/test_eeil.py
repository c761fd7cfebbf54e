"""EEIL: its augmentation and gradient noise, and its balanced fine-tuning."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.learners import (
    BUDGET,
    NUM_TRAIN,
    State,
    learn,
    pixels_of,
    state_of,
    toy_learner,
    toy_steps,
    watch_phases,
)
from support.toy import toy_dataset

from bic import Dataset, Learning
from bic.learn.lesson import Checkpoint


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return toy_dataset(0.7)


@pytest.mark.parametrize("method", ["eeil", "finetune"])
def test_eeil_trains_with_its_augmentation_and_noise(
    method: str, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """63 and 0.8 are the published ranges of brightness and contrast, 0.3 the published noise."""
    phases = watch_phases(monkeypatch)
    learner = toy_learner(method)
    for step in toy_steps(dataset)[:2]:
        learn(learner, step)
    assert len(phases) == (3 if method == "eeil" else 2)
    for phase in phases.values():
        shifts = (phase.augmentation.brightness, phase.augmentation.contrast)
        expected = ((63, 0.8), 0.3) if method == "eeil" else ((0, 0), 0)
        assert (shifts, phase.gradient_noise) == expected


@pytest.mark.parametrize("later_muon", [True, False])
def test_the_balanced_phase_has_the_optimiser_of_later_steps(
    later_muon: bool, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    phases = watch_phases(monkeypatch)
    optimiser = {"muon_rate": 0.05, "later_rate": 0.5, "later_muon": later_muon}
    learner = toy_learner("eeil", {"optimiser": optimiser})
    for step in toy_steps(dataset)[:2]:
        learn(learner, step)
    rates = [phase.recipe.optimiser.muon_rate for phase in phases.values()]
    later = [0.025, pytest.approx(0.005)] if later_muon else [None, None]
    assert rates == [0.05, *later]


def test_the_augmentation_and_the_noise_of_eeil_can_be_set() -> None:
    learning = Learning(
        method="eeil",
        recipe={"name": "demo", "augmentation": {"brightness": 5.0}},
        method_settings={"gradient_noise": 0.1},
    )
    assert learning.recipe.augmentation.brightness == 5
    assert learning.recipe.augmentation.contrast == 0.8
    assert learning.method_settings.model_dump() == {
        "gradient_noise": 0.1,
        "balanced_epochs": 0,
        "balanced_milestones": None,
    }


def test_the_second_phase_starts_with_the_second_step(dataset: Dataset) -> None:
    learner = toy_learner("eeil", {"epochs": 3}, method_settings={"balanced_epochs": 2})
    for step in toy_steps(dataset):
        positions: list[tuple[str, int]] = []
        states: list[State] = []

        def save(
            checkpoint: Checkpoint,
            positions: list[tuple[str, int]] = positions,
            states: list[State] = states,
        ) -> None:
            positions.append((checkpoint.phase, checkpoint.epoch))
            states.append({name: value.clone() for name, value in checkpoint.tensors.items()})

        learn(learner, step, save=save)
        final = state_of(learner)
        expected = [("stage 1", 1), ("stage 1", 2), ("stage 1", 3)]
        if step.number > 1:
            expected += [("balanced fine-tuning", 1), ("balanced fine-tuning", 2)]
        assert positions == expected
        for name in final:
            assert torch.equal(final[name], states[-1][f"module.{name}"])
        if step.number == 1:
            continue
        for name in final:
            # The teacher is the network after stage 1, new classes included, and does not change.
            assert torch.equal(states[2][f"module.{name}"], states[3][f"teacher.{name}"])
            assert torch.equal(states[2][f"module.{name}"], states[4][f"teacher.{name}"])
        for name, _ in learner.model.network.named_parameters():
            assert not torch.equal(states[2][f"module.{name}"], final[name]), name


def test_fine_tuning_uses_equally_many_images_of_every_class(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    phases = watch_phases(monkeypatch)
    learner = toy_learner("eeil")
    for step in toy_steps(dataset):
        num_old = 2 * (step.number - 1)
        old_images: set[bytes] = set()
        if num_old:
            exemplars = pixels_of(learner.memory.train_images())
            old_images = {image.numpy().tobytes() for image in exemplars}
        new_images = {image.numpy().tobytes() for image in pixels_of(step.images)}
        learn(learner, step)
        stage1 = phases["stage 1", step.number]
        per_class = BUDGET // num_old if num_old else 0
        counts = np.bincount(stage1.images.labels).tolist()
        assert counts == [per_class] * num_old + [NUM_TRAIN] * 2
        assert (("balanced fine-tuning", step.number) in phases) == (step.number > 1)
        if step.number == 1:
            continue
        balanced = phases["balanced fine-tuning", step.number]
        counts = np.bincount(balanced.images.labels).tolist()
        assert counts == [per_class] * (num_old + 2)
        images = [image.numpy().tobytes() for image in pixels_of(balanced.images)]
        assert len(set(images)) == len(images)
        for image, label in zip(images, balanced.images.labels, strict=True):
            assert image in (old_images if label < num_old else new_images)
        rate = stage1.recipe.learning_rate / 10
        assert balanced.recipe.learning_rate == pytest.approx(rate)


@pytest.mark.parametrize(
    ("settings", "epochs", "milestones"),
    [
        ({}, 3, (0.4, 0.6)),  # 3/7 of 7 epochs
        ({"balanced_epochs": 5, "balanced_milestones": (0.5,)}, 5, (0.5,)),
    ],
)
def test_the_schedule_of_fine_tuning(
    settings: dict[str, object],
    epochs: int,
    milestones: tuple[float, ...],
    dataset: Dataset,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    phases = watch_phases(monkeypatch)
    schedule = {"kind": "milestones", "milestones": (0.4, 0.6)}
    recipe = {"epochs": 7, "schedule": schedule, "optimiser": {"later_rate": 0.5}}
    learner = toy_learner("eeil", recipe, method_settings=settings)
    for step in toy_steps(dataset)[:2]:
        learn(learner, step)
    balanced = phases["balanced fine-tuning", 2].recipe
    assert (balanced.epochs, balanced.schedule.milestones) == (epochs, milestones)
    # A tenth of the recipe's rate: the slower rate of later steps is for stage 1 only.
    assert balanced.learning_rate == pytest.approx(0.015)
    assert phases["stage 1", 2].recipe.learning_rate == pytest.approx(0.075)
