"""Run folders of an earlier version: show, report, predict and run still accept them."""

import csv
import json
import shutil
from pathlib import Path

import pytest
from support.command_line import Command, assert_refused
from support.digits import write_digits

OLD_RUNS = Path(__file__).parents[1] / "support" / "old_runs"
NAMES = ("bic", "icarl", "fc-retrain", "blended")

# The arguments that made each run, in today's words.
ARGUMENTS = {
    "bic": ["--method", "bic", "--backbone", "small", "--step-sizes", "5,5"],
    "icarl": ["--method", "icarl", "--step-sizes", "5,5"],
    "fc-retrain": ["--method", "fc-retrain", "--backbone", "small", "--step-sizes", "5,5"],
    "blended": [
        *("--backbone", "small+small", "--step-sizes", "4,3,3"),  # bic was the default
        *("--set", "method_settings.previous_share=0.5"),
    ],
}


@pytest.mark.parametrize("name", NAMES)
def test_show_prints_the_recorded_figures(bic: Command, name: str) -> None:
    outcome = bic("show", OLD_RUNS / name)
    assert outcome.code == 0
    result = json.loads((OLD_RUNS / name / "result.json").read_text())
    for step in result["steps"]:
        assert f"{step['top1']:.2f}" in outcome.out
        if step["alpha"] is not None:
            assert f"{step['alpha']:.3f}" in outcome.out


def test_report_shows_all_of_them(bic: Command, tmp_path: Path) -> None:
    outcome = bic("report", OLD_RUNS, "--out", "page.html")
    assert outcome.code == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    for method in ("bic", "icarl", "fc-retrain"):
        assert method in page


@pytest.mark.parametrize("name", NAMES)
def test_predict_gives_the_answers_of_then(bic: Command, tmp_path: Path, name: str) -> None:
    write_digits(tmp_path / "digits", 20)
    outcome = bic("predict", OLD_RUNS / name, "digits", "--top", "3", "--csv", "--quiet")
    assert outcome.code == 0
    found = list(csv.reader(outcome.out.splitlines()))
    recorded = list(csv.reader((OLD_RUNS / name / "predicted.csv").read_text().splitlines()))
    assert len(found) == len(recorded) == 21
    assert found[0] == recorded[0]
    for row, expected in zip(found[1:], recorded[1:], strict=True):
        assert row[0] == expected[0]
        assert row[1::2] == expected[1::2]
        probabilities = list(map(float, row[2::2]))
        assert probabilities == pytest.approx(list(map(float, expected[2::2])), abs=1.01e-4)


@pytest.mark.parametrize("name", NAMES)
def test_complete_run_is_accepted_and_not_changed(bic: Command, tmp_path: Path, name: str) -> None:
    shutil.copytree(OLD_RUNS / name, tmp_path / "here")
    common = ["--memory", "20", "--epochs", "1", "--threads", "1", "--out", "here"]
    outcome = bic("run", "digits", *common, *ARGUMENTS[name])
    assert outcome.code == 0
    assert outcome.err == "here is complete; nothing to do\n"
    assert outcome.out == bic("show", OLD_RUNS / name).out
    for file in (OLD_RUNS / name).rglob("*.*"):
        copy = tmp_path / "here" / file.relative_to(OLD_RUNS / name)
        assert copy.read_bytes() == file.read_bytes()


def test_other_settings_are_still_refused(bic: Command, tmp_path: Path) -> None:
    shutil.copytree(OLD_RUNS / "bic", tmp_path / "here")
    common = ["--memory", "20", "--epochs", "1", "--out", "here", *ARGUMENTS["bic"]]
    assert_refused(
        bic("run", "digits", *common, "--set", "recipe.optimiser.momentum=0.8"),
        "here is a run with other settings (recipe.optimiser.momentum was 0.9 and is now 0.8); "
        "choose another --out",
    )
