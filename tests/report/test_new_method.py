"""A new method is shown everywhere as soon as it is registered, with its own look."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from rich.console import Console
from support.recorded_runs import write_run
from support.report_pages import page_data

from bic.learn.methods import METHODS
from bic.report import tables
from bic.report.document_tables import method_rows, protocol, recorded_runs
from bic.report.experiment_figures import curves
from bic.report.page import write_report
from bic.report.plots import accuracy_curves
from bic.store.results import Result, read_result

COLOUR = "#123456"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs of bic and of a new method, which sees old data and gives no probabilities."""
    toy = replace(
        METHODS["distill"],
        name="toy",
        colour=COLOUR,
        marker="h",
        symbol="hexagon",
        sees_old_data="head",
        gives_probabilities=False,
    )
    monkeypatch.setitem(METHODS, "toy", toy)
    for method in ("bic", "toy"):
        write_run(tmp_path / "runs" / method, [2, 2], method=method, held_out_limit=None)
    return tmp_path / "runs"


def results_of(runs: Path) -> list[Result]:
    return [read_result(runs / method) for method in ("bic", "toy")]


def test_it_is_in_the_report(runs: Path) -> None:
    page = write_report([runs]).read_text()
    data = page_data(page)
    (curve,) = [curve for curve in data["protocols"][0]["curves"] if "toy" in curve["label"]]
    assert curve["label"] == "toy (sees old data)"
    assert curve["colour"] == COLOUR
    assert curve["symbol"] == "hexagon"
    (run,) = [run for run in data["runs"] if run["label"].startswith("toy")]
    assert "after" not in run["steps"][0]["calibration"]
    assert page.count('<th scope="row">toy') == 1


def test_it_is_in_the_table_of_the_terminal(runs: Path) -> None:
    console = Console(width=100, file=io.StringIO())
    console.print(tables.comparison(results_of(runs)))
    assert "toy *" in console.file.getvalue()  # type: ignore[attr-defined]


def test_it_is_in_the_plots(runs: Path) -> None:
    results = results_of(runs)
    axes = Figure().add_subplot()
    accuracy_curves(axes, results)
    line = axes.get_lines()[1]
    assert to_hex(line.get_color()) == COLOUR
    assert line.get_marker() == "h"
    assert line.get_label() == "toy (sees old data)"


def test_it_is_in_the_tables_of_the_documents(runs: Path) -> None:
    shared = protocol("made-up", memory=200, held_out=0.1)
    rows = method_rows(recorded_runs(runs), shared, recipe="fast", step_sizes=[2, 2])
    assert [row[0] for row in rows] == ["**bic**", "the same, uncorrected", "toy *"]


def test_it_is_in_the_figures_of_experiments(runs: Path) -> None:
    figures = {"seen": [2, 4], "mean": [90, 80], "spread": [None, None], "paper": []}
    lines = [
        {"name": method, "method": method, "bound": False, **figures} for method in ("bic", "toy")
    ]
    panel = {"title": "made up", "metric": "top1", "lines": lines}
    (axes,) = curves({"panels": [panel], "recipe": None}).axes
    assert to_hex(axes.get_lines()[1].get_color()) == COLOUR
