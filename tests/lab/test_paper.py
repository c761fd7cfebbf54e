"""A small experiment from end to end: runs, content, and the command."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bic.cli import app
from bic.errors import UserError
from bic.lab.experiments import EXPERIMENTS, Experiment, Line, Panel
from bic.lab.paper import experiment_folder, overview, run_experiment
from bic.progress import Progress
from bic.report import experiments as pages

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")  # digits have few images

DIGITS = {"dataset": "digits", "steps": 2}
BIC = Line("bic", {**DIGITS, "method": "bic"}, (99.0, 50.0))
DISTILL = Line("distill", {**DIGITS, "method": "distill"}, (99.0, 50.0))
JOINT = Line("joint", {**DIGITS, "method": "joint", "steps": 1})
TINY = Experiment(
    name="tiny",
    title="A small one",
    panels=(Panel("digits, 5 + 5", (BIC, DISTILL, JOINT)),),
    claim="nothing",
    confusions=("distill", "bic"),
    degradation={"bic": (10.5,)},
    note="on digits",
)
FIRST_4 = {"dataset": "digits", "first_classes": 4, "steps": 2, "memory": {"images": 40}}
PART = Experiment(
    name="part",
    title="A part of the classes",
    panels=(Panel("digits 0 to 3", (Line("finetune", {**FIRST_4, "method": "finetune"}),)),),
    claim="nothing",
)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXPERIMENTS, "tiny", TINY)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of the small experiment with two seeds. Tests change a copy of the folder."""
    out = tmp_path_factory.mktemp("paper")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(EXPERIMENTS, "tiny", TINY)
        run_tiny(out, seeds=2)
    return out


@pytest.fixture
def out(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "out"))


def run_tiny(out: Path, **options: Any) -> dict[str, Any]:
    return run_experiment("tiny", out, threads=1, progress=Progress("quiet"), **options)


def write_pages(content: dict[str, Any], out: Path, recipe: str | None = None) -> Path:
    folder = experiment_folder(out, "tiny", recipe)
    pages.write(content, folder, out)
    return folder


def test_the_content_is_returned_and_written(out: Path) -> None:
    content = run_tiny(out, seeds=2)
    assert json.loads((out / "tiny/tiny.json").read_text()) == json.loads(json.dumps(content))
    assert {file.name for file in (out / "tiny").iterdir()} == {"tiny.json"}
    finals = []
    for seed in (0, 1):
        text = (out / f"digits-2steps-bic-demo-seed{seed}/result.json").read_text()
        finals.append(json.loads(text)["final_top1"])
    bic = content["panels"][0]["lines"][0]
    assert bic["mean"][-1] == pytest.approx(sum(finals) / 2)
    assert bic["spread"][-1] == pytest.approx(abs(finals[0] - finals[1]) / 2**0.5)


def test_markdown_and_figures_are_written_from_the_content(out: Path) -> None:
    content = run_tiny(out, seeds=2)
    folder = write_pages(content, out)
    bic = content["panels"][0]["lines"][0]
    page = (folder / "tiny.md").read_text()
    assert f"{bic['mean'][-1]:.2f} ± {bic['spread'][-1]:.2f}" in page
    assert f"{bic['mean'][-1] - 50:+.2f}" in page, "the difference from the paper's last accuracy"
    for name in ("tiny.png", "tiny.svg", "tiny-confusion.png", "tiny-confusion.svg"):
        assert (folder / name).stat().st_size > 5000


def test_only_missing_runs_are_done(out: Path) -> None:
    kept = out / "digits-2steps-bic-demo-seed0/result.json"
    removed = out / "digits-2steps-distill-demo-seed0"
    time_before = kept.stat().st_mtime_ns
    result_before = json.loads((removed / "result.json").read_text())
    shutil.rmtree(removed)
    run_tiny(out)
    assert kept.stat().st_mtime_ns == time_before
    result = json.loads((removed / "result.json").read_text())
    assert result["final_top1"] == result_before["final_top1"]


