"""What the field's public implementations get wrong. Each fault has a test of ours.

These faults are tested elsewhere:

- softmax applied twice in stage 2: learn/test_correction, test_softmax_is_applied_once
- distillation softmax over the batch: learn/test_losses,
  test_the_softmax_of_distillation_runs_over_classes_and_not_over_the_batch
- λ inverted: learn/test_losses,
  test_bic_weights_eighty_old_and_twenty_new_classes_as_four_to_one
- α and β missing from the saved model: contract/test_methods, test_contract
- tests that accept an accuracy of zero: learn/test_step, test_an_easy_problem_is_learned
- no way to resume: learn/test_train, test_training_resumes_to_the_last_bit
- no way to learn from one's own data: learn/test_learner, data/sources
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.learners import (
    FROZEN,
    SIZES,
    are_equal,
    learn,
    pixels_of,
    state_of,
    toy_learner,
    toy_steps,
)
from support.toy import toy_dataset
from torch import Tensor

import bic
from bic import METHODS, Dataset, Learning, RunConfig, UserError
from bic.lab.planning import make_plan
from bic.lab.run_data import open_for
from bic.learn.lesson import Checkpoint
from bic.learn.losses import Losses
from bic.learn.methods import ALL
from bic.learn.recipe import Recipe
from bic.learn.train import fit
from bic.progress import Progress
from bic.settings import known_paths

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return toy_dataset(0.6)


# Held-out images

RECORDING_BACKBONE = """
from torch import nn

trained_on = set()
last_shown = []

class Recorder(nn.Module):
    def __init__(self, size):
        super().__init__()
        linear = nn.Linear(size, 16)
        self.layers = nn.Sequential(nn.Flatten(), linear, nn.BatchNorm1d(16), nn.ReLU())

    def forward(self, images):
        last_shown[:] = [image.numpy().tobytes() for image in images.contiguous()]
        if self.training:
            trained_on.update(last_shown)
        return self.layers(images)

def recorder(channels, image_size):
    return Recorder(channels * image_size**2)
"""


def test_held_out_images_are_never_trained_on_in_any_step(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backbone records every image that it gets in training mode, over all steps."""
    (tmp_path / "recording_backbone.py").write_text(RECORDING_BACKBONE)
    monkeypatch.syspath_prepend(tmp_path)
    recorder = importlib.import_module("recording_backbone")
    learner = toy_learner("bic", {"epochs": 3}, backbone="recording_backbone:recorder")
    held_out: set[bytes] = set()
    # Images per class that are held out in each step, and that the memory keeps after it.
    for step, num_held_out, num_kept in zip(toy_steps(dataset), (5, 5, 2), (5, 2, 1), strict=True):
        learned = learn(learner, step)
        num_seen = 2 * step.number
        assert learned.num_held_out == num_held_out * num_seen
        kept = learner.memory.held_out_images()
        assert len(kept) == num_kept * num_seen
        with torch.no_grad():
            learner.model.network.eval().features(pixels_of(kept))
        assert len(set(recorder.last_shown)) == len(kept)
        held_out |= set(recorder.last_shown)
    # 19, 19 and 22 images of each class were trained on. Exemplars are among them.
    assert len(recorder.trained_on) == 2 * (19 + 19 + 22)
    assert len(held_out) == 2 * 5 + 2 * 2 + 2 * 1
    assert not recorder.trained_on & held_out


# One correction, and no layer


def test_only_the_newest_correction_is_applied_at_test_time(dataset: Dataset) -> None:
    learner = toy_learner("bic", {"epochs": 3})
    pixels = pixels_of(dataset.test)
    for step in toy_steps(dataset):
        learn(learner, step)
        raw, final = learner.model.logits(pixels)
        correction = learner.model.correction
        if step.number == 1:
            assert correction is None
            assert torch.equal(raw, final)
            continue
        num_old = 2 * (step.number - 1)
        assert correction is not None
        assert correction.num_old == num_old
        assert (correction.alpha, correction.beta) != (1, 0)
        assert torch.equal(final[:, :num_old], raw[:, :num_old])
        corrected = correction.alpha * raw[:, num_old:] + correction.beta
        torch.testing.assert_close(final[:, num_old:], corrected)


def nearest(rows: Tensor, others: Tensor) -> Tensor:
    """The distance of each row to the nearest of the others."""
    distances = torch.cdist(rows, others, compute_mode="donot_use_mm_for_euclid_dist")
    return distances.min(dim=1).values


