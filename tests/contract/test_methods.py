"""One contract for every method, checked on runs over a tiny problem."""

from __future__ import annotations

import gc
import json
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import bic
import bic.learn.learner
from bic import (
    METHODS,
    Correction,
    Dataset,
    HeldOutWarning,
    ImageSet,
    Learner,
    Method,
    Model,
    RunConfig,
    StepResult,
)
from bic.data.images import array_set
from bic.learn.lesson import Lesson, Step

CLASSES = ("ant", "bee", "cat", "dog", "eel", "fox")
ORDER = (3, 0, 5, 1, 4, 2)
NAMES = ("dog", "ant", "fox", "bee", "eel", "cat")
NUM_TRAIN = 24  # images per class
NUM_TEST = 10
BUDGET = 36

RESULT_KEYS = {
    *("method", "dataset", "seed", "config", "complete", "classes", "made_with", "steps"),
    *("final_top1", "average_top1", "average_incremental_top1"),
}
STEP_KEYS = {
    *("step", "seen", "top1", "top5", "top1_uncorrected", "top1_per_group", "alpha", "beta"),
    *("share_on_new", "share_on_new_uncorrected", "true_share_of_new", "forgetting"),
    *("num_train", "num_held_out", "num_exemplars", "seconds"),
    "predictions_checksum",
}


def image_part(images_per_class: int, seed: int) -> ImageSet:
    """Every class has its own pattern, under noise."""
    patterns = np.random.default_rng(0).integers(0, 256, (6, 8, 8))
    labels = np.tile(np.arange(6), images_per_class)
    noise = np.random.default_rng(seed).integers(0, 256, (len(labels), 8, 8))
    pixels = 0.7 * patterns[labels] + 0.3 * noise
    return array_set(pixels.astype(np.uint8), labels.astype(np.int64))


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return Dataset(
        name="toy", classes=CLASSES, train=image_part(NUM_TRAIN, 1), test=image_part(NUM_TEST, 2)
    )


def config_of(method: str, **changes: Any) -> RunConfig:
    settings = {
        "step_sizes": (2, 2, 2),
        "class_order": ORDER,
        "memory": BUDGET,
        "held_out": 0.3,
        "recipe": {"name": "demo", "backbone": "small", "epochs": 2, "batch_size": 8},
        **changes,
    }
    return RunConfig(dataset="toy", method=method, **settings)


# Old images are reached through the memory alone

CODE = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.FrameType,
    types.CodeType,
)


def reachable(root: object) -> list[object]:
    """Everything that can be reached from an object, except code."""
    reached: dict[int, object] = {}
    waiting = [root]
    while waiting:
        thing = waiting.pop()
        if id(thing) not in reached and not isinstance(thing, CODE):
            reached[id(thing)] = thing
            waiting.extend(gc.get_referents(thing))
    return list(reached.values())


def check_reach(learner: Learner, dataset: Dataset) -> None:
    things = reachable(learner)
    assert any(thing is learner.learning for thing in things)  # the search works
    assert not any(isinstance(thing, Dataset | ImageSet | Step) for thing in things)
    assert dataset.train.pixels is not None
    storage = dataset.train.pixels.untyped_storage().data_ptr()
    for thing in things:
        if isinstance(thing, Tensor):
            assert thing.untyped_storage().data_ptr() != storage


