"""Tables of results for the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

UPPER_BOUNDS = ("fc-retrain", "joint")  # they see old data, and every table says so

Result = Mapping[str, Any]


def number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def new_table(title: str, first: str, columns: Sequence[str]) -> Table:
    table = Table(
        title=Text(title), box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", caption_justify="left"
    )
    table.add_column(first, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def comparison(results: Sequence[Result]) -> Table:
    """Accuracy after each step, a row per method."""
    seen = [str(step["seen"]) for step in results[0]["steps"]]
    title = "Top-1 accuracy (%) on all classes seen, by number of classes"
    table = new_table(title, "method", [*seen, "average", "without first"])
    for result in results:
        averages = result["average_top1"], result["average_incremental_top1"]
        cells = [*(step["top1"] for step in result["steps"]), *averages]
        note = " *" if result["method"] in UPPER_BOUNDS else ""
        style = "bold" if result["method"] == "bic" else None
        table.add_row(result["method"] + note, *map(number, cells), style=style)
    table.caption = "* upper bound: sees old data, which no other method may"
    return table


def steps(result: Result) -> Table:
    """One run, a row per step, and its averages."""
    title = f"{result['method']} on {result['dataset']}, seed {result['seed']}"
    columns = ["classes", "top-1", "raw", "top-5", "forgetting", "old", "newest"]
    table = new_table(title + ("" if result["complete"] else " (unfinished)"), "step", columns)
    for step in result["steps"]:
        *old, new = step["top1_per_group"]
        cells = [step["top1"], step["top1_uncorrected"], step["top5"], step["forgetting"]]
        cells += [sum(old) / len(old) if old else None, new]
        table.add_row(str(step["step"]), str(step["seen"]), *map(number, cells))
    averages = result["average_top1"], result["average_incremental_top1"]
    table.caption = "average over all steps {}, without the first {}".format(*map(number, averages))
    return table


def bias(result: Result) -> Table:
    """The bias towards new classes before and after correction, a row per corrected step."""
    columns = ["α", "β", "uncorrected", "corrected", "true share", "held-out images"]
    table = new_table("The bias: share of test images put into the newest classes (%)", "step", columns)
    for step in result["steps"]:
        if step["alpha"] is not None:
            pair = number(step["alpha"], 3), number(step["beta"], 3)
            shares = (step[name] for name in ("share_on_new_uncorrected", "share_on_new", "true_share_of_new"))
            cells = (number(100 * share, 1) for share in shares)
            table.add_row(str(step["step"]), *pair, *cells, str(step["num_held_out"]))
    return table
