"""Writes the tables of recorded results into README.md and docs/results.md, between their markers.

    python benchmarks/results.py [--check]

Figures come from results/*/result.json alone, which `bic run` wrote; a folder is named as `bic paper` names its runs.
A table stands between `<!-- results: NAME -->` and `<!-- end -->`, one of the paper's experiments as `paper/NAME`.
--check fails if a page is not up to date.
"""

import json
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from bic.paper import find, gather
from bic.report.paper import sections
from bic.report.published import PUBLISHED
from bic.report.tables import UPPER_BOUNDS

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/results.md", "docs/paper.md")
Result = dict[str, Any]
Row = list[str]

METHODS = ("finetune", "lwf", "icarl", "eeil", "distill", "bic", *UPPER_BOUNDS)

# Of CIFAR-100 with its 2,000 exemplars; runs that differ in one of these belong to other tables.
USUAL = {"dataset": "cifar100", "classes": None, "order_seed": 1993, "class_order": None, "exemplars": "herding"}
USUAL |= {"held_out": 0.1, "memory": {"images": 2000, "bytes": None}}

PAPER_5X20 = {curve.method: curve.accuracies for curve in PUBLISHED if curve.source == "Table 3"}


def load(folder: Path = ROOT / "results") -> list[Result]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*/result.json"))]


def select(results: Iterable[Result], *, recipe: str, sizes: Iterable[int], method: str = "bic") -> list[Result]:
    """All seeds of one run by the usual protocol."""
    found = [
        result
        for result in results
        if result["complete"]
        and result["method"] == method
        and result["config"]["recipe"]["name"] == recipe
        and result["config"]["step_sizes"] == list(sizes)
        and result["config"].items() >= USUAL.items()
    ]
    return sorted(found, key=lambda result: int(result["seed"]))


def minutes(result: Result) -> float:
    """Of everything but opening the data."""
    return sum(sum(step["seconds"].values()) for step in result["steps"]) / 60


def spread(values: list[float]) -> str:
    """Mean, and standard deviation over seeds where there are several."""
    mean = f"{statistics.mean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.2f}"


def row(name: str, runs: list[Result], *, key: str = "top1", timed: bool = True) -> Row:
    """One line of a table: accuracy after each step, its average, minutes, seeds.

    Runs by one thread were made beside others, and their times say nothing.
    """
    steps = [[run["steps"][number][key] for run in runs] for number in range(len(runs[0]["steps"]))]
    average = [statistics.mean(step[key] for step in run["steps"]) for run in runs]
    alone = [minutes(run) for run in runs if run.get("made_with", {}).get("threads", 1) > 1]
    took = f"{statistics.mean(alone):.1f}" if timed and alone else ""
    seeds = ", ".join(str(run["seed"]) for run in runs)
    return [
        name,
        *(f"{statistics.mean(step):.2f}" for step in steps[:-1]),
        spread(steps[-1]),
        spread(average),
        took,
        seeds,
    ]


def table(header: Row, rows: Iterable[Row]) -> Iterator[str]:
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    for each in rows:
        yield "| " + " | ".join(each) + " |"


def steps_header(sizes: Iterable[int], seen: int = 0) -> Row:
    return ["", *(str(seen := seen + size) for size in sizes), "average", "min", "seeds"]


def five_steps(results: list[Result]) -> Iterator[str]:
    """All methods at 5 × 20 in the fast recipe, beside the paper."""
    sizes, rows = [20] * 5, []
    for method in METHODS:
        runs = select(results, recipe="fast", sizes=sizes, method=method)
        name = f"{method} *" if method in UPPER_BOUNDS else f"**{method}**" if method == "bic" else method
        if runs:
            rows.append(row(name, runs))
        if runs and method == "bic":
            rows.append(row("the same, uncorrected", runs, key="top1_uncorrected", timed=False))
    for method, figures in PAPER_5X20.items():
        average = f"{statistics.mean(figures):.2f}"
        rows.append([f"{method}, the paper", *(f"{each:.2f}" for each in figures), average, "", ""])
    return table(steps_header(sizes), rows)


def recipes(results: list[Result]) -> Iterator[str]:
    """bic at 5 × 20 by every recipe that was run."""
    sizes = [20] * 5
    names = {"fast": "`fast`", "best": "`best`", "paper-cifar100": "`paper-cifar100`, 25 epochs"}
    rows = [row(name, runs) for recipe, name in names.items() if (runs := select(results, recipe=recipe, sizes=sizes))]
    figures = PAPER_5X20["bic"]
    rows.append(
        ["the paper, 250 epochs", *(f"{each:.2f}" for each in figures), f"{statistics.mean(figures):.2f}", "", ""]
    )
    return table(steps_header(sizes), rows)


def protocols(results: list[Result]) -> Iterator[str]:
    """bic in other cuts of the same classes."""
    cuts = {
        "2 × 50": [50] * 2,
        "5 × 20": [20] * 5,
        "10 × 10": [10] * 10,
        "20 × 5": [5] * 20,
        "50, then 5 × 10": [50] + [10] * 5,
    }
    rows = []
    for name, sizes in cuts.items():
        for recipe in ("fast", "best"):
            for run in [select(results, recipe=recipe, sizes=sizes)]:
                if run:
                    first, *_, last, average, took, seeds = row("", run)[1:]
                    rows.append([name, f"`{recipe}`", first, last, average, took, seeds])
    return table(["steps", "recipe", "first", "last", "average", "min", "seeds"], rows)


def paper(name: str) -> Iterator[str]:
    """One of the paper's experiments by the fast recipe, as far as it was run."""
    return sections(gather(find(name, "fast"), ROOT / "results", "fast", range(3)), "####")


TABLES: dict[str, Callable[[list[Result]], Iterator[str]]] = {
    "five-steps": five_steps,
    "recipes": recipes,
    "protocols": protocols,
}


def filled(text: str, results: list[Result]) -> str:
    """The page with every table made anew."""

    def fill(match: re.Match[str]) -> str:
        kind, _, experiment = match[1].partition("/")
        lines = "\n\n".join(paper(experiment)) if kind == "paper" else "\n".join(TABLES[kind](results))
        return f"<!-- results: {match[1]} -->\n\n{lines}\n\n<!-- end -->"

    return re.sub(r"<!-- results: (\S+) -->.*?<!-- end -->", fill, text, flags=re.DOTALL)


def main() -> None:
    results = load()
    for name in PAGES:
        page = ROOT / name
        before = page.read_text()
        after = filled(before, results)
        if "--check" in sys.argv and after != before:
            sys.exit(f"{name} is not up to date; run python benchmarks/results.py")
        page.write_text(after)


if __name__ == "__main__":
    main()