class Watched:
    """Checks what a learner can reach before and after every step, and keeps the steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, dataset: Dataset) -> None:
        self.steps: list[Step] = []
        learn = Learner.learn
        learn_step = bic.learn.learner.learn_step

        def watched_learn(learner: Learner, *arguments: Any, **options: Any) -> Any:
            check_reach(learner, dataset)
            learned = learn(learner, *arguments, **options)
            check_reach(learner, dataset)
            return learned

        def watched_step(lesson: Lesson, *arguments: Any) -> Any:
            self.steps.append(lesson.step)
            return learn_step(lesson, *arguments)

        monkeypatch.setattr(Learner, "learn", watched_learn)
        monkeypatch.setattr(bic.learn.learner, "learn_step", watched_step)


# The contract


def check_step(step: StepResult, number: int, method: Method) -> None:
    assert step.model_dump().keys() >= STEP_KEYS
    assert (step.step, step.seen) == (number, 2 * number)
    assert step.seconds.keys() == {"stage1", "stage2", "memory", "evaluate"}
    assert min(step.seconds.values()) >= 0
    assert len(step.top1_per_group) == number
    for accuracy in (step.top1, step.top1_uncorrected, *step.top1_per_group):
        assert accuracy is not None
        assert 0 <= accuracy <= 100
    # Every class has the same number of test images.
    assert step.top1 == pytest.approx(np.mean(step.top1_per_group))
    assert (step.top5 is None) == (step.seen < 5)
    assert step.top5 is None or step.top1 <= step.top5 <= 100
    assert (step.forgetting is None) == (number == 1)
    is_corrected = method.corrects and number > 1
    assert (step.alpha is not None) == (step.beta is not None) == is_corrected
    for share in (step.share_on_new, step.share_on_new_uncorrected):
        assert 0 <= share <= 1
    assert step.true_share_of_new == pytest.approx(1 / number)
    answers_by_raw_head = method.answer == "head" and method.sees_old_data != "head"
    if answers_by_raw_head and not is_corrected:
        assert step.top1 == step.top1_uncorrected


def expected_counts(method: Method, number: int) -> tuple[int, int, int]:
    """Images trained on, held out and kept, for K = 36 and 24 images per class."""
    num_new = 2
    num_old = 2 * (number - 1)
    if method.sees_old_data == "network":
        return NUM_TRAIN * (num_old + num_new), 0, 0
    if not method.keeps_exemplars:
        return NUM_TRAIN * num_new, 0, 0
    exemplars = BUDGET // num_old if num_old else 0  # 18 and 9 per old class
    if not method.holds_out:
        return NUM_TRAIN * num_new + exemplars * num_old, 0, BUDGET
    held_out = {1: 5, 2: 5, 3: 2}[number]  # ⌊0.3 · 18⌋, ⌊0.3 · 18⌋, ⌊0.3 · 9⌋ per class
    num_train = (NUM_TRAIN - held_out) * num_new
    if num_old and not method.trains_once:
        num_train += (exemplars - held_out) * num_old
    return num_train, held_out * (num_old + num_new), BUDGET


@pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")
@pytest.mark.parametrize("name", METHODS)
def test_contract(
    name: str, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = METHODS[name]
    watched = Watched(monkeypatch, dataset)
    result = bic.run(config_of(name), tmp_path / "run", data=dataset)

    file = tmp_path / "run" / "result.json"
    content = json.loads(file.read_text())
    assert content.keys() >= RESULT_KEYS
    assert result.content() == content
    assert bic.read_result(tmp_path / "run") == result
    assert file.stat().st_size < 1_000_000  # whatever the size of the logits
    assert (result.method, result.dataset, result.seed) == (name, "toy", 0)
    assert result.complete
    assert len(result.steps) == 3
    for number, step in enumerate(result.steps, start=1):
        check_step(step, number, method)
        counts = (step.num_train, step.num_held_out, step.num_exemplars)
        assert counts == expected_counts(method, number)
    top1 = [step.top1 for step in result.steps]
    assert result.final_top1 == top1[2]
    assert result.average_top1 == pytest.approx(sum(top1) / 3)
    assert result.average_incremental_top1 == pytest.approx((top1[1] + top1[2]) / 2)
    first, second, third = (step.top1_per_group for step in result.steps)
    assert result.steps[1].forgetting == pytest.approx(first[0] - second[0])
    lost = [max(first[0], second[0]) - third[0], second[1] - third[1]]
    assert result.steps[2].forgetting == pytest.approx(sum(lost) / 2)

    # A step brings its new classes. Only upper bounds see old data.
    assert len(watched.steps) == 3
    for number, lesson_step in enumerate(watched.steps, start=1):
        assert set(lesson_step.train.labels) == {2 * number - 2, 2 * number - 1}
        assert (lesson_step.everything is not None) == method.is_upper_bound
    assert method.is_upper_bound == ("upper bound" in method.summary)
    if method.is_upper_bound:
        assert top1[2] > 40  # chance is 16.7

    # The saved model predicts the same, with its correction and its names.
    model = Model.load(tmp_path / "run")
    assert model.classes == NAMES == tuple(result.classes)
    assert model.classes_per_step == (2, 2, 2)
    expected_correction = None
    if method.corrects:
        last = result.steps[2]
        assert last.alpha is not None
        assert last.beta is not None
        expected_correction = Correction(last.alpha, last.beta, 4)
    assert model.correction == expected_correction
    check_predictions(model, tmp_path / "run" / "predictions-3.npz", dataset, top1[2])


def check_predictions(model: Model, path: Path, dataset: Dataset, top1: float) -> None:
    saved = np.load(path, allow_pickle=False)
    images = dataset.test.take(saved["index"])
    raw, final = model.logits(images)
    for logits, suffix in ((final, ""), (raw, "_uncorrected")):
        confidence, predicted = torch.softmax(logits, dim=1).max(dim=1)
        assert predicted.tolist() == saved[f"predicted{suffix}"].tolist()
        assert confidence.tolist() == saved[f"confidence{suffix}"].tolist()
    # Labels are positions in the order of learning.
    true = [ORDER[label] for label in saved["true"]]
    assert true == dataset.test.labels[saved["index"]].tolist()
    assert 100 * (saved["predicted"] == saved["true"]).mean() == pytest.approx(top1)
    # Users get names and probabilities.
    pixels = images[:, 0].numpy()
    assert model.predict(pixels) == [NAMES[position] for position in saved["predicted"]]
    model.calibration = None  # recorded confidences are not calibrated
    assert model.predict_proba(pixels).max(axis=1) == pytest.approx(saved["confidence"], abs=1e-5)


# Methods that agree


def test_in_one_step_distill_and_finetune_are_the_same(dataset: Dataset, tmp_path: Path) -> None:
    """They share the loss of the first step, and neither holds images out."""
    top1 = []
    weights = []
    for method in ("distill", "finetune"):
        config = config_of(method, step_sizes=(6,))
        top1.append(bic.run(config, tmp_path / method, data=dataset).final_top1)
        weights.append(Model.load(tmp_path / method).network.state_dict())
    assert top1[0] == top1[1]
    for name, value in weights[0].items():
        assert torch.equal(value, weights[1][name])


def test_a_tiny_held_out_set_warns(dataset: Dataset, tmp_path: Path) -> None:
    config = config_of("bic", memory=12, held_out=0.1)
    with pytest.warns(HeldOutWarning) as warned:
        bic.run(config, tmp_path, data=dataset)
    assert {warning.filename for warning in warned} == {__file__}  # the caller, not the library
