"""bic-means: its loss, its teacher, and an answer that blends the head with class means."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.learners import (
    arrays_of,
    features_of,
    learn,
    normalised,
    pixels_of,
    toy_learner,
    toy_steps,
)
from support.toy import toy_dataset

import bic.learn.stage2
import bic.learn.step
from bic import Correction, Dataset, ImageSet, Learner, Model, UserError
from bic.learn.blend import fit_blend
from bic.learn.held_out import LogitsAndCosines
from bic.learn.learning import Learning
from bic.learn.methods.bic_means import distilling
from bic.learn.recipes import RECIPES
from bic.learn.teacher import Teacher
from bic.model.answers import HeadAndMeans, cosines
from bic.model.network import Network

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")

AMPLE = 1000  # a memory that keeps every image


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return toy_dataset(0.6)


def answer_of(learner: Learner) -> HeadAndMeans:
    assert isinstance(learner.model.answer, HeadAndMeans)
    return learner.model.answer


def means_by_hand(learner: Learner, images: ImageSet) -> torch.Tensor:
    """The renormalised mean of each class's normalised features. The demo recipe has no flips."""
    features = normalised(features_of(learner, pixels_of(images)).double())
    labels = torch.from_numpy(images.labels)
    means = [features[labels == label].mean(dim=0) for label in range(int(labels.max()) + 1)]
    return normalised(torch.stack(means)).float()


def test_the_loss_by_hand() -> None:
    """Two old classes and one new one: λ = 2/3."""
    logits = torch.tensor([[0.0, 4.0, 8.0]])
    teacher = torch.tensor([[4.0, 0.0]])
    losses = distilling(logits, torch.tensor([2]), teacher, (2, 1))
    # At temperature 4 the softmax of (4, 0) is (σ(1), σ(−1)), and of (0, 4) its mirror image.
    p = 1 / (1 + math.exp(-1))
    cross_entropy = -(p * math.log(1 - p) + (1 - p) * math.log(p))
    classification = math.log(1 + math.exp(-4) + math.exp(-8))
    assert float(losses["distillation"]) == pytest.approx(2 / 3 * 4 * cross_entropy)
    assert float(losses["classification"]) == pytest.approx(1 / 3 * classification, rel=1e-5)
    first = distilling(logits, torch.tensor([2]), None, (3,))
    assert float(first["classification"]) == pytest.approx(classification, rel=1e-5)
    assert first.keys() == {"classification"}


def test_only_its_characters_recipe_undoes_lambda_and_has_a_raw_teacher() -> None:
    undoing = []
    raw = []
    for method in ("bic", "bic-means"):
        for name in RECIPES:
            learning = Learning(method=method, recipe=name, memory=10)
            if learning.recipe.optimiser.undo_lambda:
                undoing.append((method, name))
            if not getattr(learning.method_settings, "corrected_teacher", True):
                raw.append((method, name))
    assert undoing == raw == [("bic-means", "characters")]


@pytest.mark.parametrize("is_corrected", [True, False])
def test_the_teacher_is_the_corrected_head_or_the_raw_one(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, is_corrected: bool
) -> None:
    corrections: list[Correction | None] = []

    def watched(network: Network, correction: Correction | None) -> Teacher:
        corrections.append(correction)
        return Teacher(network, correction)

    monkeypatch.setattr(bic.learn.step, "Teacher", watched)
    learner = toy_learner("bic-means", method_settings={"corrected_teacher": is_corrected})
    reported = []
    for step in toy_steps(dataset):
        learn(learner, step)
        reported.append(learner.model.correction)
    assert reported[0] is None
    assert reported[1] is not None
    assert corrections == [None, reported[1] if is_corrected else None]


def test_a_raw_teacher_leaves_the_share_of_the_previous_network_corrected(dataset: Dataset) -> None:
    settings = {"corrected_teacher": False, "previous_share": 0.5}
    learner = toy_learner("bic-means", method_settings=settings)
    first, second, third = toy_steps(dataset)
    learn(learner, first)
    learn(learner, second)
    correction = learner.model.answer.teacher_correction
    learn(learner, third)
    previous = answer_of(learner).previous
    assert correction is not None
    assert previous is not None
    assert previous.correction == correction


def test_the_blend_is_fitted_with_means_that_held_out_images_have_no_part_in(
    dataset: Dataset,
) -> None:
    learner = toy_learner("bic-means", memory=AMPLE)
    for step in toy_steps(dataset):
        learn(learner, step)
        answer = answer_of(learner)
        memory = learner.memory
        means = means_by_hand(learner, memory.train_images())
        torch.testing.assert_close(answer.means, means)
        held_out = memory.held_out_images()
        pixels = pixels_of(held_out)
        raw, _ = learner.model.logits(pixels)
        part = LogitsAndCosines(held_out.labels, raw, cosines(features_of(learner, pixels), means))
        expected = fit_blend([part], 2 * (step.number - 1))
        assert answer.blend.head == pytest.approx(expected.head, rel=1e-4)
        assert answer.blend.means == pytest.approx(expected.means, rel=1e-4)
        assert answer.blend.correction.alpha == pytest.approx(expected.correction.alpha, rel=1e-4)


