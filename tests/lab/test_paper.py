"""bic paper: declarations against the paper's numbers, and a small experiment from end to end."""

import io
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bic import UserError, experiments
from bic.cli import app
from bic.lab.experiments import EXPERIMENTS, Experiment, Line, Panel, experiment
from bic.lab.paper import Job, gather, jobs, overview, run_experiment
from bic.lab.published import PUBLISHED
from bic.progress import Progress
from bic.report import paper as pages

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")  # digits have few images

DIGITS = {"dataset": "digits", "steps": 2}
FIRST, SECOND = (
    Line(method, {**DIGITS, "method": method}, (99.0, 50.0)) for method in ("bic", "distill")
)
BOUND = Line("joint", {"dataset": "digits", "method": "joint", "steps": 1}, bound=True)
TINY = Experiment(
    "tiny",
    "A small one",
    (Panel("digits, 5 + 5", (FIRST, SECOND, BOUND)),),
    "nothing",
    confusions=("distill", "bic"),
    degradation={"bic": (10.5,)},
)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXPERIMENTS, "tiny", TINY)


def do(out: Path, **options: object) -> dict[str, object]:
    return run_experiment("tiny", out, threads=1, progress=Progress("quiet"), **options)  # type: ignore[arg-type]


def test_the_numbers_are_those_of_the_papers_tables() -> None:
    # Of Table 3, and of each other table a figure that stands nowhere else.
    ends = {line.name: line.paper[-1] for line in EXPERIMENTS["table3"].lines()}
    assert list(ends.values()) == [39.83, 40.34, 56.69, 60.93]
    assert [line.paper[-1] for line in EXPERIMENTS["table4"].lines()] == [
        56.69,
        54.31,
        53.74,
        51.17,
    ]
    assert [line.paper[-1] for line in EXPERIMENTS["table5"].lines()] == [55.55, 56.69]
    assert [line.paper[-1] for line in EXPERIMENTS["table1"].lines()] == [39.0, 44.0, 52.0, 73.2]
    assert [line.paper[-1] for line in EXPERIMENTS["table2"].lines()] == [65.56, 87.98]
    # The averages over steps that the paper's readers know.
    bic = EXPERIMENTS["table3"].lines()[2]
    assert sum(bic.lab.paper) / 5 == pytest.approx(68.912)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_line_has_a_figure_for_each_step_or_none(name: str) -> None:
    for line in EXPERIMENTS[name].lines():
        assert len(line.paper) in (0, line.settings["steps"])


@pytest.mark.parametrize("recipe", [None, "fast"])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_run_is_a_valid_request(name: str, recipe: str | None) -> None:
    for job in jobs(experiment(name, recipe or "paper"), recipe, [0]):
        assert job.config().method == job.line.settings["method"]
        assert re.fullmatch(r"[\w.-]+", job.folder)


def test_runs_shared_by_lines_and_experiments_have_one_folder() -> None:
    folders = {
        name: {job.folder for job in jobs(EXPERIMENTS[name], "fast", [0, 1])}
        for name in EXPERIMENTS
    }
    assert len(folders["table3"]) == 8
    assert folders["fig9"] == folders["table3"]
    assert len(folders["fig4"] & folders["table3"]) == 6
    assert folders["table5"] & folders["table3"] == {
        f"cifar100-5steps-bic-fast-seed{seed}" for seed in (0, 1)
    }
    assert len(folders["table4"] & folders["table3"]) == 2
    # 20, 10, 5 and 2 steps by four methods, and one upper bound for all of them.
    assert len(folders["fig8"]) == 2 * (4 * 4 + 1)


def test_different_runs_have_different_folders() -> None:
    by_folder: dict[str, Job] = {}
    for name in EXPERIMENTS:
        for job in jobs(experiment(name, "fast"), "fast", [0]):
            assert by_folder.setdefault(job.folder, job).line.settings == job.line.settings


def test_figures_are_compared_by_the_papers_own_metric() -> None:
    theirs = {(one.dataset, one.accuracies): one.metric for one in PUBLISHED}
    for name in EXPERIMENTS:
        for panel in EXPERIMENTS[name].panels:
            for line in panel.lines:
                assert panel.metric == theirs.get(
                    (line.settings["dataset"], line.paper), panel.metric
                )