def test_results_alone_are_enough_for_tables_and_curves(out: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    for file in out.glob("*/result.json"):
        target = results / file.parent.name / "result.json"
        target.parent.mkdir(parents=True)
        shutil.copy(file, target)
    folder = write_pages(run_tiny(results), results)
    written = {file.name for file in folder.iterdir()}
    assert written == {"tiny.json", "tiny.md", "tiny.png", "tiny.svg"}
    page = (write_pages(run_tiny(out), out) / "tiny.md").read_text()
    assert (folder / "tiny.md").read_text() == page


def test_missing_predictions_are_said(out: Path) -> None:
    file = out / "digits-2steps-bic-demo-seed0/predictions-2.npz"
    file.write_bytes(file.read_bytes()[:100])
    content = run_tiny(out)
    message = r"predictions-2\.npz is missing or damaged; the confusion matrix is left out"
    with pytest.warns(UserWarning, match=message):
        write_pages(content, out)


def test_each_recipe_has_its_own_folder(out: Path) -> None:
    folder = write_pages(run_tiny(out, recipe="demo"), out, "demo")
    assert folder == out / "tiny-demo"
    assert "ours: demo recipe" in (folder / "tiny.md").read_text()


def test_the_overview_counts_the_runs_that_are_done(out: Path) -> None:
    rows = {
        declared.name: (num_runs, num_done, seconds)
        for declared, num_runs, num_done, seconds in overview(out, "demo")
    }
    assert rows["tiny"] == (3, 3, 0)
    num_runs, num_done, seconds = rows["table3"]
    assert (num_runs, num_done) == (4, 0)
    assert seconds > 0


def test_a_wrong_request_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'table3'"):
        run_experiment("tabel3", tmp_path, progress=Progress("quiet"))
    with pytest.raises(UserError, match="seeds must be 1 or more, got 0; raise seeds"):
        run_experiment("table3", tmp_path, seeds=0, progress=Progress("quiet"))


def test_wrong_places_are_named_before_any_reading(tmp_path: Path) -> None:
    def refused(problem: str, out: Path = tmp_path, **options: Any) -> None:
        with pytest.raises(UserError, match=problem):
            run_experiment("table5", out, recipe="fast", progress=Progress("quiet"), **options)

    refused("nowhere/cifar100 does not exist", data=["nowhere/cifar100"])
    refused("^elsewhere does not exist", data=["cifar100=elsewhere"])
    needed = 'cifar10=x names no data set that is needed here; pass data="cifar100=PATH"'
    refused(needed, data=["cifar10=x"])
    (tmp_path / "file").touch()
    refused("cannot write to .*file.*; choose another out", out=tmp_path / "file")


def test_missing_data_is_named_before_any_training(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="imagenet1000"):
        run_experiment("table1", tmp_path, recipe="fast", progress=Progress("quiet"))


def test_the_command_prints_our_results_and_the_papers(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["paper", "tiny", "--out", str(out), "--quiet", "--threads", "1"]
    app(command, result_action="return_value")
    printed = " ".join(capsys.readouterr().out.split())
    assert "the paper" in printed
    assert "Δ: ours − the paper's" in printed
    assert f"The paper: {TINY.claim}. {TINY.note}" in printed
    assert (out / "tiny/tiny.md").exists()


def test_the_command_lists_all_experiments(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app(["paper", "--recipe", "demo", "--out", str(out)], result_action="return_value")
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    first_words = [row[0] for row in rows if row]
    assert set(EXPERIMENTS) <= set(first_words)


def test_an_experiment_can_use_the_first_classes_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EXPERIMENTS, "part", PART)
    content = run_experiment("part", tmp_path, threads=1, progress=Progress("quiet"))
    assert content["panels"][0]["lines"][0]["seen"] == [2, 4]
    folder = tmp_path / "digits-2steps-finetune-demo-first-classes-4-memory-images40-seed0"
    result = json.loads((folder / "result.json").read_text())
    assert result["config"]["classes"] == ["0", "1", "2", "3"]
