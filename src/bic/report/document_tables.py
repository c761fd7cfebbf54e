"""Markdown tables of recorded runs for the documents. benchmarks/results.py writes them there."""

import json
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from bic.errors import UserError
from bic.lab.published import ORDER_SEED, PUBLISHED
from bic.learn.methods import METHODS
from bic.learn.methods.method import Method
from bic.report.runs import Run, find, load
from bic.store.results import StepResult

# A table stands between `<!-- results: NAME -->` and `<!-- end -->`.
MARKED = re.compile(r"<!-- results: (\S+) -->.*?<!-- end -->", flags=re.DOTALL)
Row = list[str]
Settings = Mapping[str, Any]


def documents(root: Path) -> list[Path]:
    """README.md and all documents below docs/ that have a marked table."""
    pages = [root / "README.md", *sorted((root / "docs").glob("**/*.md"))]
    return [page for page in pages if MARKED.search(page.read_text(encoding="utf-8"))]


def marked_tables(text: str) -> list[str]:
    """The names of the tables in a document."""
    return [match[1] for match in MARKED.finditer(text)]


def filled(text: str, table: Callable[[str], str]) -> str:
    """The document with every marked table replaced by `table(name)`."""

    def fill(match: re.Match[str]) -> str:
        return f"<!-- results: {match[1]} -->\n\n{table(match[1])}\n\n<!-- end -->"

    return MARKED.sub(fill, text)


def recorded_runs(folder: Path) -> list[Run]:
    """All runs in a folder. Raises UserError if one of them is damaged."""
    return [load(path) for path in find([folder])]


def protocol(dataset: str, *, memory: int, held_out: float) -> Settings:
    """The settings that the runs of one table share."""
    return {
        "dataset": dataset,
        "classes": None,
        "order_seed": ORDER_SEED,
        "class_order": None,
        "exemplars": "herding",
        "held_out": held_out,
        "memory": {"images": memory, "bytes": None},
    }


def select(
    runs: Iterable[Run],
    shared: Settings,
    *,
    recipe: str,
    step_sizes: Sequence[int],
    method: str = "bic",
) -> list[Run]:
    """The complete runs of one row, ordered by seed.

    Raises UserError if they differ in more than their seed, or if a seed is there twice.
    """
    wanted = {**shared, "method": method, "step_sizes": list(step_sizes)}
    chosen = [
        run
        for run in runs
        if run.result.complete
        and run.plan["recipe"]["name"] == recipe
        and all(run.plan[name] == value for name, value in wanted.items())
    ]
    seeds = {run.result.seed for run in chosen}
    if len({training_of(run) for run in chosen}) > 1 or len(seeds) < len(chosen):
        raise UserError(
            f"runs of {method} with the {recipe} recipe differ in more than their seed",
            "keep the results of one of them",
        )
    return sorted(chosen, key=lambda run: run.result.seed)


def training_of(run: Run) -> str:
    """The recipe and the data of a run, for comparing."""
    settings = [run.plan["recipe"], run.plan["method_settings"], run.plan["fingerprint"]]
    return json.dumps(settings, sort_keys=True)


def row(
    name: str,
    runs: Sequence[Run],
    *,
    value: Callable[[StepResult], float] = lambda step: step.top1,
    timed: bool = True,
) -> Row:
    """One row: name, accuracy after each step, average, minutes and seeds.

    A run with one thread shared the machine with others, so its time is left out.
    """
    per_run = [[value(step) for step in run.result.steps] for run in runs]
    *earlier, last = zip(*per_run, strict=True)
    averages = [statistics.mean(values) for values in per_run]
    minutes = [
        sum(run.seconds.values()) / 60
        for run in runs
        if timed and run.result.made_with.get("threads", 1) > 1
    ]
    return [
        name,
        *(f"{statistics.mean(values):.2f}" for values in earlier),
        _mean_and_std(last),
        _mean_and_std(averages),
        f"{statistics.mean(minutes):.1f}" if minutes else "",
        ", ".join(str(run.result.seed) for run in runs),
    ]


def _mean_and_std(values: Sequence[float]) -> str:
    mean = f"{statistics.mean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.2f}"


def method_rows(
    runs: Sequence[Run], shared: Settings, *, recipe: str, step_sizes: Sequence[int]
) -> list[Row]:
    """A row for every method that was run; for one that corrects, also a row without correction."""
    rows = []
    for method, limit in _methods_and_limits(runs):
        some = [run for run in runs if _limit(run, method) == limit]
        chosen = select(some, shared, recipe=recipe, step_sizes=step_sizes, method=method.name)
        if not chosen:
            continue
        name = f"**{method.name}**" if method.corrects else method.name
        if limit is not None:
            name += f", at most {limit:,} held out"
        mark = " *" if method.is_upper_bound else ""
        rows.append(row(name + mark, chosen))
        if method.corrects:
            rows.append(
                row(
                    "the same, uncorrected",
                    chosen,
                    value=lambda step: step.top1_uncorrected,
                    timed=False,
                )
            )
    return rows


def _methods_and_limits(runs: Sequence[Run]) -> list[tuple[Method, int | None]]:
    """All methods, each with the limits on held-out images that it was run with; none first."""
    pairs = []
    for method in METHODS.values():
        limits = {_limit(run, method) for run in runs if run.plan["method"] == method.name}
        pairs += [(method, limit) for limit in sorted(limits, key=lambda limit: limit or 0)]
    return pairs


def _limit(run: Run, method: Method) -> int | None:
    """The limit on held-out images, if the method holds any out."""
    limit: int | None = run.plan["held_out_limit"]
    return limit if method.corrects else None


def published(source: str) -> dict[str, tuple[float, ...]]:
    """The accuracies in one of the paper's tables, by method."""
    return {curve.method: curve.accuracies for curve in PUBLISHED if curve.source == source}


def papers_row(name: str, accuracies: Sequence[float]) -> Row:
    """A row of the paper's accuracies, which have neither time nor seeds."""
    cells = [f"{accuracy:.2f}" for accuracy in accuracies]
    return [name, *cells, f"{statistics.mean(accuracies):.2f}", "", ""]


def steps_header(step_sizes: Iterable[int]) -> Row:
    """The titles of `row`'s columns; a step is named by the number of classes seen."""
    return ["", *map(str, accumulate(step_sizes)), "average", "minutes", "seeds"]


def markdown_table(header: Row, rows: Iterable[Row]) -> str:
    lines = [header, *rows]
    text = ["| " + " | ".join(cells) + " |" for cells in lines]
    return "\n".join([text[0], "|" + "---|" * len(header), *text[1:]])