def test_the_teacher_applies_the_newest_correction_in_evaluation_mode(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The targets of the loss are the final logits of the model before the step."""
    targets: list[Tensor | None] = []
    method = METHODS["bic"]

    def loss(
        logits: Tensor, labels: Tensor, teacher: Tensor | None, classes_per_step: Sequence[int]
    ) -> Losses:
        targets.append(None if teacher is None else teacher.clone())
        return method.loss(logits, labels, teacher, classes_per_step)

    monkeypatch.setitem(METHODS, "bic", replace(method, loss=loss))
    learner = toy_learner("bic", {"epochs": 3})
    first, *later = toy_steps(dataset)
    learn(learner, first)
    assert set(targets) == {None}
    for step in later:
        targets.clear()
        exemplars = learner.memory.train_images()
        images = torch.cat([pixels_of(step.images), pixels_of(exemplars)])
        raw, final = learner.model.logits(images)
        learn(learner, step)
        received = torch.cat([teacher for teacher in targets if teacher is not None])
        assert len(received) > 0
        assert received.shape[1] == 2 * (step.number - 1)
        assert nearest(received, final).max() < 1e-3
        if step.number == 3:  # the model before it has a correction
            assert nearest(received, raw).mean() > 1e-2


def test_a_step_starts_from_the_uncorrected_head(dataset: Dataset) -> None:
    """The correction is not a layer: the next step continues from the head's own rows."""
    learner = toy_learner("bic", {"epochs": 3})
    first, second, third = toy_steps(dataset)
    learn(learner, first)
    learn(learner, second)
    correction = learner.model.correction
    assert correction is not None
    assert abs(correction.alpha - 1) > 1e-3
    head = learner.model.network.head
    before = {name: rows.clone() for name, rows in head.state_dict().items()}

    # Step 3 with a learning rate that leaves every weight where it starts.
    frozen = toy_learner("bic", FROZEN)
    frozen.restore(learner.model, learner.memory.to_table())
    learn(frozen, third)
    after = frozen.model.network.head.state_dict()
    assert after.keys() == before.keys()
    for name, rows in before.items():
        assert len(after[name]) == 6
        torch.testing.assert_close(after[name][:4], rows, atol=1e-8, rtol=0)


# What must not change


def test_stage_2_changes_neither_weights_nor_batch_norm_statistics(dataset: Dataset) -> None:
    learner = toy_learner("bic", {"epochs": 3})
    for step in toy_steps(dataset)[:2]:
        saved: list[dict[str, Tensor]] = []

        def save(checkpoint: Checkpoint, saved: list[dict[str, Tensor]] = saved) -> None:
            saved.append({name: value.clone() for name, value in checkpoint.tensors.items()})

        learn(learner, step, save=save)
        assert len(saved) == 3
        final = learner.model.network.state_dict()
        assert any("running_mean" in name for name in final)
        assert any("num_batches_tracked" in name for name in final)
        for name, value in final.items():
            assert torch.equal(value, saved[-1][f"module.{name}"]), name
        assert not torch.equal(saved[0]["module.head.weight"], saved[-1]["module.head.weight"])
    assert learner.model.correction is not None


def test_predicting_does_not_change_the_model(dataset: Dataset) -> None:
    learner = toy_learner("bic", {"epochs": 3})
    learn(learner, toy_steps(dataset)[0])
    learner.model.network.train()
    before = state_of(learner)
    pixels = pixels_of(dataset.test)
    few, _ = learner.model.logits(pixels[:3].numpy())
    many, _ = learner.model.logits(pixels)
    # The other images of the batch do not matter.
    torch.testing.assert_close(few, many[:3], atol=1e-5, rtol=1e-5)
    assert are_equal(state_of(learner), before)


# Devices, training loops and settings


def toy_config(method: str = "bic", **changes: Any) -> RunConfig:
    recipe = {"name": "demo", "epochs": 1, "batch_size": 16}
    return RunConfig(
        dataset="toy", method=method, step_sizes=SIZES, memory=36, recipe=recipe, **changes
    )


@pytest.mark.parametrize("method", METHODS)
def test_a_run_on_the_cpu_does_not_touch_a_gpu(
    method: str, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever CUDA was hard-coded, a GPU that does not exist would raise an error."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    result = bic.run(toy_config(method), tmp_path, data=dataset, device="cpu")
    assert result.complete
    assert result.made_with["device"] == "cpu"


def test_a_gpu_is_used_if_there_is_one(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = bic.run(toy_config("finetune"), tmp_path / "cpu", data=dataset)
    assert result.made_with["device"] == "cpu"
    wanted: list[str] = []

    def refuse(device: str) -> None:
        wanted.append(device)
        raise UserError("no such device", "use another")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("bic.lab.run.check_device", refuse)
    with pytest.raises(UserError, match="no such device"):
        bic.run(toy_config("finetune"), tmp_path / "gpu", data=dataset)
    assert wanted == ["cuda"]


@pytest.mark.parametrize("method", ALL)
def test_every_method_is_trained_by_the_same_loop(
    method: str, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every gradient is computed in fit(), and followed by one update."""
    callers = []
    backward = torch.autograd.backward
    step_of_sgd = torch.optim.SGD.step
    num_updates = 0

    def watched_backward(*arguments: Any, **options: Any) -> None:
        frame = inspect.currentframe()
        assert frame is not None
        assert frame.f_back is not None
        callers.append(frame.f_back.f_code)
        backward(*arguments, **options)

    def watched_step(optimiser: torch.optim.SGD, *arguments: Any) -> Any:
        nonlocal num_updates
        num_updates += 1
        return step_of_sgd(optimiser, *arguments)

    monkeypatch.setattr(torch.autograd, "backward", watched_backward)
    monkeypatch.setattr(torch.optim.SGD, "step", watched_step)
    learner = toy_learner(method, {"epochs": 1})
    for step in toy_steps(dataset, method)[:2]:
        learn(learner, step)
    assert set(callers) == {fit.__code__}
    assert num_updates == len(callers)


CHANGED_RECIPE: dict[str, Any] = {
    "backbone": "lite0",
    "frozen": True,
    "epochs": 7,
    "first_epochs": 9,
    "batch_size": 5,
    "learning_rate": 0.7,
    "precision": "bfloat16",
    "distillation_factor": 3.0,
    "image_size": 8,
    "resize": 9,
    "optimiser": {
        "momentum": 0.7,
        "nesterov": False,
        "weight_decay": 0.01,
        "weight_decay_by_share": True,
        "undo_lambda": True,
        "muon_rate": 0.03,
        "later_rate": 0.4,
        "later_muon": False,
    },
    "schedule": {"kind": "milestones", "milestones": (0.25,), "decay": 0.3, "warmup": 0.1},
    "augmentation": {
        "crop_padding": 2,
        "crop_fill": "mirror",
        "flip": True,
        "brightness": 9.0,
        "contrast": 0.4,
        "warp": 0.3,
        "colour": 0.2,
        "cutout": 3,
        "random_resize": (8, 12),
    },
}
CHANGED_METHOD_SETTINGS: dict[str, dict[str, Any]] = {
    "bic": {"previous_share": 0.4},
    "bic-means": {"previous_share": 0.4, "corrected_teacher": False},
    "ridge": {"random_features": 30, "penalty": 0.5},
    "eeil": {"gradient_noise": 0.2, "balanced_epochs": 3, "balanced_milestones": (0.4,)},
}


def leaves(settings: dict[str, Any], under: str = "") -> dict[str, Any]:
    """The values of nested settings by their paths."""
    values: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            values.update(leaves(value, f"{under}{name}."))
        else:
            values[f"{under}{name}"] = value
    return values


@pytest.mark.parametrize("method", METHODS)
def test_every_setting_can_be_set(method: str, dataset: Dataset) -> None:
    """No hyper-parameter is out of a user's reach."""
    asked_recipe = {"name": "demo", **CHANGED_RECIPE}
    asked_settings = CHANGED_METHOD_SETTINGS.get(method, {})
    config = RunConfig(
        dataset="toy", steps=3, method=method, recipe=asked_recipe, method_settings=asked_settings
    )
    fitted = open_for(config, dataset, Progress("quiet"))
    learning = make_plan(config, fitted).learning
    changed = leaves(asked_recipe)
    assert changed.keys() == set(known_paths(Recipe))
    assert leaves(learning.recipe.model_dump()) == changed
    untouched = leaves(Learning(method=method, recipe="demo").recipe.model_dump())
    assert [path for path in changed if changed[path] == untouched[path]] == ["name"]
    assert asked_settings.keys() == set(known_paths(METHODS[method].settings))
    assert learning.method_settings.model_dump() == asked_settings
