"""Tables for the terminal."""

import io
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table
from support.recorded_runs import change_result, write_run

from bic.report import tables
from bic.store.results import Result, read_result


def printed(table: Table) -> list[list[str]]:
    """The words of each line that is not empty."""
    console = Console(width=120, file=io.StringIO())
    console.print(table)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return [line.split() for line in text.splitlines() if line.strip(" ─")]


def result_of(folder: Path, **settings: object) -> Result:
    return read_result(write_run(folder, [2, 2], pictures=0, **settings))


def test_a_row_per_method_and_a_mark_for_upper_bounds(tmp_path: Path) -> None:
    results = [result_of(tmp_path / method, method=method) for method in ("bic", "joint")]
    lines = printed(tables.comparison(results))
    first, last = results[0].top1
    average = f"{(first + last) / 2:.2f}"
    assert ["bic", f"{first:.2f}", f"{last:.2f}", average, f"{last:.2f}"] in lines
    assert ["joint", "*"] in [line[:2] for line in lines]
    assert ["*", "upper", "bound:"] in [line[:3] for line in lines]


def test_a_row_per_step(tmp_path: Path) -> None:
    result = result_of(tmp_path / "a")
    title, _, _, second, caption = printed(tables.steps(result))
    step = result.steps[1]
    old, new = step.top1_per_group
    assert " ".join(title) == "bic on made-up, seed 0"
    assert second == [
        "2",
        "4",
        f"{step.top1:.2f}",
        f"{step.top1_uncorrected:.2f}",
        "–",
        "4.50",
        f"{old:.2f}",
        f"{new:.2f}",
    ]
    assert caption[:4] == ["average", "over", "all", "steps"]


def test_a_step_without_new_classes_has_a_dash(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [2, 2], pictures=0)
    steps = json.loads((folder / "result.json").read_text())["steps"]
    old, _ = steps[1]["top1_per_group"]
    change_result(folder, steps=[steps[0], {**steps[1], "top1_per_group": [old, None]}])
    *_, second, _ = printed(tables.steps(read_result(folder)))
    assert second[-2:] == [f"{old:.2f}", "–"]


def test_an_unfinished_run_says_so(tmp_path: Path) -> None:
    title, *_ = printed(tables.steps(result_of(tmp_path / "a", steps_done=1)))
    assert title[-1] == "(unfinished)"


def test_the_bias_of_corrected_steps(tmp_path: Path) -> None:
    result = result_of(tmp_path / "a")
    *_, row = printed(tables.bias(result))
    step = result.steps[1]
    shares = [step.share_on_new_uncorrected, step.share_on_new, step.true_share_of_new]
    assert row == ["2", "0.900", "-2.000", *(f"{100 * share:.1f}" for share in shares), "20"]
