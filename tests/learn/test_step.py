"""A whole step: what every method must learn, and steps that bring images of known classes."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from support.learners import (
    BUDGET,
    NUM_TRAIN,
    ORDER,
    are_equal,
    learn,
    pixels_of,
    toy_learner,
    toy_steps,
    watch_phases,
)
from support.toy import toy_dataset

from bic import METHODS, Dataset, Learner, Progress
from bic.learn.lesson import Checkpoint
from bic.model.evaluate import evaluate, forgetting
from bic.model.saved import description, tensors
from bic.store.results import StepResult

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return toy_dataset(0.7, train=NUM_TRAIN)


@pytest.mark.parametrize("method", [name for name in METHODS if name != "lwf"])
def test_an_easy_problem_is_learned(method: str, dataset: Dataset) -> None:
    """Chance is 1 in 6. Only lwf, which keeps no old image, may forget even here."""
    learner = toy_learner(method, {"epochs": 3})
    for step in toy_steps(dataset, method):
        learn(learner, step)
    test = dataset.test.of_classes(ORDER)
    _, final = learner.model.logits(pixels_of(test))
    labels = torch.from_numpy(test.labels)
    correct = (final.argmax(dim=1) == labels).float()
    assert correct.mean() > 0.8
    for label in range(6):
        assert correct[labels == label].mean() > 0.5


@pytest.mark.parametrize("method", [*METHODS, "bic-trained"])
def test_an_interrupted_step_resumes_to_the_last_bit(method: str, dataset: Dataset) -> None:
    """From the checkpoint of each epoch, of EEIL's balanced fine-tuning too."""
    steps = toy_steps(dataset, method)[:2]
    checkpoints: list[Checkpoint] = []

    def save(checkpoint: Checkpoint) -> None:
        tensors = {name: value.detach().clone() for name, value in checkpoint.tensors.items()}
        checkpoints.append(
            Checkpoint(
                checkpoint.step, checkpoint.phase, checkpoint.epoch, checkpoint.seconds, tensors
            )
        )

    whole = toy_learner(method)
    learn(whole, steps[0])
    start_model = whole.model
    start_memory = whole.memory.to_table()
    start_moments = whole.memory.moments
    learn(whole, steps[1], save=save)
    assert len(checkpoints) == {"eeil": 3, "ridge": 0}.get(method, 2)
    for checkpoint in checkpoints:
        resumed = toy_learner(method)
        resumed.restore(start_model, start_memory, start_moments)
        learn(resumed, steps[1], resume=checkpoint)
        assert are_equal(tensors(resumed.model), tensors(whole.model))
        assert description(resumed.model) == description(whole.model)
        assert resumed.memory.to_table() == whole.memory.to_table()


# Images of known classes

KEEPS_EXEMPLARS = [
    name for name, method in METHODS.items() if method.keeps_exemplars and not method.is_upper_bound
]


@pytest.mark.parametrize("method", KEEPS_EXEMPLARS)
def test_new_images_of_known_classes_are_learned_and_compete_for_the_memory(
    method: str, dataset: Dataset
) -> None:
    learner = toy_learner(method)
    first, second, _ = toy_steps(dataset)
    first_half = first.images.select(np.arange(NUM_TRAIN))
    second_half = first.images.select(np.arange(NUM_TRAIN, 2 * NUM_TRAIN))
    learner.learn(first_half, classes=first.classes)
    learn(learner, second)
    before = {label: list(kept.train) for label, kept in learner.memory.classes.items()}
    learned = learner.learn(second_half, classes=first.classes)
    assert learner.model.classes_per_step == (2, 2, 0)
    correction = learner.model.correction
    if METHODS[method].corrects:
        assert correction is not None
        assert correction.num_old == 2
    else:
        assert correction is None
    assert learned.num_exemplars <= BUDGET
    num_old_trained = 0 if METHODS[method].trains_once else sum(map(len, before.values()))
    num_held_out = len(second_half) - (learned.num_train - num_old_trained)
    assert num_held_out == 0 or METHODS[method].holds_out
    new_files = {second_half.encoded(index) for index in range(len(second_half))}
    for label, kept in learner.memory.classes.items():
        if label in (0, 1):
            assert new_files & set(kept.train)
        else:
            assert kept.train == before[label][: len(kept.train)]


