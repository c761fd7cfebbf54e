"""The runs of experiments: folders that lines share, and what is gathered from them."""

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.recorded_runs import change_result, write_run

from bic.errors import UserError
from bic.lab.experiment_runs import Job, find_experiment, gather, jobs
from bic.lab.experiments import EXPERIMENTS, Experiment, Line, Panel, experiment
from bic.learn.recipes import RECIPES

BIC = Line("bic", {"dataset": "digits", "steps": 2, "method": "bic"}, (99.0, 50.0))
DISTILL = Line("distill", {"dataset": "digits", "steps": 2, "method": "distill"}, (99.0, 50.0))
JOINT = Line("joint", {"dataset": "digits", "steps": 1, "method": "joint"})
TINY = Experiment("tiny", "Tiny", (Panel("digits, 5 + 5", (BIC, DISTILL, JOINT)),), "nothing")


def write_job(out: Path, line: Line, seed: int = 0) -> Path:
    """A made-up run of a line on digits, as `bic paper` would do it."""
    job = Job(line, "demo", seed)
    num_steps = line.settings["steps"]
    sizes = [10 // num_steps] * num_steps
    settings: dict[str, Any] = {
        "dataset": "digits",
        "method": line.method,
        "memory": 120,
        "held_out": 0.25,
        "recipe": RECIPES["demo"],
        "seed": seed,
        "per_class": 2,
        "pictures": 0,
    }
    return write_run(out / job.folder, sizes, **settings)


def folders(declared: Experiment, recipe: str, seeds: Sequence[int]) -> set[str]:
    return {job.folder for job in jobs(declared, recipe, seeds)}


@pytest.mark.parametrize("recipe", [None, "fast"])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_run_is_a_valid_request(name: str, recipe: str | None) -> None:
    for job in jobs(experiment(name, recipe or "paper"), recipe, [0]):
        assert job.config().method == job.line.method
        assert re.fullmatch(r"[\w.-]+", job.folder)


def test_runs_that_lines_and_experiments_share_have_one_folder() -> None:
    by_name = {name: folders(EXPERIMENTS[name], "fast", [0, 1]) for name in EXPERIMENTS}
    bic = {f"cifar100-5steps-bic-fast-seed{seed}" for seed in (0, 1)}
    assert len(by_name["table3"]) == 8
    assert by_name["fig9"] == by_name["table3"]
    assert len(by_name["fig4"] & by_name["table3"]) == 6
    assert by_name["table5"] & by_name["table3"] == bic
    assert by_name["table4"] & by_name["table3"] == bic
    # 20, 10, 5 and 2 steps of four methods, and one upper bound for all of them.
    assert len(by_name["fig8"]) == 2 * (4 * 4 + 1)


def test_different_runs_have_different_folders() -> None:
    by_folder: dict[str, Job] = {}
    for name in EXPERIMENTS:
        for job in jobs(experiment(name, "fast"), "fast", [0]):
            same = by_folder.setdefault(job.folder, job)
            assert same.line.settings == job.line.settings


def test_the_first_classes_are_named_in_the_request() -> None:
    (line, *_) = experiment("fig1", "fast").panels[0].lines
    classes = [f"class {number}" for number in range(100)]
    assert Job(line, "fast", 0).config(classes).classes == tuple(classes[:20])
    assert Job(line, "fast", 0).config().classes is None


def test_an_unknown_experiment_is_refused() -> None:
    with pytest.raises(UserError, match="did you mean 'table3'"):
        find_experiment("tabel3", None)


def test_lines_are_means_over_seeds(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_job(tmp_path, BIC, seed)
    (panel,) = gather(TINY, tmp_path, "demo", range(2))["panels"]
    (line,) = panel["lines"]
    finals = []
    for seed in (0, 1):
        text = (tmp_path / f"digits-2steps-bic-demo-seed{seed}" / "result.json").read_text()
        finals.append(json.loads(text)["steps"][-1]["top1"])
    assert line["mean"][-1] == pytest.approx(sum(finals) / 2)
    assert line["spread"][-1] == pytest.approx(abs(finals[0] - finals[1]) / 2**0.5)
    assert line["seeds"] == [0, 1]
    assert line["seen"] == [5, 10]
    assert line["minutes"] == pytest.approx(2 * 2 * 70 / 60)


def test_lines_that_were_not_run_are_left_out(tmp_path: Path) -> None:
    folder = write_job(tmp_path, BIC)
    write_job(tmp_path, JOINT)
    (panel,) = gather(TINY, tmp_path, "demo", range(3))["panels"]
    lines = [(line["name"], line["seeds"], line["bound"]) for line in panel["lines"]]
    assert lines == [("bic", [0], False), ("joint", [0], True)]
    assert gather(EXPERIMENTS["table3"], tmp_path, "demo", [0])["panels"] == []
    shutil.rmtree(folder)
    assert gather(TINY, tmp_path, "demo", [0])["panels"] == [], "an upper bound alone is no panel"


def test_an_unfinished_run_is_not_a_result(tmp_path: Path) -> None:
    change_result(write_job(tmp_path, BIC), complete=False)
    assert Job(BIC, "demo", 0).result(tmp_path) is None


def test_another_run_in_the_folder_is_refused(tmp_path: Path) -> None:
    write_job(tmp_path, BIC).rename(tmp_path / Job(DISTILL, "demo", 0).folder)
    problem = r"a run of another configuration \(method is bic, not distill\); move it away"
    with pytest.raises(UserError, match=problem):
        Job(DISTILL, "demo", 0).result(tmp_path)


def test_another_share_of_held_out_images_is_refused(tmp_path: Path) -> None:
    line = replace(BIC, settings={**BIC.settings, "held_out": 0.5})
    write_job(tmp_path, BIC).rename(tmp_path / Job(line, "demo", 0).folder)
    with pytest.raises(UserError, match=r"held_out is 0\.25, not 0\.5"):
        Job(line, "demo", 0).result(tmp_path)


@pytest.mark.parametrize("content", ['{"complete": tr', '{"complete": true, "steps": []}'])
def test_a_damaged_result_is_refused(tmp_path: Path, content: str) -> None:
    folder = write_job(tmp_path, BIC)
    (folder / "result.json").write_text(content)
    problem = r"result\.json is damaged; delete .*bic-demo-seed0 to run it again"
    with pytest.raises(UserError, match=problem):
        Job(BIC, "demo", 0).result(tmp_path)
