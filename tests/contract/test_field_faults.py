"""What the field's public implementations get wrong, each as a test of ours.

Elsewhere by name:
- softmax applied twice in stage 2: test_correction.test_softmax_is_applied_once
- distillation softmax over the batch: test_losses.test_distillation_softmax_runs_over_classes_not_the_batch
- λ inverted: test_losses.test_bic_weighs_eighty_old_and_twenty_new_classes_as_four_to_one
- α, β missing from the saved model: test_methods.test_contract
- tests that accept an accuracy of zero: test_learner.test_an_easy_problem_is_learned
- no way to resume: test_train.test_training_goes_on_bit_for_bit
- one's own data: test_data_folder, test_data_arrays, test_data_parquet
"""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.toy import toy_dataset
from torch import Tensor

import bic
from bic import METHODS, Dataset, ImageSet, Learner, MemoryBudget, Recipe, RunConfig
from bic.lab.steps import Step, plan_steps
from bic.learn.recipes import make_plan

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")

SOURCE = Path(bic.__file__).parent


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return toy_dataset(0.6)


def learner_for(dataset: Dataset, **changes: Any) -> tuple[Learner, list[Step]]:
    settings = {"name": "demo", "epochs": 3, "batch_size": 16, "crop_padding": 0}
    config = RunConfig(
        dataset="toy",
        step_sizes=(2, 2, 2),
        memory=MemoryBudget(images=36),
        held_out=0.3,
        recipe={**settings, **changes},
    )
    steps = list(plan_steps(dataset, range(6), (2, 2, 2)))
    return Learner(make_plan(config, dataset), dataset.train.preprocessing), steps


def pixels_of(images: ImageSet) -> Tensor:
    return images.take(images.everything)


RECORDING = """
import torch
from torch import nn

trained_on, last_shown = set(), []

class Recorder(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(size, 16), nn.BatchNorm1d(16), nn.ReLU())

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
    """A network that notes every image it is shown in training mode, over all steps."""
    (tmp_path / "recording_backbone.py").write_text(RECORDING)
    monkeypatch.syspath_prepend(tmp_path)
    learner, steps = learner_for(dataset, backbone="recording_backbone:recorder")
    recorder = importlib.import_module("recording_backbone")
    held_out: set[bytes] = set()
    for step, new_each, kept_each in zip(steps, (5, 5, 2), (5, 2, 1), strict=True):
        learned = learner.learn(step)
        assert learned.num_held_out == new_each * 2 * step.number
        kept = learner.memory.held_out_images()
        assert len(kept) == kept_each * 2 * step.number
        with torch.no_grad():
            learner.model.network.eval().features(pixels_of(kept))
        assert len(set(recorder.last_shown)) == len(kept)
        held_out |= set(recorder.last_shown)
    # 19, 19 and 22 images of each class were trained on, and the exemplars among them again.
    assert len(recorder.trained_on) == 2 * (19 + 19 + 22)
    assert len(held_out) == 2 * 5 + 2 * 2 + 2 * 1
    assert not recorder.trained_on & held_out


def test_only_the_newest_pair_is_applied_at_test_time(dataset: Dataset) -> None:
    learner, steps = learner_for(dataset)
    pixels = pixels_of(dataset.test)
    for step in steps:
        learner.learn(step)
        raw, final = learner.model.logits(pixels)
        num_old = 2 * (step.number - 1)
        pair = learner.model.correction
        if step.number == 1:
            assert pair is None
            assert torch.equal(raw, final)
        else:
            assert pair is not None
            assert pair.num_old == num_old
            assert (pair.alpha, pair.beta) != (1, 0)
            assert torch.equal(final[:, :num_old], raw[:, :num_old])
            torch.testing.assert_close(
                final[:, num_old:], pair.alpha * raw[:, num_old:] + pair.beta
            )


def test_the_teacher_applies_the_newest_pair_in_evaluation_mode(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the loss gets as targets is what the model before the step answers."""
    given: list[Tensor] = []
    plain = METHODS["bic"]

    def loss(
        logits: Tensor, labels: Tensor, teacher: Tensor | None, classes_per_step: Any
    ) -> dict[str, Tensor]:
        given.append(torch.zeros(0) if teacher is None else teacher.clone())
        return plain.loss(logits, labels, teacher, classes_per_step)

    monkeypatch.setitem(METHODS, "bic", replace(plain, loss=loss))
    learner, steps = learner_for(dataset)
    for step in steps:
        given.clear()
        if step.number == 1:
            learner.learn(step)
            assert all(len(teacher) == 0 for teacher in given)
            continue
        images = torch.cat([pixels_of(step.train), pixels_of(learner.memory.train_images())])
        raw, final = learner.model.logits(images)
        learner.learn(step)
        targets = torch.cat(given)
        assert targets.shape[1] == 2 * (step.number - 1)
        assert nearest(targets, final).max() < 1e-3
        if step.number == 3:  # the model before it has a pair
            assert nearest(targets, raw).mean() > 1e-2


