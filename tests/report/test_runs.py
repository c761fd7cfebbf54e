"""Finding and reading runs, damaged ones included."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.recorded_runs import change_result, write_run

from bic.errors import UserError
from bic.report.runs import find, load


def test_runs_are_found_below_a_folder_and_counted_once(tmp_path: Path) -> None:
    first = write_run(tmp_path / "runs" / "deep" / "a", [2])
    write_run(tmp_path / "runs" / "b", [2], seed=1)
    (tmp_path / "runs" / "package.json").write_text('{"name": "no run"}')
    (tmp_path / "runs" / "copy.json").write_bytes((first / "result.json").read_bytes())
    places = find([tmp_path / "runs", first])
    assert [place.name for place in places] == ["copy.json", "b", "a"]


def test_a_place_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere does not exist; give a folder"):
        find([tmp_path / "nowhere"])
    with pytest.raises(UserError, match="no run was found there; give a folder"):
        find([tmp_path])


def test_recorded_results_open_alone(results_folder: Path) -> None:
    places = find([results_folder])
    assert places
    for path in places:  # folders that hold a result.json and nothing else
        run = load(path)
        assert run.result.complete
        assert run.problems == []
        assert run.predictions() is None
        assert load(path / "result.json").result == run.result


def test_results_of_earlier_versions_open(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [2, 2])
    result = json.loads((folder / "result.json").read_text())
    del result["checksum"]
    del result["made_with"]
    del result["config"]["classes"]
    del result["config"]["recipe"]["optimiser"]["later_rate"]
    (folder / "result.json").write_text(json.dumps(result))
    run = load(folder)
    assert run.plan["classes"] is None
    assert run.plan["recipe"]["optimiser"]["later_rate"] == 1.0


def test_an_unfinished_run_says_so(tmp_path: Path) -> None:
    run = load(write_run(tmp_path / "a", [2, 2, 2], steps_done=2))
    assert run.problems == ["unfinished: 2 of 3 steps; the same bic run command continues it"]


def test_times_are_summed_per_phase(tmp_path: Path) -> None:
    run = load(write_run(tmp_path / "a", [2, 2]))
    assert run.seconds == {"stage1": 120, "stage2": 1, "memory": 10, "evaluate": 9}


def test_exemplars_are_those_of_the_model_or_of_the_newest_checkpoint(tmp_path: Path) -> None:
    run = load(write_run(tmp_path / "a", [2]))
    final = run.path / "model/memory.parquet"
    assert run.memory_file() == final
    checkpoint = run.path / "checkpoint/step-1/memory.parquet"
    checkpoint.parent.mkdir(parents=True)
    final.rename(checkpoint)
    assert run.memory_file() == checkpoint
    checkpoint.unlink()
    assert run.memory_file() is None


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"steps": []}, "without any step"),
        ({"classes": ["a"]}, "its class names and its steps disagree"),
        ({"seed": "first"}, "seed"),
        ({"config": {}}, "damaged or not a run"),
    ],
)
def test_damaged_results_are_refused(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    folder = write_run(tmp_path / "a", [2, 2])
    change_result(folder, **changes)
    with pytest.raises(UserError, match=problem):
        load(folder)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"top1_per_group": []}, "its groups and its steps disagree"),
        ({"head_norms": [1.0]}, "its head and its classes disagree"),
        ({"head_norms_per_group": [[1.0] * 5] * 3}, "its head and its classes disagree"),
        ({"step": 3}, "its steps are not counted from 1"),
        ({"seen": 1}, "its class names and its steps disagree"),
    ],
)
def test_damaged_steps_are_refused(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    folder = write_run(tmp_path / "a", [2, 2])
    first, second = json.loads((folder / "result.json").read_text())["steps"]
    change_result(folder, steps=[first, {**second, **changes}])
    with pytest.raises(UserError, match=problem):
        load(folder)


def test_a_result_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [2])
    content = (folder / "result.json").read_bytes()
    (folder / "result.json").write_bytes(content[:100])
    with pytest.raises(UserError, match=r"has no readable result\.json"):
        load(folder)


def test_a_run_in_its_first_step_is_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [2])
    (folder / "result.json").unlink()
    with pytest.raises(UserError, match="has not finished its first step"):
        load(folder)


def test_a_run_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [2])
    newer = {"format": 99, "asked": {}, "plan": {}, "version": "9"}
    (folder / "config.json").write_text(json.dumps(newer))
    with pytest.raises(UserError, match="newer version of bic"):
        load(folder)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no archive"])
def test_damaged_predictions_are_left_out(tmp_path: Path, content: bytes) -> None:
    run = load(write_run(tmp_path / "a", [2, 2]))
    (run.path / "predictions-2.npz").write_bytes(content)
    assert run.predictions() is None
    assert "its predictions are damaged" in run.problems[0]


@pytest.mark.parametrize("changes", [{"predicted": [0, 4]}, {"confidence": [0.5]}])
def test_impossible_predictions_are_left_out(tmp_path: Path, changes: dict[str, Any]) -> None:
    run = load(write_run(tmp_path / "a", [2, 2]))
    columns = {
        "true": [0, 3],
        "predicted": [0, 3],
        "predicted_uncorrected": [0, 3],
        "confidence": [0.5, 0.5],
        "confidence_uncorrected": [0.5, 0.5],
    }
    np.savez(run.path / "predictions-2.npz", **columns)
    assert run.predictions() is not None
    np.savez(run.path / "predictions-2.npz", **{**columns, **changes})
    assert run.predictions() is None
    assert "its predictions are damaged" in run.problems[0]


def test_missing_predictions_are_named(tmp_path: Path) -> None:
    run = load(write_run(tmp_path / "a", [2, 2]))
    (run.path / "predictions-2.npz").unlink()
    assert run.predictions() is None
    assert run.problems[0].startswith("predictions-2.npz is missing")