def test_two_scales_of_cifar_stand_for_imagenet_in_the_fast_recipe() -> None:
    small, _ = experiment("fig1", "fast").panels
    assert {line.settings["first_classes"] for line in small.lines} == {20}
    assert {panel.metric for panel in experiment("fig1", "fast").panels} == {"top1"}
    assert {panel.metric for panel in experiment("fig1", "paper-imagenet").panels} == {"top5"}
    assert "CIFAR-100" in experiment("fig1", "fast").note


def test_an_experiment_from_end_to_end(tiny: None, tmp_path: Path) -> None:
    do(tmp_path, seeds=2)
    content = json.loads((tmp_path / "tiny/tiny.json").read_text())
    results = [
        json.loads((tmp_path / f"digits-2steps-bic-demo-seed{seed}/result.json").read_text())
        for seed in (0, 1)
    ]
    bic = content["panels"][0]["lines"][0]
    ends = [result["final_top1"] for result in results]
    assert bic["mean"][-1] == pytest.approx(sum(ends) / 2)
    assert bic["spread"][-1] == pytest.approx(abs(ends[0] - ends[1]) / 2**0.5)
    page = (tmp_path / "tiny/tiny.md").read_text()
    assert f"{bic['mean'][-1]:.2f} ± {bic['spread'][-1]:.2f}" in page
    assert f"{bic['mean'][-1] - 50:+.2f}" in page  # beside the paper's last figure
    for name in ("tiny.png", "tiny.svg", "tiny-confusion.png", "tiny-confusion.svg"):
        assert (tmp_path / "tiny" / name).stat().st_size > 5000


def test_what_is_done_is_not_done_again_and_what_is_missing_is(tiny: None, tmp_path: Path) -> None:
    do(tmp_path)
    kept, lost = (tmp_path / f"digits-2steps-{method}-demo-seed0" for method in ("bic", "distill"))
    before = (kept / "result.json").stat().st_mtime_ns
    shutil.rmtree(lost)
    do(tmp_path)
    assert (kept / "result.json").stat().st_mtime_ns == before
    assert (lost / "result.json").exists()


def test_results_alone_are_enough_for_tables_and_curves(tiny: None, tmp_path: Path) -> None:
    do(tmp_path / "whole")
    for kept in (tmp_path / "whole").glob("*/result.json"):
        target = tmp_path / "results" / kept.parent.name / "result.json"
        target.parent.mkdir(parents=True)
        shutil.copy(kept, target)
    do(tmp_path / "results")
    made = {file.name for file in (tmp_path / "results/tiny").iterdir()}
    assert made == {"tiny.json", "tiny.md", "tiny.png", "tiny.svg"}
    assert (tmp_path / "results/tiny/tiny.md").read_text() == (
        tmp_path / "whole/tiny/tiny.md"
    ).read_text()


def test_what_was_not_run_is_left_out(tiny: None, tmp_path: Path) -> None:
    do(tmp_path)
    shutil.rmtree(tmp_path / "digits-2steps-distill-demo-seed0")
    (panel,) = gather(TINY, tmp_path, "demo", range(3))["panels"]
    assert [(line["name"], line["seeds"]) for line in panel["lines"]] == [
        ("bic", [0]),
        ("joint", [0]),
    ]
    assert gather(EXPERIMENTS["table3"], tmp_path, "demo", [0])["panels"] == []
    content = gather(replace(TINY, panels=TINY.panels * 3), tmp_path, "demo", [0])
    assert len(pages.curves(content).axes) == 3
    shutil.rmtree(tmp_path / "digits-2steps-bic-demo-seed0")
    assert gather(TINY, tmp_path, "demo", [0])["panels"] == [], "an upper bound alone is no panel"


def test_a_folder_with_another_run_or_a_damaged_one_is_refused(tiny: None, tmp_path: Path) -> None:
    do(tmp_path)
    bic, distill = (
        tmp_path / f"digits-2steps-{method}-demo-seed0" for method in ("bic", "distill")
    )
    shutil.rmtree(distill)
    shutil.copytree(bic, distill)
    with pytest.raises(
        UserError, match=r"a run of another configuration \(method is bic, not distill\)"
    ):
        do(tmp_path)
    for damaged in ('{"complete": tr', '{"complete": true, "steps": []}'):
        (distill / "result.json").write_text(damaged)
        with pytest.raises(
            UserError,
            match=r"result.json is damaged; delete .*distill-demo-seed0 to have it run again",
        ):
            do(tmp_path)


