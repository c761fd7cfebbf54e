"""What a learner refuses, and that a step which fails changes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.foreign_code import ForeignCode
from support.learners import Array, State, are_equal, arrays_of, toy_learner
from support.toy import toy_dataset

from bic import Dataset, Learner, Learning, UserError
from bic.data.images import array_set
from bic.learn.lesson import Checkpoint
from bic.model.saved import description, tensors

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return toy_dataset(0.8)


# Wrong input


def zeros(count: int, *shape: int) -> Array:
    return np.zeros((count, *shape), dtype=np.uint8)


PAIR = ["a", "b"] * 10
WRONG_INPUT: dict[str, tuple[Callable[[Learner], object], str, str]] = {
    "no labels": (lambda learner: learner.learn(zeros(20, 8, 8)), "no labels", "pass labels"),
    "an image set without classes": (
        lambda learner: learner.learn(array_set(zeros(20, 8, 8), np.arange(20) % 2)),
        "no labels",
        "pass labels",
    ),
    "too few labels": (
        lambda learner: learner.learn(zeros(20, 8, 8), ["a", "b"]),
        "there are 20 images and 2 labels",
        "one label per image",
    ),
    "float labels": (
        lambda learner: learner.learn(zeros(20, 8, 8), np.arange(20) % 2 / 2),
        r"names or of whole numbers, got float64 \[20\]",
        "name or number",
    ),
    "boolean labels": (
        lambda learner: learner.learn(zeros(20, 8, 8), np.arange(20) % 2 > 0),
        "names or of whole numbers, got bool",
        "name or number",
    ),
    "labels in columns": (
        lambda learner: learner.learn(zeros(20, 8, 8), np.eye(20, dtype=int)),
        r"got int64 \[20, 20\]",
        "name or number",
    ),
    "empty array": (
        lambda learner: learner.learn(zeros(0, 8, 8), []),
        "there are no images",
        "pass an array",
    ),
    "empty list": (lambda learner: learner.learn([], []), "there are no images", "pass an array"),
    "empty image set": (
        lambda learner: learner.learn(array_set(zeros(0, 8, 8), np.arange(0)), classes=["a"]),
        "there are no images",
        "pass images",
    ),
    "images that are not square": (
        lambda learner: learner.learn(zeros(20, 8, 6), PAIR),
        "images must be square",
        "recipe.image_size=32",
    ),
    "no images at all": (
        lambda learner: learner.learn(5, PAIR),  # type: ignore[arg-type]
        "must be an array or a list, got int",
        "pass an array",
    ),
    "a class with one image": (
        lambda learner: learner.learn(zeros(21, 8, 8), [*PAIR, "c"]),
        "class 'c' has only 1 training image",
        "add images or leave the class out",
    ),
    "an empty name": (
        lambda learner: learner.learn(zeros(20, 8, 8), ["a", " "] * 10),
        "the class name ' ' is empty",
        "rename it",
    ),
    "a name that is not printable": (
        lambda learner: learner.learn(zeros(20, 8, 8), ["a", "b\n"] * 10),
        "not printable",
        "rename it",
    ),
    "labels beyond the classes": (
        lambda learner: learner.learn(array_set(zeros(20, 8, 8), np.arange(20) % 2), classes=["a"]),
        "labels must be positions in classes",
        "name every class",
    ),
    "a class without images": (
        lambda learner: learner.learn(
            array_set(zeros(20, 8, 8), np.arange(20) % 2), classes=["a", "b", "c"]
        ),
        "class 'c' has no images",
        "leave it out",
    ),
    "a class that is named twice": (
        lambda learner: learner.learn(
            array_set(zeros(20, 8, 8), np.arange(20) % 2), classes=["a", "a"]
        ),
        "named twice",
        "rename it",
    ),
    "nothing learned yet": (
        lambda learner: learner.model.predict(zeros(1, 8, 8)),
        "nothing has been learned yet",
        r"learn\(\)",
    ),
    "nothing remembered yet": (
        lambda learner: learner.memory.to_table(),
        "nothing has been learned yet",
        r"learn\(\)",
    ),
}


def refused(call: Callable[[], object]) -> UserError:
    """The error of a call. Its remedy must make sense in Python."""
    with pytest.raises(UserError) as caught:
        call()
    assert "--" not in str(caught.value)
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize("case", WRONG_INPUT)
def test_wrong_input_is_refused_with_a_remedy(case: str) -> None:
    call, problem, remedy = WRONG_INPUT[case]
    learner = toy_learner()
    error = refused(lambda: call(learner))
    assert re.search(problem, error.problem)
    assert re.search(remedy, error.remedy)


def test_a_learner_needs_settings_and_no_negative_workers() -> None:
    error = refused(lambda: Learner("fast"))  # type: ignore[arg-type]
    assert str(error) == "a learner needs a Learning, got 'fast'; pass Learning(…)"
    error = refused(lambda: Learner(workers=-1))
    assert str(error) == "workers must be 0 or more, got -1; change workers"


def test_a_memory_that_is_too_small_is_refused_before_training(dataset: Dataset) -> None:
    learner = toy_learner(memory=7)
    learner.learn(*arrays_of(dataset.train, "abc"))
    error = refused(lambda: learner.learn(*arrays_of(dataset.train, "d")))
    assert "(8 images for 4 classes), got 7" in error.problem
    assert error.remedy == "raise {memory}"
    assert learner.model.classes == ("a", "b", "c")


def test_an_upper_bound_needs_everything(dataset: Dataset) -> None:
    for method in ("joint", "fc-retrain"):
        learner = toy_learner(method)
        error = refused(lambda learner=learner: learner.learn(*arrays_of(dataset.train, "ab")))
        assert error.problem == f"{method} is an upper bound that sees the data of all classes"
        assert error.remedy == "use it with bic.run, or pass the argument everything"


def test_vectors_of_another_dimension_are_refused(dataset: Dataset) -> None:
    learner = toy_learner()
    learner.learn(np.random.default_rng(0).normal(size=(20, 5)), PAIR)
    error = refused(lambda: learner.learn(np.zeros((20, 4)), PAIR))
    assert error.problem == "the model takes vectors of 5 numbers, got vectors of 4 numbers"
    error = refused(lambda: learner.learn(*arrays_of(dataset.train, "ab")))
    assert error.problem == "the model takes vectors of 5 numbers, got images"


def test_vectors_are_refused_by_a_model_of_images(dataset: Dataset) -> None:
    learner = toy_learner()
    learner.learn(*arrays_of(dataset.train, "ab"))
    error = refused(lambda: learner.learn(np.zeros((20, 4)), PAIR))
    assert error.problem == "the model takes images, got vectors of 4 numbers"


def test_an_unknown_method_is_refused() -> None:
    error = refused(lambda: Learning(method="bik"))
    assert error.remedy.startswith("did you mean 'bic'?")


def test_a_name_that_looks_like_a_known_class_is_refused() -> None:
    learner = Learner(Learning(recipe="demo", memory=20))
    learner.learn(zeros(20, 8, 8), ["caf\u00e9", "tea"] * 10)
    error = refused(lambda: learner.learn(zeros(20, 8, 8), ["cafe\u0301", "milk"] * 10))
    assert error.problem == (
        "two classes look like 'caf\u00e9' and differ only in how accents are written"
    )
    assert learner.model.classes == ("caf\u00e9", "tea")


# Steps that fail


class StoppedError(Exception):
    pass


def stop(checkpoint: Checkpoint) -> None:
    raise StoppedError


def snapshot(learner: Learner) -> tuple[dict[str, Any], State, pa.Table]:
    """Everything that a learner has learned, as a copy."""
    weights = {name: value.clone() for name, value in tensors(learner.model).items()}
    return description(learner.model), weights, learner.memory.to_table()


def assert_same(
    first: tuple[dict[str, Any], State, pa.Table], second: tuple[dict[str, Any], State, pa.Table]
) -> None:
    assert first[0] == second[0]
    assert are_equal(first[1], second[1])
    assert first[2] == second[2]


def learn_classes(learner: Learner, dataset: Dataset, classes: str, **options: Any) -> None:
    """Learn some of the classes a to f, the first of them first."""
    if learner.method.is_upper_bound:
        num_seen = "abcdef".index(classes[-1]) + 1
        options["everything"] = dataset.train.of_classes(range(num_seen))
    learner.learn(*arrays_of(dataset.train, classes), **options)


@pytest.mark.parametrize("method", ["bic", "icarl", "eeil", "fc-retrain"])
def test_a_step_that_is_stopped_changes_nothing(method: str, dataset: Dataset) -> None:
    learner = toy_learner(method)
    learn_classes(learner, dataset, "ab")
    model = learner.model
    before = snapshot(learner)
    with pytest.raises(StoppedError):
        learn_classes(learner, dataset, "cd", save=stop)
    assert learner.model is model
    assert_same(snapshot(learner), before)

    untroubled = toy_learner(method)
    learn_classes(untroubled, dataset, "ab")
    for other in (learner, untroubled):
        learn_classes(other, dataset, "cd")
    assert_same(snapshot(learner), snapshot(untroubled))


def test_a_first_step_that_is_stopped_leaves_an_empty_learner(dataset: Dataset) -> None:
    learner = toy_learner()
    with pytest.raises(StoppedError):
        learner.learn(*arrays_of(dataset.train, "cd"), save=stop)
    refused(lambda: learner.model)
    learner.learn(*arrays_of(dataset.train, "ab"))
    assert learner.model.classes == ("a", "b")


def test_a_first_step_that_is_stopped_leaves_nothing_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = ForeignCode(tmp_path, monkeypatch, num_features=8)
    monkeypatch.setattr("bic.learn.learner.measured_precision", lambda *_: "float32")
    recipe = {"name": "photos", "backbone": foreign.backbone, "epochs": 1}
    learning = Learning(method="bic", recipe=recipe, memory=20, held_out=0.3)
    pixels = np.random.default_rng(0).integers(0, 40, (20, 8, 8, 3), dtype=np.uint8)
    learner = Learner(learning)
    with pytest.raises(StoppedError):
        learner.learn(pixels, PAIR, save=stop)
    assert learner.learning == learning

    untroubled = Learner(learning)
    for other in (learner, untroubled):
        other.learn(pixels + 200, PAIR)
    assert learner.model.network.mean.min() > 200
    assert_same(snapshot(learner), snapshot(untroubled))


def test_a_memory_that_turns_out_to_be_too_small_changes_nothing() -> None:
    """New images are small as files, so only storing shows that the old ones no longer fit."""
    noise = np.random.default_rng(0).integers(0, 256, (40, 16, 16), dtype=np.uint8)
    flat = np.repeat(np.arange(40, dtype=np.uint8), 256).reshape(40, 16, 16)
    learner = toy_learner("finetune", memory="1200B")
    learner.learn(noise, PAIR * 2)
    before = snapshot(learner)
    error = refused(lambda: learner.learn(flat, ["c", "d", "e", "f"] * 10))
    assert error.problem == "the memory is too small for 6 classes of such images"
    assert_same(snapshot(learner), before)

    untroubled = toy_learner("finetune", memory="1200B")
    untroubled.learn(noise, PAIR * 2)
    for other in (learner, untroubled):
        other.learn(flat[:20], ["c"] * 20)
    assert_same(snapshot(learner), snapshot(untroubled))


# Settings and devices


@pytest.mark.parametrize("device", ["gpu", "cuda:99"])
def test_a_device_that_cannot_be_used_is_refused(device: str) -> None:
    with pytest.raises(UserError, match=f"the device {device}"):
        Learner(Learning(recipe="demo"), device=device)


def test_one_class_of_two_images_is_refused() -> None:
    with pytest.raises(UserError, match="two images to train on") as refused:
        Learner(Learning(recipe="demo", memory=20)).learn(zeros(2, 8, 8), ["a", "a"])
    assert refused.value.remedy == "add images"


def test_labels_and_classes_exclude_each_other() -> None:
    with pytest.raises(UserError, match="cannot both be given"):
        Learner(Learning(recipe="demo")).learn(zeros(20, 8, 8), PAIR, classes=["a", "b"])


def test_names_in_an_array_of_objects_are_names(dataset: Dataset) -> None:
    learner = Learner(Learning(recipe="demo", memory=20))
    learner.learn(zeros(20, 8, 8), np.array(PAIR, dtype=object))
    assert learner.model.classes == ("a", "b")


@pytest.mark.parametrize("labels", [[0, 1, 2] * 4, []])
def test_everything_must_have_labels_of_classes_seen(labels: list[int]) -> None:
    learner = Learner(Learning(method="joint", recipe="demo"))
    everything = array_set(zeros(len(labels), 8, 8), np.array(labels, dtype=np.int64))
    with pytest.raises(UserError, match="labels of everything"):
        learner.learn(zeros(20, 8, 8), PAIR, everything=everything)


def test_learned_before_must_say_it_of_every_image() -> None:
    learner = Learner(Learning(recipe="demo"))
    problem = "learned_before must have a value for each of 20 images, got 19"
    with pytest.raises(UserError, match=problem):
        learner.learn(zeros(20, 8, 8), PAIR, learned_before=np.zeros(19, dtype=np.bool_))


def test_everything_must_have_images_like_the_step() -> None:
    learner = Learner(Learning(method="joint", recipe="demo"))
    everything = array_set(zeros(4, 9, 9), np.array([0, 1, 0, 1]))
    with pytest.raises(UserError, match="another size or kind"):
        learner.learn(zeros(20, 8, 8), PAIR, everything=everything)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"epochs": "x"}, "recipe.epochs must be a valid integer"),
        ({"epochs": 10**400}, "recipe.epochs must be less than or equal to 1000000"),
        ({"epochs": 10**6}, "recipe.first_epochs must be less than or equal to 1000000"),
        (
            {"recipe": {"name": "fast", "epochs": 0}, "epochs": 3},
            "recipe.epochs must be greater than or equal to 1, got 0",
        ),
        (
            {"recipe": {"name": "fast", "first_epochs": "x"}, "epochs": 3},
            "recipe.first_epochs must be a valid integer, got 'x'",
        ),
        (
            {"method": "eeil", "method_settings": {"balanced_epochs": "x"}, "epochs": 3},
            "method_settings.balanced_epochs must be a valid integer, got 'x'",
        ),
        ({"recipe": 5}, "recipe must hold settings, got 5"),
        ({"method_settings": [1]}, "method_settings must hold settings"),
        ({"memry": 5}, "did you mean 'memory'"),
        ({"epoch": 5}, "did you mean 'epochs'"),
        ({"method": "lwf", "method_settings": {"share": 1}}, "leave it out: there are none"),
        (
            {"recipe": {"schedule": {"milestones": [0.5, 0.2]}}},
            r"^recipe.schedule.milestones must rise between 0 and 1",
        ),
    ],
)
def test_wrong_settings_are_one_sentence(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        Learning(**settings)


def test_the_quickest_precision_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bic.learn.learner.measured_precision", lambda *_: "bfloat16")
    learner = Learner(Learning(recipe="demo", memory=20, precision="quickest"))
    learner.learn(zeros(20, 8, 8), PAIR)
    assert learner.learning.precision == "bfloat16"
