"""The folder of a run: what it agrees to, what it refuses, and what it keeps."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bic import UserError
from bic.files import clear_unfinished
from bic.learn.lesson import Checkpoint
from bic.store.run_folder import RunFolder

ASKED = {"dataset": "toy", "seed": 0}
PLAN: dict[str, Any] = {
    "dataset": "toy",
    "fingerprint": "f" * 32,
    "seed": 0,
    "memory": {"images": 20, "bytes": None},
}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


def unchanged(settings: dict[str, Any]) -> dict[str, Any]:
    return settings


def test_new_folder_records_the_request_and_the_plan(folder: RunFolder) -> None:
    assert folder.recorded_plan() is None
    assert folder.agree(ASKED, PLAN, unchanged) == PLAN
    content = json.loads((folder.path / "config.json").read_text())
    assert (content["format"], content["asked"], content["plan"]) == (1, ASKED, PLAN)
    assert folder.recorded_plan() == PLAN


def test_choices_of_then_hold_for_the_same_request(folder: RunFolder) -> None:
    folder.agree(ASKED, PLAN, unchanged)
    today = {**PLAN, "memory": {"images": 50, "bytes": None}}
    assert folder.agree(ASKED, today, unchanged) == PLAN
    # Another request with the same plan is the same run, too.
    assert folder.agree({**ASKED, "memory": 20}, PLAN, unchanged) == PLAN


def test_settings_of_an_older_version_are_brought_to_their_present_form(folder: RunFolder) -> None:
    folder.agree(ASKED, {**PLAN, "old name": 1}, unchanged)
    renamed = {**PLAN, "new name": 1}
    assert folder.agree({"dataset": "x"}, renamed, lambda _: renamed) == renamed


def test_other_settings_are_refused_with_every_difference(folder: RunFolder) -> None:
    folder.agree(ASKED, PLAN, unchanged)
    other = {**PLAN, "seed": 3, "memory": {"images": 30, "bytes": None}, "classes": ["a"] * 500}
    with pytest.raises(UserError) as caught:
        folder.agree({"dataset": "toy", "seed": 3}, other, unchanged)
    problem = caught.value.problem
    assert "is a run with other settings (" in problem
    assert "seed was 0 and is now 3; memory.images was 20 and is now 30" in problem
    assert "classes was None and is now ['a', 'a'" in problem
    assert problem.endswith("…)")
    assert len(problem) < 500
    assert caught.value.remedy == "choose another {out}"


def test_of_many_differences_three_are_listed(folder: RunFolder) -> None:
    folder.agree(ASKED, PLAN, unchanged)
    other = {**PLAN, "seed": 3, "a": 1, "b": 2, "c": 3, "d": 4}
    with pytest.raises(UserError) as caught:
        folder.agree({"dataset": "toy", "seed": 3}, other, unchanged)
    listed = "seed was 0 and is now 3; a was None and is now 1; b was None and is now 2"
    assert caught.value.problem.endswith(f"({listed}; and 2 more)")


def test_other_images_are_refused(folder: RunFolder) -> None:
    folder.agree(ASKED, PLAN, unchanged)
    with pytest.raises(UserError) as caught:
        folder.agree(ASKED, {**PLAN, "fingerprint": "0" * 32}, unchanged)
    assert caught.value.problem == (
        f"the images of toy have changed since {folder.path} was started"
    )
    assert caught.value.remedy == "restore them, or choose another {out}"


def test_folder_with_other_files_is_refused(folder: RunFolder) -> None:
    folder.refuse_strangers()
    folder.path.mkdir()
    for name in (".lock", "README.txt", ".writing-config.json", ".writing-README.txt-0a1b"):
        (folder.path / name).touch()
    folder.refuse_strangers()
    (folder.path / "thesis.tex").touch()
    with pytest.raises(UserError, match=r"holds other files \(thesis\.tex\); choose another out"):
        folder.refuse_strangers()
    folder.agree(ASKED, PLAN, unchanged)
    folder.refuse_strangers()


def checkpoint(step: int, phase: str, epoch: int) -> Checkpoint:
    return Checkpoint(step, phase, epoch, {"stage1": 1.5}, {"module.w": torch.tensor([epoch])})


def names(folder: RunFolder) -> set[str]:
    return {path.name for path in folder.checkpoints.iterdir()}


def test_furthest_checkpoint_of_a_step_is_loaded(folder: RunFolder) -> None:
    assert folder.load_checkpoint(1) is None
    folder.save_checkpoint(checkpoint(1, "stage 1", 1))
    folder.save_checkpoint(checkpoint(1, "stage 1", 2))
    assert names(folder) == {"step-1-stage-1-epoch-2"}
    loaded = folder.load_checkpoint(1)
    assert loaded is not None
    assert (loaded.step, loaded.phase, loaded.epoch) == (1, "stage 1", 2)
    assert loaded.seconds == {"stage1": 1.5}
    assert loaded.tensors["module.w"].tolist() == [2]
    assert folder.load_checkpoint(2) is None
    # A kill may leave two: the later phase counts, whatever its epoch.
    kept = folder.checkpoints / "step-1-stage-1-epoch-2"
    kept.rename(folder.checkpoints / "kept")
    folder.save_checkpoint(checkpoint(1, "balanced fine-tuning", 1))
    (folder.checkpoints / "kept").rename(kept)
    loaded = folder.load_checkpoint(1)
    assert loaded is not None
    assert (loaded.phase, loaded.epoch) == ("balanced fine-tuning", 1)


def test_checkpoint_of_an_older_version_is_read_under_the_present_names(folder: RunFolder) -> None:
    tensors = {
        name: torch.full((3,), float(number))
        for number, name in enumerate(("module.mean", "module.deviation", "teacher.deviation"))
    }
    folder.save_checkpoint(Checkpoint(1, "balanced fine-tuning", 1, {}, tensors))
    loaded = folder.load_checkpoint(1)
    assert loaded is not None
    values = {name: tensor.tolist() for name, tensor in loaded.tensors.items()}
    assert values == {"module.mean": [0] * 3, "module.std": [1] * 3, "teacher.std": [2] * 3}


def test_step_before_stays_until_the_next_is_saved(folder: RunFolder) -> None:
    (folder.checkpoints / "step-1").mkdir(parents=True)
    folder.save_checkpoint(checkpoint(2, "stage 1", 1))
    assert names(folder) == {"step-1", "step-2-stage-1-epoch-1"}
    folder.save_checkpoint(checkpoint(3, "stage 1", 1))
    assert names(folder) == {"step-3-stage-1-epoch-1"}


def test_last_step_becomes_the_model(folder: RunFolder) -> None:
    (folder.checkpoints / "step-2").mkdir(parents=True)
    (folder.checkpoints / "step-2" / "model.json").write_text("{}")
    folder.finish(2)
    assert (folder.model / "model.json").read_text() == "{}"
    assert not folder.checkpoints.exists()
    folder.finish(2)  # a kill after the renaming: finishing again does no harm
    assert (folder.model / "model.json").exists()


def test_only_rank_0_writes(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.writes = False
    with folder.locked():
        folder.agree(ASKED, PLAN, unchanged)
        folder.save_checkpoint(checkpoint(1, "stage 1", 1))
        folder.finish(1)
    assert not folder.path.exists()


def test_leftovers_of_a_killed_process_are_cleared(folder: RunFolder) -> None:
    folder.agree(ASKED, PLAN, unchanged)
    (folder.checkpoints / ".writing-step-1").mkdir(parents=True)
    (folder.path / ".writing-result.json").write_text("half")
    folder.agree(ASKED, PLAN, unchanged)
    assert not list(folder.path.rglob(".writing-*"))
    clear_unfinished(folder.path / "nowhere")
