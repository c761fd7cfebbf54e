"""Recorded results: read back as written, in old forms too, and refused in one sentence."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.recorded_runs import write_run

from bic import Result, UserError, read_result
from bic.learn.learning import Learning
from bic.store.results import StepResult, parse_result, read_config, read_predictions

RESULTS = Path(__file__).parents[2] / "results"
RECORDED = list(RESULTS.glob("*/result.json"))
OLD_RUNS = Path(__file__).parents[1] / "support" / "old_runs"


def step(top1: float, **changes: Any) -> dict[str, Any]:
    return {
        "step": 1,
        "seen": 2,
        "top1": top1,
        "top1_per_group": [top1],
        "top1_uncorrected": top1,
        "share_on_new": 1.0,
        "share_on_new_uncorrected": 1.0,
        "true_share_of_new": 1.0,
        **changes,
    }


def content(**changes: Any) -> dict[str, Any]:
    plain = {
        "method": "bic",
        "dataset": "toy",
        "seed": 0,
        "config": {"method": "bic"},
        "complete": True,
        "classes": ["a", "b"],
        "steps": [step(90.0), step(80.0), step(70.0)],
    }
    return {**plain, **changes}


def test_averages() -> None:
    result = parse_result(content(), Path("result.json"))
    assert result.top1 == [90.0, 80.0, 70.0]
    assert result.final_top1 == 70.0
    assert result.average_top1 == 80.0
    assert result.average_incremental_top1 == 75.0
    only_step = parse_result(content(steps=[step(90.0)]), Path("result.json"))
    assert only_step.average_incremental_top1 is None


def test_step_without_new_classes_can_be_written() -> None:
    steps = [step(90.0), step(80.0, top1_per_group=[80.0, None])]
    result = parse_result(content(steps=steps), Path("result.json"))
    written = json.loads(json.dumps(result.content(), allow_nan=False))
    assert written["steps"][1]["top1_per_group"] == [80.0, None]
    checked = result.model_copy(update={"is_unchecked": False})
    assert parse_result(written, Path("result.json")) == checked


@pytest.mark.parametrize("name", sorted(path.parent.name for path in RECORDED))
def test_every_recorded_result_can_be_read(name: str) -> None:
    result = read_result(RESULTS / name)
    recorded = json.loads((RESULTS / name / "result.json").read_text())
    assert result.top1 == [entry["top1"] for entry in recorded["steps"]]
    assert result.final_top1 == recorded["final_top1"]
    assert result.average_top1 == pytest.approx(recorded["average_top1"], abs=1e-9)
    assert result.classes == recorded.get("classes", [])
    settings = {
        name: value for name, value in result.config.items() if name in Learning.model_fields
    }
    assert Learning(**settings).recipe.name == recorded["config"]["recipe"]["name"]


def test_recorded_results_exist() -> None:
    assert len(RECORDED) > 5


def test_settings_of_an_earlier_version_are_moved_to_their_place() -> None:
    folder = OLD_RUNS / "blended"
    for settings in (read_result(folder).config, read_config(folder)["plan"]):
        assert settings["method_settings"] == {"previous_share": 0.5}
        assert settings["recipe"]["schedule"]["kind"] == "triangle"
        assert settings["recipe"]["optimiser"]["momentum"] == 0.9
        assert "momentum" not in settings["recipe"]
        assert "gradient_noise" not in settings["recipe"]
    assert read_config(folder)["asked"]["method_settings"] == {"previous_share": 0.5}


def test_fields_of_a_newer_version_are_ignored() -> None:
    newer = content(steps=[step(90.0, mood="good")], mood="good")
    result = parse_result(newer, Path("result.json"))
    assert isinstance(result, Result)
    assert "mood" not in result.content()


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"steps": [step(1.0, share_on_new=float("nan"))]}, "steps.0.share_on_new"),
        ({"steps": [step(1.0, alpha="x")]}, "steps.0.alpha"),
        ({"steps": 5}, "steps"),
        ({"method": None}, "method"),
        ({"classes": "ab"}, "classes"),
    ],
)
def test_damaged_result_is_named(changes: dict[str, Any], place: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_result(content(**changes), Path("here/result.json"))
    start = f"here/result.json is damaged or not a result ({place}: "
    assert caught.value.problem.startswith(start)


@pytest.mark.parametrize("text", ["", "{}", "[]", "[" * 100_000, '{"steps": [], "complete": 1}'])
def test_unreadable_result_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(UserError, match=r"(no readable result\.json|without any step); give a"):
        read_result(tmp_path)


def test_missing_folders_and_results_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere does not exist; give a folder that bic run"):
        read_result(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"has no readable result\.json"):
        read_result(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="has not finished its first step; continue it with"):
        read_result(tmp_path)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"format": 99, "version": "9.0"}, r"was written by a newer version of bic \(9\.0\)"),
        ({"format": "one"}, "was written by a newer version of bic"),
        ({"plan": []}, r"has no readable config\.json"),
    ],
)
def test_odd_config_is_refused(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    folder = write_run(tmp_path / "run", [2, 2])
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    with pytest.raises(UserError, match=problem):
        read_config(folder)


PREDICTIONS: dict[str, Any] = {
    "true": [0, 1],
    "predicted": [1, 1],
    "predicted_uncorrected": [0, 1],
    "confidence": [0.0, 1.0],
    "confidence_uncorrected": [0.5, 0.75],
}


def read_back(folder: Path, changes: dict[str, Any]) -> dict[str, Any]:
    arrays = {name: np.array(column) for name, column in (PREDICTIONS | changes).items()}
    np.savez(folder / "predictions-1.npz", **arrays)
    return read_predictions(folder, StepResult.model_validate(step(90.0)))


@pytest.mark.parametrize(
    "changes",
    [
        {"confidence": [0.5, np.nan]},
        {"confidence": [0.5, np.inf]},
        {"confidence_uncorrected": [-0.5, 0.5]},
        {"confidence_uncorrected": [0.5, 1.5]},
        {"confidence": [0, 1]},
        {"confidence": ["0.5", "0.5"]},
        {"confidence": [[0.5], [0.5]]},
        {"confidence": 0.5},
        {name: [column] for name, column in PREDICTIONS.items()},
        {name: column[0] for name, column in PREDICTIONS.items()},
        {name: column[:0] for name, column in PREDICTIONS.items()},
    ],
)
def test_predictions_that_no_report_can_use_are_damaged(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    assert read_back(tmp_path, {})["confidence"].tolist() == [0.0, 1.0]
    with pytest.raises(UserError, match=r"predictions-1\.npz is missing or damaged \(its "):
        read_back(tmp_path, changes)


def test_reading_results_imports_no_torch() -> None:
    code = "import sys, bic.store.results; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
