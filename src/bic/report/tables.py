"""Tables of results for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

UPPER_BOUNDS = ("fc-retrain", "joint")  # they see old data, and every table says so

Result = Mapping[str, Any]


def number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _table(title: str, first: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    table.add_column(first)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def comparison(results: Sequence[Result]) -> Table:
    """Accuracy after each step, a row per method."""
    seen = [str(step["seen"]) for step in results[0]["steps"]]
    table = _table(
        "Top-1 accuracy (%) on all classes seen, by number of classes",
        "method",
        [*seen, "average", "without first"],
    )
    for result in results:
        note = " (sees old data)" if result["method"] in UPPER_BOUNDS else ""
        table.add_row(
            result["method"] + note,
            *(number(step["top1"]) for step in result["steps"]),
            number(result["average_top1"]),
            number(result["average_incremental_top1"]),
            style="bold" if result["method"] == "bic" else None,
        )
    return table


def steps(result: Result) -> Table:
    """One run, a row per step."""
    table = _table(
        f"{result['method']} on {result['dataset']}, seed {result['seed']}"
        + ("" if result["complete"] else " (unfinished)"),
        "step",
        ["classes", "top-1", "uncorrected", "top-5", "forgetting", "old groups", "newest group"],
    )
    for step in result["steps"]:
        *old, new = step["top1_per_group"]
        table.add_row(
            *(str(step["step"]), str(step["seen"])),
            *(number(step[name]) for name in ("top1", "top1_uncorrected", "top5", "forgetting")),
            number(sum(old) / len(old) if old else None),
            number(new),
        )
    return table


def bias(result: Result) -> Table:
    """The bias towards new classes before and after correction, a row per corrected step."""
    table = _table(
        "The bias: share of test images put into the newest classes (%)",
        "step",
        ["α", "β", "uncorrected", "corrected", "true share", "held-out images"],
    )
    for step in result["steps"]:
        if step["alpha"] is not None:
            table.add_row(
                str(step["step"]),
                *(number(step[name], 3) for name in ("alpha", "beta")),
                *(
                    number(100 * step[name], 1)
                    for name in ("share_on_new_uncorrected", "share_on_new", "true_share_of_new")
                ),
                str(step["num_held_out"]),
            )
    return table