def test_missing_predictions_are_said(tiny: None, tmp_path: Path) -> None:
    do(tmp_path)
    file = tmp_path / "digits-2steps-bic-demo-seed0/predictions-2.npz"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.warns(
        UserWarning,
        match="predictions-2.npz is missing or damaged; the confusion matrix is left out",
    ):
        do(tmp_path)


def test_each_recipe_has_its_own_tables(tiny: None, tmp_path: Path) -> None:
    do(tmp_path, recipe="demo")
    page = (tmp_path / "tiny-demo/tiny.md").read_text()
    assert "ours: demo recipe" in page


def test_the_overview_counts_what_is_done(tiny: None, tmp_path: Path) -> None:
    do(tmp_path)
    rows = {found.name: (runs, done) for found, runs, done, _ in overview(tmp_path, "demo")}
    assert rows["tiny"] == (3, 3)
    assert rows["table3"] == (4, 0)


def made_up(found: Experiment, spread: float | None) -> dict[str, Any]:
    """An experiment's content as runs with these figures would give it."""
    sizes = {"imagenet1000": 1000, "celeb10000": 10_000}
    panels = []
    for panel in found.panels:
        lines = []
        for line in panel.lines:
            steps, size = line.settings["steps"], sizes.get(line.settings["dataset"], 100)
            figures = {"seen": [size // steps * number for number in range(1, steps + 1)]}
            figures |= {
                "mean": [66.66] * steps,
                "spread": [spread] * steps,
                "seeds": [0],
                "paper": line.paper,
            }
            lines.append(
                {
                    "name": line.name,
                    "method": line.settings["method"],
                    "bound": line.bound,
                    **figures,
                }
            )
        panels.append({"title": panel.title, "metric": panel.metric, "lines": lines})
    return {
        "title": found.title,
        "recipe": "fast",
        "degradation": found.degradation,
        "panels": panels,
    }


@pytest.mark.parametrize("spread", [None, 0.27])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_figures_stay_whole_in_a_terminal_of_80_columns(name: str, spread: float | None) -> None:
    console = Console(width=80, file=io.StringIO())
    for table in pages.tables(made_up(experiment(name, "fast"), spread), console.width):
        console.print(table)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in printed
    last = "66.66" if spread is None else "66.66 ± 0.27"
    lines = sum(len(panel.lines) for panel in experiment(name, "fast").panels)
    assert sum(last in line for line in printed.splitlines()) == lines


def test_degradation_is_the_gap_to_joint() -> None:
    lines = [{"method": "bic", "mean": [90.0, 61.0]}, {"method": "joint", "mean": [72.5]}]
    content = {"panels": [{"lines": lines}], "degradation": {"bic": (10.5,)}}
    assert list(pages.degradation(content)) == [("bic", [11.5], (10.5,))]
    assert not list(pages.degradation({**content, "degradation": {"eeil": (15.1,)}}))


def test_an_unknown_experiment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'table3'"):
        run_experiment("tabel3", tmp_path, progress=Progress("quiet"))
    with pytest.raises(UserError, match="--seeds must be 1 or more"):
        run_experiment("table3", tmp_path, seeds=0, progress=Progress("quiet"))


def test_wrong_places_are_named_before_any_reading(tmp_path: Path) -> None:
    def refused(message: str, out: Path = tmp_path, **options: object) -> None:
        with pytest.raises(UserError, match=message):
            run_experiment("table5", out, recipe="fast", progress=Progress("quiet"), **options)  # type: ignore[arg-type]

    refused("nowhere/cifar100 does not exist; check the path", data=["nowhere/cifar100"])
    refused(
        "cifar10=x names nothing that is needed here; pass --data cifar100=PATH", data=["cifar10=x"]
    )
    (tmp_path / "file").touch()
    refused("cannot write to .*file", out=tmp_path / "file")


def test_missing_data_is_named_before_any_training(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="imagenet1000 must be fetched"):
        run_experiment("table1", tmp_path, recipe="fast", progress=Progress("quiet"))


def test_the_command_prints_ours_beside_the_papers(
    tiny: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app(
        ["paper", "tiny", "--out", str(tmp_path), "--quiet", "--threads", "1"],
        result_action="return_value",
    )
    printed = capsys.readouterr().out
    assert "the paper" in printed
    assert "Δ: ours − the paper's" in " ".join(printed.split())
    assert experiments.EXPERIMENTS["tiny"].claim in printed
