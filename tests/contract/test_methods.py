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

import bic
from bic import (
    METHODS,
    Correction,
    Dataset,
    HeldOutWarning,
    Learner,
    MemoryBudget,
    RunConfig,
    UserError,
)
from bic.data.images import array_set
from bic.lab.steps import Step

CLASSES = ("ant", "bee", "cat", "dog", "eel", "fox")
ORDER = (3, 0, 5, 1, 4, 2)
NAMES = ("dog", "ant", "fox", "bee", "eel", "cat")
TRAIN, TEST, BUDGET = 24, 10, 36

RESULT = {"method", "dataset", "seed", "config", "complete", "steps"}
RESULT |= {"final_top1", "average_top1", "average_incremental_top1"}
STEP = {"step", "seen", "top1", "top5", "top1_uncorrected", "top1_per_group", "alpha", "beta"}
STEP |= {"share_on_new", "share_on_new_uncorrected", "forgetting"}
STEP |= {"num_train", "num_held_out", "num_exemplars", "seconds"}


def images(per_class: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A pattern of its own for each class, under noise."""
    patterns = np.random.default_rng(0).integers(0, 256, (6, 8, 8))
    draws = np.random.default_rng(seed)
    labels = np.tile(np.arange(6), per_class)
    noisy = 0.7 * patterns[labels] + 0.3 * draws.integers(0, 256, (len(labels), 8, 8))
    return noisy.astype(np.uint8), labels.astype(np.int64)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return Dataset(
        name="toy",
        classes=CLASSES,
        train=array_set(*images(TRAIN, 1)),
        test=array_set(*images(TEST, 2)),
    )


def config(method: str) -> RunConfig:
    return RunConfig(
        dataset="toy",
        method=method,
        step_sizes=(2, 2, 2),
        class_order=ORDER,
        memory=MemoryBudget(images=BUDGET),
        held_out=0.3,
        recipe={
            "name": "demo",
            "backbone": "small",
            "epochs": 2,
            "batch_size": 8,
            "crop_padding": 0,
        },
    )


def reachable(root: object) -> list[object]:
    """Everything that can be reached from an object, short of code."""
    code = (
        type,
        types.ModuleType,
        types.FunctionType,
        types.BuiltinFunctionType,
        types.FrameType,
        types.CodeType,
    )
    found: dict[int, object] = {}
    waiting = [root]
    while waiting:
        thing = waiting.pop()
        if id(thing) not in found and not isinstance(thing, code):
            found[id(thing)] = thing
            waiting.extend(gc.get_referents(thing))
    return list(found.values())


def check_reach(learner: Learner, dataset: Dataset) -> None:
    """Old images are reached through the memory alone."""
    things = reachable(learner)
    assert any(thing is learner.memory for thing in things)  # or the search finds nothing at all
    assert not any(isinstance(thing, Dataset) for thing in things)
    pixels = dataset.train.pixels
    assert pixels is not None
    ours = {pixels.untyped_storage().data_ptr()}
    tensors = [thing for thing in things if isinstance(thing, torch.Tensor)]
    assert not any(tensor.untyped_storage().data_ptr() in ours for tensor in tensors)


def check_step(step: dict[str, Any], number: int, method: str) -> None:
    assert step.keys() >= STEP
    assert (step["step"], step["seen"]) == (number, 2 * number)
    assert step["seconds"].keys() == {"stage1", "stage2", "memory", "evaluate"}
    assert min(step["seconds"].values()) >= 0
    assert len(step["top1_per_group"]) == number
    for accuracy in (step["top1"], step["top1_uncorrected"], *step["top1_per_group"]):
        assert 0 <= accuracy <= 100
    # Every class has equally many test images.
    assert step["top1"] == pytest.approx(np.mean(step["top1_per_group"]))
    assert (step["top5"] is None) == (step["seen"] < 5)
    assert step["top5"] is None or step["top1"] <= step["top5"] <= 100
    assert (step["forgetting"] is None) == (number == 1)
    corrected = method == "bic" and number > 1
    assert (step["alpha"] is not None) == (step["beta"] is not None) == corrected
    for share in (step["share_on_new"], step["share_on_new_uncorrected"]):
        assert 0 <= share <= 1
    if (
        not corrected
        and METHODS[method].classify == "logits"
        and METHODS[method].sees_old_data != "head"
    ):
        assert step["top1"] == step["top1_uncorrected"]


def expected_counts(method: str, number: int) -> tuple[int, int, int]:
    """Images trained on, held out, and kept, of K = 36 and 24 images a class."""
    new, old = 2, 2 * (number - 1)
    before = BUDGET // old if old else 0  # 18 and 9 exemplars an old class
    if method == "joint":
        return TRAIN * (old + new), 0, 0
    if method == "lwf":
        return TRAIN * new, 0, 0
    if method != "bic":
        return TRAIN * new + before * old, 0, BUDGET
    held = {1: 5, 2: 5, 3: 2}[number]  # ⌊0.3 · 18⌋, ⌊0.3 · 18⌋, ⌊0.3 · 9⌋
    return (TRAIN - held) * new + max(0, before - held) * old, held * (old + new), BUDGET


@pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")
@pytest.mark.parametrize("method", METHODS)
def test_contract(
    method: str, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lessons: list[Step] = []
    learn = Learner.learn

    def watched(self: Learner, step: Step, **options: Any) -> Any:
        check_reach(self, dataset)
        lessons.append(step)
        learned = learn(self, step, **options)
        check_reach(self, dataset)
        return learned

    monkeypatch.setattr(Learner, "learn", watched)
    result = bic.run(config(method), tmp_path / "run", data=dataset)

    assert result.keys() >= RESULT
    assert result == json.loads((tmp_path / "run" / "result.json").read_text())
    assert (
        tmp_path / "run" / "result.json"
    ).stat().st_size < 1_000_000  # whatever the logits' size
    assert (result["method"], result["dataset"], result["seed"], result["complete"]) == (
        method,
        "toy",
        0,
        True,
    )
    steps = result["steps"]
    assert len(steps) == 3
    for number, step in enumerate(steps, start=1):
        check_step(step, number, method)
        counts = step["num_train"], step["num_held_out"], step["num_exemplars"]
        assert counts == expected_counts(method, number)
    top1 = [step["top1"] for step in steps]
    assert result["final_top1"] == top1[2]
    assert result["average_top1"] == pytest.approx(sum(top1) / 3)
    assert result["average_incremental_top1"] == pytest.approx((top1[1] + top1[2]) / 2)
    first, second, third = (step["top1_per_group"] for step in steps)
    assert steps[1]["forgetting"] == pytest.approx(first[0] - second[0])
    lost = [max(first[0], second[0]) - third[0], second[1] - third[1]]
    assert steps[2]["forgetting"] == pytest.approx(sum(lost) / 2)

    # What was learned from: new classes, and old data for the upper bounds alone.
    upper_bound = METHODS[method].sees_old_data != "never"
    assert upper_bound == (method in ("joint", "fc-retrain"))
    for number, lesson in enumerate(lessons, start=1):
        assert set(lesson.train.labels) == {2 * number - 2, 2 * number - 1}
        assert (lesson.everything is not None) == upper_bound
    if upper_bound:
        assert top1[2] > 40  # chance is 16.7

    # What is left predicts the same again, with its correction and its names.
    model = bic.load_model(tmp_path / "run")
    assert model.classes == NAMES
    assert model.classes_per_step == (2, 2, 2)
    pair = None if steps[2]["alpha"] is None else Correction(steps[2]["alpha"], steps[2]["beta"], 4)
    assert model.correction == pair
    check_predictions(model, tmp_path / "run" / "predictions-3.npz", dataset, top1[2])


def check_predictions(model: bic.Model, path: Path, dataset: Dataset, top1: float) -> None:
    saved = np.load(path, allow_pickle=False)
    raw, final = model.logits(dataset.test.take(saved["index"]))
    for logits, suffix in ((final, ""), (raw, "_uncorrected")):
        confidence, predicted = torch.softmax(logits, dim=1).max(dim=1)
        assert predicted.tolist() == saved["predicted" + suffix].tolist()
        assert confidence.tolist() == saved["confidence" + suffix].tolist()
    # Labels count in the order of learning.
    assert [ORDER[label] for label in saved["true"]] == dataset.test.labels[saved["index"]].tolist()
    assert 100 * (saved["predicted"] == saved["true"]).mean() == pytest.approx(top1)


def test_all_methods_of_the_paper_are_there() -> None:
    names = {"finetune", "distill", "bic", "lwf", "icarl", "eeil", "fc-retrain", "joint"}
    assert set(METHODS) == names
    for name in ("joint", "fc-retrain"):
        assert "upper bound" in METHODS[name].summary


def test_unknown_method_names_the_nearest(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"unknown method 'distil'; did you mean 'distill'"):
        bic.run(config("distil"), tmp_path, data=dataset)


def test_steps_before_the_correction_are_the_same_for_distill_and_finetune(
    dataset: Dataset, tmp_path: Path
) -> None:
    """In the first step methods that hold nothing out and share a loss are one and the same."""
    runs = [
        bic.run(
            config(method).model_copy(update={"step_sizes": (6,)}), tmp_path / method, data=dataset
        )
        for method in ("distill", "finetune")
    ]
    assert runs[0]["steps"][0]["top1"] == runs[1]["steps"][0]["top1"]
    weights = [
        bic.load_model(tmp_path / method).network.state_dict() for method in ("distill", "finetune")
    ]
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


def test_a_tiny_held_out_set_warns(dataset: Dataset, tmp_path: Path) -> None:
    tiny = config("bic").model_copy(update={"memory": MemoryBudget(images=12), "held_out": 0.1})
    with pytest.warns(HeldOutWarning):
        bic.run(tiny, tmp_path, data=dataset)
