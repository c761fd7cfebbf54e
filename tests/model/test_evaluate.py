"""Evaluation one batch at a time, compared with arithmetic on all logits at once."""

import json
from collections import Counter

import numpy as np
import pytest
import torch

from bic import Correction, ImageSet, Model, Progress, UserError
from bic.data.images import array_set
from bic.model.answers import CorrectedHead
from bic.model.evaluate import evaluate, forgetting, per_group

NUM_OLD = 7
NUM_CLASSES = 12
QUIET = Progress("quiet")


@pytest.fixture
def test_set() -> ImageSet:
    """700 vectors: two batches."""
    draws = np.random.default_rng(0)
    vectors = draws.normal(size=(700, 6)).astype(np.float32)
    return array_set(vectors, draws.integers(0, NUM_CLASSES, 700))


def model_for(
    images: ImageSet, classes_per_step: tuple[int, ...] = (NUM_OLD, NUM_CLASSES - NUM_OLD)
) -> Model:
    torch.manual_seed(0)
    model = Model.fresh("mlp", images.preprocessing)
    model.network.head.grow(sum(classes_per_step))
    model.classes = tuple(map(str, range(sum(classes_per_step))))
    model.classes_per_step = classes_per_step
    return model


@pytest.mark.parametrize("correction", [None, Correction(0.5, -0.1, NUM_OLD)])
def test_metrics_are_those_of_all_logits_at_once(
    test_set: ImageSet, correction: Correction | None
) -> None:
    model = model_for(test_set)
    if correction is not None:
        model.answer = CorrectedHead(correction)
    index = np.arange(700) * 3
    predictions, metrics = evaluate(model, test_set, index, QUIET)
    raw, final = (logits.numpy() for logits in model.logits(test_set.take(test_set.everything)))
    true = test_set.labels
    predicted = final.argmax(axis=1)
    uncorrected = raw.argmax(axis=1)
    assert (predicted != uncorrected).any() == (correction is not None)
    assert predictions["index"].tolist() == index.tolist()
    assert predictions["true"].tolist() == true.tolist()
    assert predictions["predicted"].tolist() == predicted.tolist()
    assert predictions["predicted_uncorrected"].tolist() == uncorrected.tolist()
    for name, logits in (("confidence", final), ("confidence_uncorrected", raw)):
        probabilities = np.exp(logits).T / np.exp(logits).sum(axis=1)
        assert predictions[name] == pytest.approx(probabilities.max(axis=0))
    assert metrics["top1"] == 100 * np.mean(predicted == true)
    assert metrics["top1_uncorrected"] == 100 * np.mean(uncorrected == true)
    best = np.argsort(-final, axis=1)[:, :5]
    assert metrics["top5"] == pytest.approx(100 * np.mean((best == true[:, None]).any(axis=1)))
    is_old = true < NUM_OLD
    is_right = predicted == true
    expected = [100 * np.mean(is_right[is_old]), 100 * np.mean(is_right[~is_old])]
    assert metrics["top1_per_group"] == expected
    assert metrics["share_on_new"] == np.mean(predicted >= NUM_OLD)
    assert metrics["share_on_new_uncorrected"] == np.mean(uncorrected >= NUM_OLD)
    assert metrics["true_share_of_new"] == np.mean(~is_old)


@pytest.mark.parametrize("part", ["old", "new"])
def test_histograms_count_all_raw_logits(test_set: ImageSet, part: str) -> None:
    model = model_for(test_set)
    _, metrics = evaluate(model, test_set, test_set.everything, QUIET)
    raw = model.logits(test_set.take(test_set.everything))[0].numpy()
    logits = raw[:, :NUM_OLD] if part == "old" else raw[:, NUM_OLD:]
    histogram = metrics["score_histograms"][part]
    assert histogram["width"] == 0.25
    start = round(histogram["start"] / 0.25)
    counts = {start + bin: count for bin, count in enumerate(histogram["counts"]) if count}
    assert counts == Counter(np.floor(logits / 0.25).ravel().tolist())


def test_norms_of_the_head_are_quartiles_per_step(test_set: ImageSet) -> None:
    model = model_for(test_set)
    _, metrics = evaluate(model, test_set, test_set.everything, QUIET)
    norms = model.network.head.weight.detach().norm(dim=1).numpy()
    old, new = metrics["head_norms_per_group"]
    quantiles = [0, 0.25, 0.5, 0.75, 1]
    assert old == pytest.approx(np.quantile(norms[:NUM_OLD], quantiles))
    assert new == pytest.approx(np.quantile(norms[NUM_OLD:], quantiles))


def test_huge_logits_take_little_memory_and_are_all_counted(test_set: ImageSet) -> None:
    model = model_for(test_set)
    model.network.head.weight.data *= 1e12
    _, metrics = evaluate(model, test_set, test_set.everything, QUIET)
    histograms = metrics["score_histograms"]
    counted = {name: sum(histogram["counts"]) for name, histogram in histograms.items()}
    assert counted == {"old": 700 * NUM_OLD, "new": 700 * (NUM_CLASSES - NUM_OLD)}
    assert max(len(histogram["counts"]) for histogram in histograms.values()) <= 401


def test_record_of_a_step_does_not_grow_with_the_number_of_classes(test_set: ImageSet) -> None:
    _, few = evaluate(model_for(test_set), test_set, test_set.everything, QUIET)
    model = model_for(test_set, (NUM_OLD, 5000))
    _, many = evaluate(model, test_set, test_set.everything, QUIET)
    assert len(json.dumps(many)) < len(json.dumps(few)) + 500


def test_step_without_new_classes_has_no_accuracy_of_its_own(test_set: ImageSet) -> None:
    model = model_for(test_set, (NUM_CLASSES, 0))
    _, metrics = evaluate(model, test_set, test_set.everything, QUIET)
    assert metrics["top1_per_group"] == [metrics["top1"], None]
    assert metrics["head_norms_per_group"][1] == []
    assert metrics["score_histograms"]["new"] is None
    assert metrics["share_on_new"] == metrics["true_share_of_new"] == 0
    json.dumps(metrics, allow_nan=False)


@pytest.mark.parametrize("sizes", [(5,), (2, 0, 3, 0), (1,) * 5, (0, 4, 1)])
def test_accuracy_of_a_step_is_the_mean_over_its_images(sizes: tuple[int, ...]) -> None:
    draws = np.random.default_rng(len(sizes))
    true = draws.integers(0, 5, 300)
    predicted = np.where(draws.random(300) < 0.7, true, draws.integers(0, 5, 300))
    found = per_group(predicted, true, sizes)
    start = 0
    for accuracy, size in zip(found, sizes, strict=True):
        of_step = (true >= start) & (true < start + size)
        start += size
        if size:
            assert accuracy == 100 * float((predicted[of_step] == true[of_step]).mean())
        else:
            assert accuracy is None


def test_step_without_a_readable_test_image_is_named() -> None:
    message = "no test image of the classes of step 2 can be read; fix these images and run again"
    with pytest.raises(UserError, match=message):
        per_group(np.array([0, 1, 4]), np.array([0, 1, 4]), (2, 2, 1))


def test_forgetting_leaves_out_steps_without_new_classes() -> None:
    assert forgetting([[90.0]]) is None
    # Groups 1 and 2 lost 90 - 60 and 75 - 65; group 3 has no classes.
    per_step = [[90.0], [80.0, 70.0], [70.0, 75.0, None], [60.0, 65.0, None, 50.0]]
    assert forgetting(per_step) == 20.0
