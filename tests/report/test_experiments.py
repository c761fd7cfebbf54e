"""Tables of the paper's experiments, for the terminal and in Markdown."""

import io
from typing import Any

import pytest
from rich.console import Console

from bic.lab.experiments import EXPERIMENTS, Experiment, Line, experiment
from bic.report.experiment_figures import curves
from bic.report.experiments import degradation, markdown, overview, rows, tables

NUM_CLASSES = {"imagenet1000": 1000, "celeb10000": 10_000}


def content_of(declared: Experiment, std: float | None) -> dict[str, Any]:
    """The content that an experiment would have if all accuracies were 66.66."""
    return {
        "name": declared.name,
        "title": declared.title,
        "claim": declared.claim,
        "note": declared.note,
        "recipe": "fast",
        "degradation": declared.degradation,
        "panels": [
            {
                "title": panel.title,
                "metric": panel.metric,
                "lines": [line_content(line, std) for line in panel.lines],
            }
            for panel in declared.panels
        ],
    }


def line_content(line: Line, std: float | None) -> dict[str, Any]:
    num_steps = line.settings["steps"]
    step_size = NUM_CLASSES.get(line.settings["dataset"], 100) // num_steps
    return {
        "name": line.name,
        "method": line.method,
        "bound": line.is_upper_bound,
        "seen": [step_size * number for number in range(1, num_steps + 1)],
        "mean": [66.66] * num_steps,
        "spread": [std] * num_steps,
        "seeds": [0],
        "paper": line.paper,
    }


@pytest.mark.parametrize("std", [None, 0.27])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_number_is_cut_in_a_terminal_of_80_columns(name: str, std: float | None) -> None:
    declared = experiment(name, "fast")
    console = Console(width=80, file=io.StringIO())
    for table in tables(content_of(declared, std), console.width):
        console.print(table)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in printed
    last = "66.66" if std is None else "66.66 ± 0.27"
    num_lines = sum(last in line for line in printed.splitlines())
    assert num_lines == len(declared.lines())


def test_the_papers_row_ends_with_the_difference() -> None:
    panel = content_of(EXPERIMENTS["table5"], std=0.5)["panels"][0]
    (ours, paper, *_) = rows(panel)
    assert ours == ("random", ["66.66 ± 0.50"] * 5 + [""])
    assert paper == ("  the paper", ["85.20", "74.59", "66.76", "60.14", "55.55", "+11.11"])


def test_joint_training_is_shown_at_the_last_step() -> None:
    panel = content_of(EXPERIMENTS["fig8"], std=None)["panels"][3]
    *_, joint = rows(panel)
    assert joint == ("joint *", ["", "66.66"])


def test_degradation_is_the_gap_to_joint_training() -> None:
    lines = [{"method": "bic", "mean": [90.0, 61.0]}, {"method": "joint", "mean": [72.5]}]
    content = {"panels": [{"lines": lines}], "degradation": {"bic": (10.5,)}}
    assert list(degradation(content)) == [("bic", [11.5], (10.5,))]


def test_methods_that_were_not_run_have_no_degradation() -> None:
    lines = [{"method": "bic", "mean": [90.0, 61.0]}, {"method": "joint", "mean": [72.5]}]
    content = {"panels": [{"lines": lines}], "degradation": {"eeil": (15.1,)}}
    assert list(degradation(content)) == []


def test_the_markdown_has_the_claim_and_every_step() -> None:
    text = markdown(content_of(EXPERIMENTS["table3"], std=None))
    assert text.startswith("# table3: Ablation of the losses and the correction\n\nThe paper: ")
    assert "|  | 20 | 40 | 60 | 80 | 100 | ours − paper |" in text
    assert r"| fc-retrain \* | 66.66 | 66.66 | 66.66 | 66.66 | 66.66 |  |" in text
    assert "| the paper | 84.39 | 76.15 | 69.51 | 64.03 | 60.93 | +5.73 |" in text
    assert r"\* sees old data; ours: fast recipe; number of seeds: 1." in text


def test_every_panel_is_drawn() -> None:
    figure = curves(content_of(EXPERIMENTS["fig8"], std=0.5))
    assert len(figure.axes) == 4


def test_variants_of_one_method_are_drawn_in_different_colours() -> None:
    (axes,) = curves(content_of(EXPERIMENTS["fig5"], std=None)).axes
    ours = [line for line in axes.get_lines() if "paper" not in str(line.get_label())]
    assert len({line.get_color() for line in ours}) == len(ours) == 2


def test_the_overview_shows_the_runs_and_their_time() -> None:
    console = Console(width=100, file=io.StringIO())
    experiments = [(EXPERIMENTS["table3"], 4, 1, 75.0), (EXPERIMENTS["table5"], 2, 2, 0.0)]
    console.print(overview(experiments, "fast", seeds=2))
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert "1 min 15 s" in printed
    assert "with the fast recipe, 2 seeds" in " ".join(printed.split())
