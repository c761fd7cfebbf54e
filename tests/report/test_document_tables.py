"""The tables in the documents: made from recorded runs, and up to date."""

import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.recorded_runs import RECIPE, change_result, write_run

from bic.errors import UserError
from bic.report.document_tables import documents, filled, protocol, recorded_runs, row, select
from bic.report.runs import Run, load

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "results.py"
SHARED = protocol("made-up", memory=200, held_out=0.1)


def run_script(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def recorded(folder: Path, *accuracies: float, threads: int = 2, **settings: Any) -> Run:
    """A run with these accuracies, one minute per step; half as accurate without correction."""
    write_run(folder, [20] * len(accuracies), per_class=1, pictures=0, **settings)
    steps = [
        {
            **step.model_dump(),
            "top1": accuracy,
            "top1_uncorrected": accuracy / 2,
            "seconds": {"stage1": 50.0, "memory": 10.0},
        }
        for step, accuracy in zip(load(folder).result.steps, accuracies, strict=True)
    ]
    change_result(folder, steps=steps, made_with={"threads": threads})
    return load(folder)


def test_the_documents_show_what_was_recorded() -> None:
    done = run_script("--check")
    assert done.returncode == 0, done.stderr


def test_a_document_that_is_out_of_date_is_named_and_can_be_updated(
    tmp_path: Path, results_folder: Path
) -> None:
    shutil.copytree(results_folder, tmp_path / "results")
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    (tmp_path / "README.md").write_text("No table.\n")
    page = tmp_path / "docs" / "deep" / "page.md"
    page.write_text("Before.\n<!-- results: recipes -->\nold\n<!-- end -->\nAfter.\n")
    done = run_script("--check", "--root", tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("out of date: docs/deep/page.md; run ")
    assert run_script("--root", tmp_path).returncode == 0
    text = page.read_text()
    assert text.startswith("Before.\n<!-- results: recipes -->\n\n| ")
    assert text.endswith(" |\n\n<!-- end -->\nAfter.\n")
    assert run_script("--check", "--root", tmp_path).returncode == 0


def test_an_unknown_table_is_refused(tmp_path: Path, results_folder: Path) -> None:
    run = "cifar100-5steps-bic-fast-seed0"
    shutil.copytree(results_folder / run, tmp_path / "results" / run)
    (tmp_path / "README.md").write_text("<!-- results: recipe -->\n<!-- end -->\n")
    done = run_script("--check", "--root", tmp_path)
    assert done.returncode == 1
    assert "unknown table 'recipe'; did you mean 'recipes'" in done.stderr


def test_documents_with_tables_are_found(tmp_path: Path) -> None:
    (tmp_path / "docs" / "a").mkdir(parents=True)
    marked = "<!-- results: x -->\n<!-- end -->"
    (tmp_path / "README.md").write_text(marked)
    (tmp_path / "docs" / "a" / "b.md").write_text(marked)
    (tmp_path / "docs" / "c.md").write_text("no table")
    pages = [page.relative_to(tmp_path) for page in documents(tmp_path)]
    assert pages == [Path("README.md"), Path("docs/a/b.md")]


def test_only_what_is_between_the_markers_changes() -> None:
    text = "1\n<!-- results: a -->\nold\n<!-- end -->\n2\n<!-- results: b -->\n<!-- end -->\n3"
    first = "<!-- results: a -->\n\nA\n\n<!-- end -->"
    second = "<!-- results: b -->\n\nB\n\n<!-- end -->"
    assert filled(text, str.upper) == f"1\n{first}\n2\n{second}\n3"


def test_rows_are_means_over_seeds_with_their_standard_deviation(tmp_path: Path) -> None:
    runs = [recorded(tmp_path / "0", 80, 70, 60), recorded(tmp_path / "2", 82, 73, 63, seed=2)]
    name, first, second, last, average, minutes, seeds = row("bic", runs)
    assert (name, first, second, minutes, seeds) == ("bic", "81.00", "71.50", "3.0", "0, 2")
    assert last == f"61.50 ± {statistics.stdev([60, 63]):.2f}"
    assert average == f"71.33 ± {statistics.stdev([70, 218 / 3]):.2f}"


def test_a_row_of_one_seed_without_correction(tmp_path: Path) -> None:
    run = recorded(tmp_path / "0", 80, 70, 60)
    cells = row("", [run], value=lambda step: step.top1_uncorrected)
    assert cells[1:5] == ["40.00", "35.00", "30.00", "35.00"]


def test_times_of_runs_that_shared_the_machine_are_left_out(tmp_path: Path) -> None:
    run = recorded(tmp_path / "0", 80, 70, threads=1)
    assert row("bic", [run])[-2:] == ["", "0"]


def test_only_complete_runs_of_the_same_protocol_are_selected(tmp_path: Path) -> None:
    recorded(tmp_path / "1", 80, 70, seed=1)
    recorded(tmp_path / "0", 81, 71)
    recorded(tmp_path / "other-method", 9, 9, method="lwf")
    recorded(tmp_path / "other-share", 9, 9, seed=3, held_out=0.2)
    recorded(tmp_path / "other-memory", 9, 9, seed=4, memory=400)
    recorded(tmp_path / "other-steps", 80, 70, 60)
    unfinished = write_run(tmp_path / "unfinished", [20, 20], seed=2, steps_done=1)
    assert not load(unfinished).result.complete
    chosen = select(recorded_runs(tmp_path), SHARED, recipe="fast", step_sizes=[20, 20])
    assert [run.result.seed for run in chosen] == [0, 1]


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 0},
        {"seed": 1, "recipe": RECIPE.model_copy(update={"epochs": 20})},
        {"seed": 1, "fingerprint": "other"},
        {"seed": 1, "method_settings": {"previous_share": 0.5}},
    ],
)
def test_runs_that_differ_in_more_than_their_seed_are_refused(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    runs = [recorded(tmp_path / "0", 80, 70), recorded(tmp_path / "1", 81, 71, **changes)]
    with pytest.raises(UserError, match="differ in more than their seed"):
        select(runs, SHARED, recipe="fast", step_sizes=[20, 20])


def test_recorded_runs_are_complete_and_well_named(results_folder: Path) -> None:
    for run in recorded_runs(results_folder):
        assert run.result.complete, run.path
        recipe = run.plan["recipe"]["name"]
        name = run.path.parent.name
        pattern = f".*-{run.result.method}-{recipe}(-.*)?-seed{run.result.seed}"
        assert re.fullmatch(pattern, name), name
        assert len(run.result.steps) == len(run.plan["step_sizes"])