def nearest(rows: Tensor, others: Tensor) -> Tensor:
    """Each row's distance to the nearest of the others."""
    distances = torch.cdist(rows, others, compute_mode="donot_use_mm_for_euclid_dist")
    return distances.min(dim=1).values


def test_stage_2_changes_neither_weights_nor_batch_norm_statistics(dataset: Dataset) -> None:
    learner, steps = learner_for(dataset)
    for step in steps[:2]:
        saved: list[dict[str, Tensor]] = []

        def save(checkpoint: Any, saved: list[dict[str, Tensor]] = saved) -> None:
            saved.append({name: value.clone() for name, value in checkpoint.tensors.items()})

        learner.learn(step, save=save)
        assert len(saved) == 3
        final = learner.model.network.state_dict()
        assert any("running_mean" in name for name in final)
        assert any("num_batches_tracked" in name for name in final)
        for name, value in final.items():
            assert torch.equal(value, saved[-1][f"module.{name}"]), name
        assert not torch.equal(saved[0]["module.head.weight"], saved[-1]["module.head.weight"])
    assert learner.model.correction is not None


def test_predicting_does_not_change_the_model(dataset: Dataset) -> None:
    learner, steps = learner_for(dataset)
    learner.learn(steps[0])
    learner.model.network.train()
    before = {name: value.clone() for name, value in learner.model.network.state_dict().items()}
    one, _ = learner.model.logits(pixels_of(dataset.test)[:3].numpy())
    many, _ = learner.model.logits(pixels_of(dataset.test))
    torch.testing.assert_close(
        one, many[:3], atol=1e-5, rtol=1e-5
    )  # others in the batch don't matter
    after = learner.model.network.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_a_step_starts_from_the_uncorrected_head(dataset: Dataset) -> None:
    """The correction is no layer: the head's own rows are what the next step goes on from."""
    learner, steps = learner_for(dataset)
    learner.learn(steps[0])
    learner.learn(steps[1])
    pair, head = learner.model.correction, learner.model.network.head
    assert pair is not None
    assert abs(pair.alpha - 1) > 1e-3
    before = {name: value.clone() for name, value in head.state_dict().items()}

    # Step 3 at a rate that leaves every weight where it starts.
    still, _ = learner_for(dataset, epochs=1, learning_rate=1e-12, weight_decay=0.0)
    still.restore(learner.model, learner.memory.to_table())
    still.learn(steps[2])
    after = still.model.network.head.state_dict()
    assert after.keys() == before.keys()
    for name, rows in before.items():
        assert len(after[name]) == 6
        torch.testing.assert_close(after[name][:4], rows, atol=1e-8, rtol=0)


def sources() -> dict[str, str]:
    return {
        str(path.relative_to(SOURCE)): path.read_text() for path in sorted(SOURCE.rglob("*.py"))
    }


def test_nothing_hard_codes_cuda() -> None:
    for name, text in sources().items():
        for line in text.splitlines():
            assert ".cuda(" not in line, f"{name}: {line}"
            if re.search(r"""["']cuda(:\d+)?["']""", line):
                assert "torch.cuda.is_available()" in line, f"{name}: {line}"


def test_there_is_one_training_loop() -> None:
    backward = [name for name, text in sources().items() for _ in re.findall(r"\bbackward\(", text)]
    update = [
        name
        for name, text in sources().items()
        for _ in re.findall(r"\boptimi[sz]er\.step\(", text)
    ]
    assert backward == update == ["train.py"]


def test_every_setting_of_a_recipe_can_be_set(dataset: Dataset) -> None:
    """No hyper-parameter is out of a user's reach."""
    changed: dict[str, Any] = {
        "backbone": "mlp", "image_size": 8, "resize": 9, "random_resize": (8, 12), "epochs": 7, "batch_size": 5,
        "learning_rate": 0.7, "schedule": "milestones", "milestones": (0.25,), "decay": 0.3, "warmup": 0.1,
        "momentum": 0.7, "nesterov": False, "weight_decay": 0.01, "gradient_noise": 0.2, "balanced_epochs": 3,
        "balanced_milestones": (0.4,), "crop_padding": 2, "flip": True, "brightness": 9.0, "contrast": 0.4,
        "muon_rate": 0.03, "first_epochs": 9, "later_rate": 0.4, "crop_fill": "mirror",
        "distillation_factor": 3.0, "previous_share": 0.4, "later_muon": False, "precision": "bfloat16",
    }  # fmt: skip
    assert changed.keys() | {"name"} == Recipe.model_fields.keys()
    config = RunConfig(dataset="toy", steps=3, recipe={"name": "demo", **changed})
    plan = make_plan(config, dataset)
    assert {name: getattr(plan.recipe, name) for name in changed} == changed