@pytest.mark.parametrize("method", KEEPS_EXEMPLARS)
def test_exemplars_that_are_given_again_are_trained_on_once(
    method: str, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if all exemplars are: EEIL still balances as many of each class as there were."""
    phases = watch_phases(monkeypatch)
    learner = toy_learner(method)
    first, second, _ = toy_steps(dataset)
    learn(learner, first)
    learn(learner, second)
    kept = learner.memory.classes
    most_exemplars = max((len(part.train) for part in kept.values()), default=0)
    held_out = {image for part in kept.values() for image in part.held_out}
    images = dataset.train.of_classes(ORDER[:4])
    is_given = [images.encoded(index) not in held_out for index in range(len(images))]
    given = images.select(np.flatnonzero(is_given))
    mask = np.ones(len(given), dtype=np.bool_)
    learned = learner.learn(given, classes=first.classes + second.classes, learned_before=mask)
    assert learned.num_train == len(given)
    if METHODS[method].balanced_phase:
        balanced = phases["balanced fine-tuning", 3].images
        assert np.bincount(balanced.labels).tolist() == [most_exemplars] * 4


def test_upper_bounds_see_everything_in_a_step_without_new_classes(dataset: Dataset) -> None:
    for method in ("joint", "fc-retrain"):
        learner = toy_learner(method)
        first, second, _ = toy_steps(dataset, method)
        learn(learner, first)
        learn(learner, second)
        learner.learn(first.images, classes=first.classes, everything=second.everything)
        assert learner.model.classes_per_step == (2, 2, 0)


def evaluated(learner: Learner, dataset: Dataset) -> dict[str, object]:
    """The metrics on the test images of all classes seen."""
    test = dataset.test.of_classes(ORDER[: len(learner.model.classes)])
    _, metrics = evaluate(learner.model, test, test.everything, Progress("quiet"))
    return metrics


@pytest.mark.parametrize("method", KEEPS_EXEMPLARS)
def test_a_step_without_new_classes_can_be_evaluated_and_continued(
    method: str, dataset: Dataset
) -> None:
    learner = toy_learner(method)
    first, second, third = toy_steps(dataset)
    groups: list[list[float | None]] = []
    learn(learner, first)
    groups.append(evaluated(learner, dataset)["top1_per_group"])
    learn(learner, second)
    groups.append(evaluated(learner, dataset)["top1_per_group"])

    learned = learner.learn(first.images, classes=first.classes)
    metrics = evaluated(learner, dataset)
    groups.append(metrics["top1_per_group"])
    assert [accuracy is None for accuracy in groups[-1]] == [False, False, True]
    assert (metrics["share_on_new"], metrics["true_share_of_new"]) == (0, 0)
    result = StepResult(
        step=3,
        seen=4,
        **metrics,
        forgetting=forgetting(groups),
        num_train=learned.num_train,
        num_held_out=learned.num_held_out,
        num_exemplars=learned.num_exemplars,
        seconds=learned.seconds,
    )
    text = json.dumps(result.model_dump(mode="json"), allow_nan=False)
    assert StepResult.model_validate(json.loads(text)) == result

    learn(learner, third)
    metrics = evaluated(learner, dataset)
    groups.append(metrics["top1_per_group"])
    assert learner.model.classes_per_step == (2, 2, 0, 2)
    assert [accuracy is None for accuracy in groups[-1]] == [False, False, True, False]
    best = [max(groups[0][0], groups[1][0], groups[2][0]), max(groups[1][1], groups[2][1])]
    lost = [best[0] - groups[3][0], best[1] - groups[3][1]]
    assert forgetting(groups) == pytest.approx(sum(lost) / 2)
    json.dumps(metrics, allow_nan=False)
