"""Stage 2: which images the correction is fitted on, and for which classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.learners import learn, pixels_of, toy_learner, toy_steps
from support.toy import toy_dataset
from torch import Tensor

import bic.learn.stage2
from bic import METHODS, Correction, Dataset, ImageSet, Learner, fit_correction
from bic.learn.losses import Losses, classification, distillation
from bic.learn.stage2 import held_out_logits
from bic.model.answers import BlendedHead, CorrectedHead, RawHead

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")

AMPLE = 1000  # a memory that keeps every image


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return toy_dataset(0.6)


def fitted_again(learner: Learner, num_old: int, penalty: float = 0.0) -> Correction:
    """The correction fitted on all held-out images of a memory that keeps every image."""
    held_out = learner.memory.held_out_images()
    raw, _ = learner.model.logits(pixels_of(held_out))
    return fit_correction(raw, held_out.labels, num_old, penalty=penalty)


def assert_close(correction: Correction | None, expected: Correction) -> None:
    assert correction is not None
    assert correction.num_old == expected.num_old
    assert correction.alpha == pytest.approx(expected.alpha, rel=1e-5)
    assert correction.beta == pytest.approx(expected.beta, rel=1e-5)


@pytest.mark.parametrize("penalty", [0.0, 10.0])
def test_the_correction_is_fitted_on_the_held_out_images_of_all_classes(
    penalty: float, dataset: Dataset
) -> None:
    learner = toy_learner(memory=AMPLE, correction_penalty=penalty)
    for step in toy_steps(dataset):
        learned = learn(learner, step)
        # ⌊0.3 · 24⌋ = 7 images of each class are held out.
        assert learned.num_held_out == 7 * 2 * step.number == len(learner.memory.held_out_images())
        if step.number == 1:
            assert isinstance(learner.model.answer, RawHead)
            continue
        assert isinstance(learner.model.answer, CorrectedHead)
        num_old = 2 * (step.number - 1)
        assert_close(learner.model.correction, fitted_again(learner, num_old, penalty))


def watch_fits(monkeypatch: pytest.MonkeyPatch) -> list[ImageSet]:
    """Record the images of every fit."""
    fitted_on: list[ImageSet] = []

    def watched(network: Any, images: ImageSet, *arguments: Any, **options: Any) -> Any:
        fitted_on.append(images)
        return held_out_logits(network, images, *arguments, **options)

    monkeypatch.setattr(bic.learn.stage2, "held_out_logits", watched)
    return fitted_on


@pytest.mark.parametrize("method", ["bic", "bic-trained"])
def test_bic_trained_fits_on_as_many_trained_images(
    method: str, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted_on = watch_fits(monkeypatch)
    learner = toy_learner(method, memory=AMPLE)
    for step in toy_steps(dataset)[:2]:
        learn(learner, step)
    (images,) = fitted_on
    assert Counter(images.labels.tolist()) == dict.fromkeys(range(4), 7)
    used = {image.numpy().tobytes() for image in pixels_of(images)}
    trained = {image.numpy().tobytes() for image in pixels_of(learner.memory.train_images())}
    assert len(used) == 28
    assert used <= trained if method == "bic-trained" else not used & trained


# Steps without new classes


def part_of(dataset: Dataset, classes: Sequence[str], start: int, end: int) -> ImageSet:
    """Images number `start` to `end` of each class. Labels are positions in `classes`."""
    indices = [dataset.classes.index(name) for name in classes]
    images = dataset.train.of_classes(indices)
    rows = [np.flatnonzero(images.labels == label)[start:end] for label in range(len(classes))]
    return images.select(np.concatenate(rows))


def learn_part(
    learner: Learner, dataset: Dataset, classes: Sequence[str], start: int, end: int
) -> None:
    learner.learn(part_of(dataset, classes, start, end), classes=classes)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_known_classes_fit_the_present_correction_again(share: float, dataset: Dataset) -> None:
    """It stays a correction of the classes that it had: without it the bias would come back."""
    learner = toy_learner(memory=AMPLE, method_settings={"previous_share": share})
    learn_part(learner, dataset, "ab", 0, 12)
    learn_part(learner, dataset, "cd", 0, 12)
    before = learner.model.answer
    for start, end in ((12, 18), (18, 24)):
        learn_part(learner, dataset, "abd", start, end)
        answer = learner.model.answer
        assert isinstance(answer, BlendedHead if share else CorrectedHead)
        assert_close(answer.teacher_correction, fitted_again(learner, num_old=2))
        assert answer.correction is not None
        assert answer.correction.num_old == 2
        assert answer.correction != before.correction
    assert learner.model.classes_per_step == (2, 2, 0, 0)
    assert learner.model.classes == ("a", "b", "c", "d")


def test_known_classes_before_any_correction_leave_the_head_uncorrected(dataset: Dataset) -> None:
    learner = toy_learner(memory=AMPLE)
    learn_part(learner, dataset, "ab", 0, 12)
    learn_part(learner, dataset, "ab", 12, 24)
    assert isinstance(learner.model.answer, RawHead)
    assert learner.model.classes_per_step == (2, 0)
    learn_part(learner, dataset, "cd", 0, 12)
    assert_close(learner.model.correction, fitted_again(learner, num_old=2))


def test_bic_trained_goes_on_if_the_last_class_holds_nothing_out(dataset: Dataset) -> None:
    """With a limit of 1, one class of four holds an image out."""
    learner = toy_learner("bic-trained", memory=AMPLE, held_out_limit=1)
    learn_part(learner, dataset, "ab", 0, 12)
    learn_part(learner, dataset, "cd", 0, 12)
    assert not learner.memory.classes[3].held_out
    learn_part(learner, dataset, "ab", 12, 24)
    assert learner.model.classes_per_step == (2, 2, 0)


def test_new_classes_after_known_ones_are_corrected_as_usual(dataset: Dataset) -> None:
    learner = toy_learner(memory=AMPLE)
    learn_part(learner, dataset, "ab", 0, 12)
    learn_part(learner, dataset, "cd", 0, 12)
    learn_part(learner, dataset, "ac", 12, 24)
    learn_part(learner, dataset, "bef", 12, 24)
    assert learner.model.classes_per_step == (2, 2, 0, 2)
    assert learner.model.classes == tuple("abcdef")
    assert_close(learner.model.correction, fitted_again(learner, num_old=4))


def test_known_classes_weight_both_terms_of_the_loss_equally(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """λ = ½: with λ = n / (n + 0) = 1 the labels would not count."""
    method = METHODS["bic"]
    num_batches = 0

    def loss(
        logits: Tensor, labels: Tensor, teacher: Tensor | None, classes_per_step: Sequence[int]
    ) -> Losses:
        nonlocal num_batches
        terms = method.loss(logits, labels, teacher, classes_per_step)
        if tuple(classes_per_step) == (2, 2, 0):
            num_batches += 1
            assert teacher is not None
            assert logits.shape == teacher.shape == (len(labels), 4)
            assert torch.equal(terms["distillation"], 0.5 * distillation(logits, teacher))
            assert torch.equal(terms["classification"], 0.5 * classification(logits, labels))
        return terms

    monkeypatch.setitem(METHODS, "bic", replace(method, loss=loss))
    learner = toy_learner()
    learn_part(learner, dataset, "ab", 0, 12)
    learn_part(learner, dataset, "cd", 0, 12)
    assert num_batches == 0
    learn_part(learner, dataset, "ad", 12, 24)
    assert num_batches > 0
