"""What the page shows of one run, against numbers worked out by hand."""

import base64
import json
import math
from pathlib import Path

import numpy as np
import pytest
from support.recorded_runs import change_result, write_run

from bic.report.details import classes_to_picture, details
from bic.report.runs import Run, load

# Two steps of two classes. After the second step, two of the four images of old classes are taken
# for class 3 before correction, and one of them after it. Class 2 has no test image.
FIRST = {
    "true": [0, 0, 1, 1],
    "predicted": [0, 0, 1, 0],
    "predicted_uncorrected": [0, 0, 1, 0],
    "confidence": [0.9, 0.9, 0.9, 0.9],
    "confidence_uncorrected": [0.9, 0.9, 0.9, 0.9],
}
SECOND = {
    "true": [0, 0, 1, 1, 3],
    "predicted": [0, 3, 1, 1, 3],
    "predicted_uncorrected": [3, 3, 1, 1, 3],
    "confidence": [0.95, 0.95, 0.55, 0.55, 0.35],
    "confidence_uncorrected": [1.0, 1.0, 1.0, 1.0, 0.0],
}


def matrix(packed: dict[str, str], kind: str = "Uint8Array") -> list[list[int]]:
    assert packed["kind"] == kind
    integers = {"Uint8Array": "<u1", "Uint16Array": "<u2"}[kind]
    counts = np.frombuffer(base64.b64decode(packed["data"]), dtype=integers)
    size = math.isqrt(len(counts))
    return counts.reshape(size, size).tolist()


@pytest.fixture
def by_hand(tmp_path: Path) -> Run:
    classes = ["a", "b", "c", "d"]
    folder = tmp_path / "by-hand"
    return load(write_run(folder, [2, 2], predictions=[FIRST, SECOND], classes=classes))


def test_shares_before_and_after(by_hand: Run) -> None:
    last = details(by_hand)["steps"][-1]
    assert last["shares"] == {"true": [0.8, 0.2], "before": [0.4, 0.6], "after": [0.6, 0.4]}
    assert last["new"] == {"true": 0.2, "before": 0.6, "after": 0.4}