def test_the_accuracy_on_held_out_images_is_that_on_other_images() -> None:
    """Sixty classes with three exemplars each: if the means included the held-out
    exemplars, 97 % of them would be right, and 30 % of other images."""
    draws = np.random.default_rng(0)
    prototypes = draws.integers(0, 256, (60, 8, 8))

    def images_of(per_class: int) -> tuple[Any, list[str]]:
        noise = draws.integers(0, 256, (60, per_class, 8, 8))
        images = 0.3 * prototypes[:, None] + 0.7 * noise
        labels = [f"{label:02}" for label in range(60) for _ in range(per_class)]
        return images.reshape(-1, 8, 8).astype(np.uint8), labels

    learner = toy_learner("bic-means", memory=180, held_out=0.34)
    images, labels = images_of(20)
    for start in (0, 400, 800):
        learner.learn(images[start : start + 400], labels[start : start + 400])
    held_out = learner.memory.held_out_images()
    on_held_out = learner.model.evaluate(held_out, classes=learner.model.classes).accuracy.value
    on_others = learner.model.evaluate(*images_of(20)).accuracy.value
    assert len(held_out) == 60
    assert on_held_out == pytest.approx(on_others, abs=0.12)


def test_a_step_of_known_classes_fits_the_blend_again(dataset: Dataset) -> None:
    learner = toy_learner("bic-means")
    learner.learn(*arrays_of(dataset.train, "ab"))
    learner.learn(*arrays_of(dataset.train, "ab"))
    assert learner.model.correction is None  # there is still no bias to correct
    learner.learn(*arrays_of(dataset.train, "cd"))
    before = answer_of(learner).blend
    learner.learn(*arrays_of(dataset.test, "bc"))
    after = answer_of(learner).blend
    assert after.correction.num_old == before.correction.num_old == 2
    assert after != before


def test_the_share_of_the_previous_network_is_part_of_the_answer(
    dataset: Dataset, tmp_path: Path
) -> None:
    learner = toy_learner("bic-means", method_settings={"previous_share": 0.5})
    for step in toy_steps(dataset):
        learn(learner, step)
        assert (answer_of(learner).previous is not None) == (step.number > 1)
    pixels = pixels_of(dataset.test)
    learner.save(tmp_path / "model")
    loaded = Model.load(tmp_path / "model")
    assert torch.equal(loaded.logits(pixels)[1], learner.model.logits(pixels)[1])


@pytest.mark.parametrize(
    ("limit", "totals", "of_old_classes"),
    [
        # Both new classes hold four images out, and two of four old classes stay in the draw.
        (8, [8, 8 + 8, 8 + 8], [0, 0, 4, 4]),
        # Each new class holds one image out, but only one of these is fitted on.
        (1, [1, 1 + 1, 1 + 1], [0, 0, 0, 1]),
    ],
)
def test_no_more_images_than_the_limit_are_fitted_on(
    dataset: Dataset,
    monkeypatch: pytest.MonkeyPatch,
    limit: int,
    totals: list[int],
    of_old_classes: list[int],
) -> None:
    counts = []
    compute = bic.learn.stage2.logits_and_cosines

    def watched(
        network: Any, images: ImageSet, *rest: Any, active: list[int]
    ) -> list[LogitsAndCosines]:
        counts.append(np.bincount(images.labels, minlength=6).tolist())
        return compute(network, images, *rest, active=active)

    monkeypatch.setattr(bic.learn.stage2, "logits_and_cosines", watched)
    learner = toy_learner("bic-means", memory=AMPLE, held_out_limit=limit)
    for step in toy_steps(dataset):
        learn(learner, step)
    assert [sum(images) for images in counts] == totals
    assert sorted(counts[2][:4]) == of_old_classes


def test_a_learner_that_is_saved_and_loaded_learns_the_same(
    dataset: Dataset, tmp_path: Path
) -> None:
    learner = toy_learner("bic-means", held_out_limit=8)
    first, second, third = toy_steps(dataset)
    learn(learner, first)
    learn(learner, second)
    learner.save(tmp_path / "saved")
    loaded = Learner.load(tmp_path / "saved")
    assert loaded.learning.held_out_limit == 8
    learn(learner, third)
    learn(loaded, third)
    pixels = pixels_of(dataset.test)
    assert torch.equal(loaded.model.logits(pixels)[1], learner.model.logits(pixels)[1])


@pytest.mark.parametrize("limit", [1, 10**9, None])
def test_any_limit_works(dataset: Dataset, limit: int | None) -> None:
    learner = toy_learner("bic-means", held_out_limit=limit)
    for step in toy_steps(dataset):
        learn(learner, step)
    assert np.isfinite(learner.model.predict_proba(arrays_of(dataset.test, "ab")[0])).all()


def test_images_that_are_all_equal_are_learned_without_failing() -> None:
    """Every feature is the same, and so is every class mean."""
    learner = toy_learner("bic-means")
    images = np.full((40, 8, 8), 128, dtype=np.uint8)
    learner.learn(images, ["a", "b"] * 20)
    learner.learn(images, ["c", "d"] * 20)
    probabilities = learner.model.predict_proba(images[:2])
    assert np.isfinite(probabilities).all()
    assert probabilities.sum(axis=1) == pytest.approx([1.0, 1.0], abs=1e-5)


def test_a_class_with_one_image_is_refused() -> None:
    images = np.zeros((5, 8, 8), dtype=np.uint8)
    with pytest.raises(UserError, match="has only 1 training image and bic-means needs two"):
        toy_learner("bic-means").learn(images, ["a", "a", "a", "a", "b"])


def test_a_memory_that_cannot_hold_two_images_of_each_class_is_refused(dataset: Dataset) -> None:
    with pytest.raises(UserError, match="memory must hold two images"):
        toy_learner("bic-means", memory=3).learn(*arrays_of(dataset.train, "ab"))
