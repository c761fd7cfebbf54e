"""Evaluation a batch at a time against arithmetic on all logits at once."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
import torch

from bic import Correction, UserError
from bic.data.images import ImageSet, array_set
from bic.model.evaluate import evaluate, per_group
from bic.model.model import Model
from bic.progress import Progress

NUM_OLD, NUM_CLASSES = 7, 12


@pytest.fixture
def test_set() -> ImageSet:
    """700 vectors: two batches."""
    draws = np.random.default_rng(0)
    return array_set(
        draws.normal(size=(700, 6)).astype(np.float32), draws.integers(0, NUM_CLASSES, 700)
    )


def model_for(images: ImageSet, classes_per_step: tuple[int, ...] = (NUM_OLD, NUM_CLASSES - NUM_OLD)) -> Model:
    torch.manual_seed(0)
    model = Model.fresh("mlp", images.preprocessing)
    model.network.head.grow(sum(classes_per_step))
    model.classes, model.classes_per_step = tuple(map(str, range(sum(classes_per_step)))), classes_per_step
    return model


@pytest.mark.parametrize("correction", [None, Correction(0.5, -0.1, NUM_OLD)])
def test_metrics_are_those_of_all_scores_at_once(test_set, correction: Correction | None) -> None:
    model = model_for(test_set)
    model.correction = correction
    index = np.arange(700) * 3
    predictions, metrics = evaluate(model, test_set, index, Progress("quiet"))
    raw, final = (logits.numpy() for logits in model.logits(test_set.take(test_set.everything)))
    true, answer, uncorrected = test_set.labels, final.argmax(axis=1), raw.argmax(axis=1)
    assert (answer != uncorrected).any() == (correction is not None)
    assert predictions["index"].tolist() == index.tolist()
    assert predictions["true"].tolist() == true.tolist()
    assert predictions["predicted"].tolist() == answer.tolist()
    assert predictions["predicted_uncorrected"].tolist() == uncorrected.tolist()
    for name, logits in (("confidence", final), ("confidence_uncorrected", raw)):
        assert predictions[name] == pytest.approx(
            (np.exp(logits).T / np.exp(logits).sum(axis=1)).max(axis=0)
        )
    assert metrics["top1"] == 100 * np.mean(answer == true)
    assert metrics["top1_uncorrected"] == 100 * np.mean(uncorrected == true)
    best = np.argsort(-final, axis=1)[:, :5]
    assert metrics["top5"] == pytest.approx(100 * np.mean((best == true[:, None]).any(axis=1)))
    old = true < NUM_OLD
    assert metrics["top1_per_group"] == [
        100 * np.mean((answer == true)[part]) for part in (old, ~old)
    ]
    assert metrics["share_on_new"] == np.mean(answer >= NUM_OLD)
    assert metrics["share_on_new_uncorrected"] == np.mean(uncorrected >= NUM_OLD)
    assert metrics["true_share_of_new"] == np.mean(~old)
    for name, part in (("old", raw[:, :NUM_OLD]), ("new", raw[:, NUM_OLD:])):
        found, expected = (
            metrics["score_histograms"][name],
            Counter(np.floor(part / 0.25).ravel().tolist()),
        )
        assert found["width"] == 0.25
        start = round(found["start"] / 0.25)
        assert {start + n: count for n, count in enumerate(found["counts"]) if count} == expected
    norms = model.network.head.weight.detach().norm(dim=1).numpy()
    for found, own in zip(
        metrics["head_norms_per_group"], (norms[:NUM_OLD], norms[NUM_OLD:]), strict=True
    ):
        assert found == pytest.approx(np.quantile(own, [0, 0.25, 0.5, 0.75, 1]))


def test_absurd_scores_take_no_memory_and_are_all_counted(test_set) -> None:
    model = model_for(test_set)
    model.network.head.weight.data *= 1e12
    _, metrics = evaluate(model, test_set, test_set.everything, Progress("quiet"))
    counted = {name: sum(part["counts"]) for name, part in metrics["score_histograms"].items()}
    assert counted == {"old": 700 * NUM_OLD, "new": 700 * (NUM_CLASSES - NUM_OLD)}
    assert max(len(part["counts"]) for part in metrics["score_histograms"].values()) <= 401


def test_what_a_step_records_does_not_grow_with_the_classes(test_set) -> None:
    _, few = evaluate(model_for(test_set), test_set, test_set.everything, Progress("quiet"))
    _, many = evaluate(
        model_for(test_set, (NUM_OLD, 5000)), test_set, test_set.everything, Progress("quiet")
    )
    assert len(json.dumps(many)) < len(json.dumps(few)) + 500


def test_a_step_without_a_readable_test_image_is_named() -> None:
    with pytest.raises(UserError, match="no test image of step 2's classes can be read; mend them"):
        per_group(np.array([0, 1, 4]), np.array([0, 1, 4]), (2, 2, 1))