def test_confusions_before_and_after(by_hand: Run) -> None:
    content = details(by_hand)
    first, second = (step["confusion"] for step in content["steps"])
    assert content["bins"] == [0, 1, 2, 3, 4]
    assert matrix(first["after"]) == [[2, 0], [1, 1]]
    assert matrix(second["before"]) == [[0, 0, 0, 2], [0, 2, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]
    assert matrix(second["after"]) == [[1, 0, 0, 1], [0, 2, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]


def test_confused_pairs_before_and_after(by_hand: Run) -> None:
    pairs = details(by_hand)["pairs"]
    assert pairs["before"] == {"listed": [(0, 3, 2)], "total": 1}
    assert pairs["after"] == {"listed": [(0, 3, 1)], "total": 1}


def test_classes_and_their_forgetting(by_hand: Run) -> None:
    classes = details(by_hand)["classes"]
    assert classes["after"] == [50, 100, None, 100]
    assert classes["before"] == [0, 100, None, 100]
    assert classes["best"] == [100, 50, None, None]
    assert classes["images"] == [2, 2, 0, 1]


def test_pictures_show_the_most_confused_and_forgotten_classes_first(by_hand: Run) -> None:
    # 0 is taken for 3. Lost points: 50 (class 0), -50 (1), 0 (2), -100 (3).
    numbers = classes_to_picture(details(by_hand))
    assert numbers == [0, 3, 0, 2, 1, 3, 0, 1, 2, 3]


def test_calibration_before_and_after(by_hand: Run) -> None:
    calibration = details(by_hand)["steps"][-1]["calibration"]
    # After: two at 0.95, one right (gap 0.45); two at 0.55, both right (0.45); one at 0.35, right
    # (0.65).
    error_after = (2 * 0.45 + 2 * 0.45 + 0.65) / 5
    assert calibration["after"]["error"] == pytest.approx(error_after, abs=1e-5)
    # Before: four at 1.0, two right (gap 0.5); one at 0.0, right (1.0).
    error_before = (4 * 0.5 + 1 * 1.0) / 5
    assert calibration["before"]["error"] == pytest.approx(error_before, abs=1e-5)
    bins = calibration["before"]["bins"]
    assert bins[0] == (1, 0.0, 1.0)
    assert bins[14] == (4, 1.0, 0.5)
    assert [count for count, _, _ in bins[1:14]] == [0] * 13


def test_norms_of_each_class_are_summarised_per_group(by_hand: Run) -> None:
    # Results before 0.2 record each class. Norms 1, 4/3, 5/3, 2: two per group.
    norms = details(by_hand)["steps"][-1]["norms"]
    assert norms[0] == pytest.approx([1, 1.0833, 1.1667, 1.25, 1.3333], abs=1e-3)
    assert norms[1] == pytest.approx([1.6667, 1.75, 1.8333, 1.9167, 2], abs=1e-3)


def test_norms_per_group_are_shown_as_recorded(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [2, 2])
    norms = [[1, 2, 3, 4, 5], [2, 3, 4, 5, 6]]
    steps = json.loads((folder / "result.json").read_text())["steps"]
    for step in steps:
        del step["head_norms"]
        step["head_norms_per_group"] = norms[: step["step"]]
    change_result(folder, steps=steps)
    assert details(load(folder))["steps"][-1]["norms"] == norms


def test_at_most_200_pairs_are_listed(tmp_path: Path) -> None:
    true, predicted = np.divmod(np.arange(400), 20)
    confidence = np.full(400, 0.5, dtype=np.float32)
    columns = {
        "index": true,
        "true": true,
        "predicted": predicted,
        "predicted_uncorrected": predicted,
        "confidence": confidence,
        "confidence_uncorrected": confidence,
    }
    run = load(write_run(tmp_path / "a", [20], predictions=[columns]))
    pairs = details(run)["pairs"]["after"]
    assert len(pairs["listed"]) == 200
    assert pairs["total"] == 380


def test_large_counts_get_wider_integers(tmp_path: Path) -> None:
    repeated = {name: list(column) * 200 for name, column in SECOND.items()}
    run = load(write_run(tmp_path / "often", [2, 2], predictions=[FIRST, repeated]))
    counts = matrix(details(run)["steps"][1]["confusion"]["after"], "Uint16Array")
    assert counts[1] == [0, 400, 0, 0]


def test_a_correction_is_named(by_hand: Run) -> None:
    assert details(by_hand)["second"] == "correction"


def test_a_classifier_of_the_method_is_named_and_has_no_calibration(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [2, 2], predictions=[FIRST, SECOND], method="icarl")
    content = details(load(folder))
    assert content["second"] == "classifier"
    sides = content["steps"][-1]["calibration"].keys()
    assert sides == {"before"}, "iCaRL answers by distances, which are no confidences"


def test_the_same_predictions_are_shown_once(tmp_path: Path) -> None:
    same = {**SECOND, "predicted": SECOND["predicted_uncorrected"]}
    folder = write_run(tmp_path / "a", [2, 2], predictions=[FIRST, same], method="distill")
    assert details(load(folder))["second"] is None


def test_other_predictions_with_the_same_accuracy_are_shown(tmp_path: Path) -> None:
    other = {**SECOND, "predicted": [3, 3, 1, 1, 3], "predicted_uncorrected": [1, 3, 1, 1, 3]}
    folder = write_run(tmp_path / "a", [2, 2], predictions=[FIRST, other], method="icarl")
    assert details(load(folder))["second"] == "classifier"


def test_a_step_without_new_classes_is_shown(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [2, 2], predictions=[FIRST, SECOND])
    steps = json.loads((folder / "result.json").read_text())["steps"]
    norms = [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5], []]
    for step in steps:
        del step["head_norms"]
        step["head_norms_per_group"] = norms[: step["step"]]
    groups = [*steps[-1]["top1_per_group"], None]
    third = {"step": 3, "top1_per_group": groups, "head_norms_per_group": norms}
    change_result(folder, steps=[*steps, {**steps[-1], **third}])
    (folder / "predictions-3.npz").write_bytes((folder / "predictions-2.npz").read_bytes())
    content = details(load(folder))
    last = content["steps"][-1]
    assert content["sizes"] == [2, 2, 0]
    assert last["groups"][-1] is None
    assert last["norms"] == norms
    assert last["shares"]["true"] == [0.8, 0.2, 0]
    assert matrix(last["confusion"]["after"]) == matrix(content["steps"][1]["confusion"]["after"])
