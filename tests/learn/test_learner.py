"""Learner as users call it: arrays, names, numbers, image sets, and the steps of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from support.learners import are_equal, arrays_of, toy_learner
from support.pictures import picture
from support.toy import toy_dataset

import bic
from bic import Dataset, Learner, Model, Preprocessing, RunConfig
from bic.data.images import array_set
from bic.model.saved import description, tensors

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return toy_dataset(0.8)


def accuracy(learner: Learner, dataset: Dataset, classes: str) -> float:
    images, names = arrays_of(dataset.test, classes)
    return float(np.mean(np.array(learner.model.predict(images)) == names))


# What can be learned


def test_arrays_with_names(dataset: Dataset) -> None:
    learner = toy_learner()
    learner.learn(*arrays_of(dataset.train, "db"))
    assert learner.model.classes == ("b", "d")
    assert accuracy(learner, dataset, "bd") > 0.8
    learner.learn(*arrays_of(dataset.train, "ac"))
    assert learner.model.classes == ("b", "d", "a", "c")
    assert learner.model.classes_per_step == (2, 2)
    assert accuracy(learner, dataset, "abcd") > 0.8

    images, _ = arrays_of(dataset.test, "abcd")
    probabilities = learner.model.predict_proba(images)
    assert probabilities.shape == (40, 4)
    assert probabilities.min() >= 0
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(40), abs=1e-6)
    best = [learner.model.classes[position] for position in probabilities.argmax(axis=1)]
    assert best == learner.model.predict(images)


def test_numbers_are_ordered_as_numbers_and_named_by_their_text(dataset: Dataset) -> None:
    learner = toy_learner()
    images, names = arrays_of(dataset.train, "ab")
    learner.learn(images, np.array([10 if name == "a" else 9 for name in names]))
    assert learner.model.classes == ("9", "10")
    predicted = learner.model.predict(arrays_of(dataset.test, "a")[0])
    assert predicted.count("10") >= 8
    images, names = arrays_of(dataset.train, "bc")
    learner.learn(images, ["9" if name == "b" else "100" for name in names])
    assert learner.model.classes == ("9", "10", "100")
    assert learner.model.classes_per_step == (2, 1)


@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda labels: torch.tensor(labels)])
def test_labels_of_any_kind_mean_the_same(
    kind: Callable[[list[int]], Any], dataset: Dataset
) -> None:
    images, names = arrays_of(dataset.train, "ab")
    learner = toy_learner()
    learner.learn(images, kind([int(name == "a") for name in names]))
    reference = toy_learner()
    reference.learn(images, ["1" if name == "a" else "0" for name in names])
    assert description(learner.model) == description(reference.model)
    assert are_equal(tensors(learner.model), tensors(reference.model))


def test_an_image_set_with_classes_keeps_their_order(dataset: Dataset) -> None:
    images = dataset.train.of_classes((3, 0))
    learner = toy_learner()
    learner.learn(images, classes=("d", "a"))
    assert learner.model.classes == ("d", "a")
    assert accuracy(learner, dataset, "ad") > 0.8
    learner.learn(dataset.train.of_classes((0, 5, 1)), classes=["a", "f", "b"])
    assert learner.model.classes == ("d", "a", "f", "b")
    assert learner.model.classes_per_step == (2, 2)
    assert accuracy(learner, dataset, "abdf") > 0.8


def test_the_labels_of_an_image_set_can_be_replaced(dataset: Dataset) -> None:
    images, names = arrays_of(dataset.train, "ab")
    learner = toy_learner()
    learner.learn(array_set(images, np.zeros(len(images), dtype=np.int64)), names)
    reference = toy_learner()
    reference.learn(images, names)
    assert are_equal(tensors(learner.model), tensors(reference.model))


def test_known_classes_join_new_ones_in_a_step(dataset: Dataset) -> None:
    learner = toy_learner()
    learner.learn(*arrays_of(dataset.train, "ab"))
    learner.learn(*arrays_of(dataset.train, "ac"))
    assert learner.model.classes == ("a", "b", "c")
    assert learner.model.classes_per_step == (2, 1)
    learner.learn(*arrays_of(dataset.train, "cb"))
    assert learner.model.classes == ("a", "b", "c")
    assert learner.model.classes_per_step == (2, 1, 0)
    assert accuracy(learner, dataset, "abc") > 0.8


def test_later_images_get_the_size_and_the_channels_of_the_first(dataset: Dataset) -> None:
    learner = toy_learner()
    learner.learn(*arrays_of(dataset.train, "ab"))
    images, names = arrays_of(dataset.train, "cd")
    enlarged = images.repeat(2, axis=1).repeat(2, axis=2)
    learner.learn(np.stack([enlarged] * 3, axis=3), names)
    assert learner.model.preprocessing.size == 8
    assert learner.model.preprocessing.channels == 1
    assert accuracy(learner, dataset, "abcd") > 0.8


def test_the_recipe_decides_how_images_are_scaled(tmp_path: Path) -> None:
    images = [picture(seed, 60, 40) for seed in range(8)]
    files = [tmp_path / f"{number}.png" for number in range(8)]
    for image, file in zip(images, files, strict=True):
        image.save(file)
    models = []
    for kind in (images, files):
        learner = toy_learner("finetune", {"image_size": 16, "resize": 24})
        learner.learn(kind, ["a", "b"] * 4)
        models.append(learner.model)
    assert models[0].preprocessing == Preprocessing(channels=3, size=16, resize=24)
    assert description(models[0]) == description(models[1])
    assert are_equal(tensors(models[0]), tensors(models[1]))
    assert np.array_equal(models[0].predict_logits(images), models[0].predict_logits(files))


def test_vectors_can_be_learned() -> None:
    labels = np.arange(60) % 2
    vectors = np.random.default_rng(0).normal(size=(60, 5)) + 9 * np.eye(2, 5)[labels]
    learner = toy_learner()
    learner.learn(vectors, labels)
    assert learner.model.predict(vectors) == [str(label) for label in labels]


def test_the_caller_may_write_to_its_arrays_afterwards(dataset: Dataset) -> None:
    images, names = arrays_of(dataset.train, "ab")
    learner = toy_learner()
    learner.learn(images, names)
    kept = learner.memory.to_table()
    images.fill(0)
    assert learner.memory.to_table() == kept


# The learner and the lab


@pytest.mark.parametrize("method", ["bic", "eeil", "icarl", "wa"])
def test_a_learner_that_is_given_the_steps_of_a_run_learns_the_same_model(
    method: str, dataset: Dataset, tmp_path: Path
) -> None:
    """A learner knows no class order and no future step: they have no effect on the result."""
    config = RunConfig(
        dataset="toy",
        method=method,
        step_sizes=(2, 2, 2),
        class_order=(1, 3, 0, 4, 2, 5),
        memory=36,
        held_out=0.3,
        recipe={"name": "demo", "epochs": 2, "batch_size": 16},
    )
    bic.run(config, tmp_path / "run", data=dataset)
    model = Model.load(tmp_path / "run")
    learner = toy_learner(method)
    for classes in ("bd", "ae", "cf"):  # numbers 1 and 3, 0 and 4, 2 and 5
        learner.learn(*arrays_of(dataset.train, classes))
    learner.calibrate()  # as a run does after its last step
    assert description(learner.model) == description(model)
    assert are_equal(tensors(learner.model), tensors(model))
    table = pq.read_table(tmp_path / "run" / "model" / "memory.parquet")
    assert learner.memory.to_table() == table


def test_a_saved_model_and_its_memory_continue_to_learn(dataset: Dataset, tmp_path: Path) -> None:
    learner = toy_learner()
    learner.learn(*arrays_of(dataset.train, "ab"))
    learner.learn(*arrays_of(dataset.train, "cd"))
    learner.model.save(tmp_path / "model")
    restored = toy_learner()
    restored.restore(Model.load(tmp_path / "model"), learner.memory.to_table())
    for other in (learner, restored):
        other.learn(*arrays_of(dataset.train, "ef"))
    assert are_equal(tensors(restored.model), tensors(learner.model))
    assert restored.memory.to_table() == learner.memory.to_table()
    assert restored.model.correction == learner.model.correction


def test_a_first_step_of_one_class_gives_a_model_that_can_go_on(tmp_path: Path) -> None:
    """One logit has no gradient: kernels stay as they are."""
    draws = np.random.default_rng(0)
    images = draws.integers(0, 256, (24, 12, 12), dtype=np.uint8)
    recipe = {"name": "fast", "epochs": 1, "first_epochs": 1}
    learner = Learner(bic.Learning(method="finetune", recipe=recipe, memory=8))
    learner.learn(images, ["cat"] * 24)
    learner.save(tmp_path / "cats")
    learner = Learner.load(tmp_path / "cats")
    learner.learn(images, ["dog"] * 24)
    assert set(learner.model.predict(images)) <= {"cat", "dog"}


class Counted(tuple[str, ...]):
    """Class names that count how often they are read from the start."""

    times_read = 0

    def __iter__(self) -> Iterator[str]:
        Counted.times_read += 1
        return super().__iter__()


def test_the_known_classes_are_not_read_for_every_new_one(dataset: Dataset) -> None:
    times_read = []
    for new in ("c", "cdef"):
        learner = toy_learner("finetune", {"epochs": 1})
        learner.learn(*arrays_of(dataset.train, "ab"))
        learner.model.classes = Counted(learner.model.classes)
        Counted.times_read = 0
        learner.learn(*arrays_of(dataset.train, new))
        times_read.append(Counted.times_read)
    assert times_read[0] == times_read[1] > 0
