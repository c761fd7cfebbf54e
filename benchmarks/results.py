"""Writes the tables of recorded results into the README and the documents, between their markers.

    python benchmarks/results.py [--check]

Figures come from results/*/result.json alone, which `bic run` wrote; a folder is named as `bic paper` names its runs.
A table stands between `<!-- results: NAME -->` and `<!-- end -->`, one of the paper's experiments as `paper/NAME`.
The curves of some experiments are drawn into docs/. --check writes nothing, and fails if a page is not up to date.
"""

import json
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from bic.config import Recipe
from bic.paper import find, gather
from bic.report.paper import draw, sections
from bic.report.published import PUBLISHED
from bic.report.tables import UPPER_BOUNDS

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/results.md", "docs/characters.md", "docs/paper.md")
DRAWN = ("fig1", "fig8")
Result = dict[str, Any]
Row = list[str]

RECIPES = ("fast", "best", "paper-cifar100")
METHODS = ("finetune", "lwf", "icarl", "eeil", "distill", "bic", *UPPER_BOUNDS)


def protocol(dataset: str, *, memory: int, held_out: float) -> dict[str, Any]:
    """What the runs of a table share; runs that differ in one of these belong to other tables."""
    usual = {"dataset": dataset, "classes": None, "order_seed": 1993, "class_order": None, "exemplars": "herding"}
    return {**usual, "held_out": held_out, "memory": {"images": memory, "bytes": None}}


CIFAR = protocol("cifar100", memory=2000, held_out=0.1)
GLYPHS = protocol("glyphs10000", memory=50_000, held_out=0.2)
OMNIGLOT = protocol("omniglot", memory=5000, held_out=0.2)


def published(table: str) -> dict[str, tuple[float, ...]]:
    return {curve.method: curve.accuracies for curve in PUBLISHED if curve.source == table}


def load(folder: Path = ROOT / "results") -> list[Result]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*/result.json"))]


def settings(result: Result) -> list[Any]:
    """The recipe and the data of a run, as runs in one row must share them."""
    unset = {name: field.default for name, field in Recipe.model_fields.items() if not field.is_required()}
    return [unset | result["config"]["recipe"], result["config"].get("fingerprint")]


def select(
    results: Iterable[Result], *, recipe: str, sizes: Iterable[int], method: str = "bic", usual: dict[str, Any] = CIFAR
) -> list[Result]:
    """All seeds of one run by a protocol."""
    found = [
        result
        for result in results
        if result["complete"]
        and result["method"] == method
        and result["config"]["recipe"]["name"] == recipe
        and result["config"]["step_sizes"] == list(sizes)
        and result["config"].items() >= usual.items()
    ]
    alike = {json.dumps(settings(result), sort_keys=True) for result in found}
    if len(alike) > 1 or len({result["seed"] for result in found}) < len(found):
        sys.exit(f"{method} by {recipe}: runs of one row must differ in their seed, and in nothing else")
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
    return ["", *(str(seen := seen + size) for size in sizes), "average", "minutes", "seeds"]


def methods(results: list[Result], *, recipe: str, sizes: list[int], usual: dict[str, Any] = CIFAR) -> list[Row]:
    """A line for every method that was run."""
    rows = []
    for method in METHODS:
        runs = select(results, recipe=recipe, sizes=sizes, method=method, usual=usual)
        name = f"{method} *" if method in UPPER_BOUNDS else f"**{method}**" if method == "bic" else method
        if runs:
            rows.append(row(name, runs))
        if runs and method == "bic":
            rows.append(row("the same, uncorrected", runs, key="top1_uncorrected", timed=False))
    return rows


def theirs(name: str, figures: tuple[float, ...]) -> Row:
    return [name, *(f"{each:.2f}" for each in figures), f"{statistics.mean(figures):.2f}", "", ""]


def five_steps(results: list[Result]) -> Iterator[str]:
    """All methods at 5 × 20 in the fast recipe, beside the paper."""
    sizes = [20] * 5
    rows = methods(results, recipe="fast", sizes=sizes)
    rows += [theirs(f"{method}, the paper", figures) for method, figures in published("Table 3").items()]
    return table(steps_header(sizes), rows)


def glyphs(results: list[Result]) -> Iterator[str]:
    """10,000 characters in ten steps, beside the paper's 10,000 faces."""
    sizes = [1000] * 10
    rows = methods(results, recipe="characters", sizes=sizes, usual=GLYPHS)
    rows += [theirs(f"{method}, the paper, faces", figures) for method, figures in published("Table 2").items()]
    return table(steps_header(sizes), rows)


def omniglot(results: list[Result]) -> Iterator[str]:
    """1,623 handwritten characters in ten steps, all methods."""
    sizes = [165] + [162] * 9
    return table(steps_header(sizes), methods(results, recipe="characters", sizes=sizes, usual=OMNIGLOT))


def length(recipe: str, runs: list[Result]) -> str:
    """A recipe's name and epochs, for people."""
    epochs, first = (runs[0]["config"]["recipe"][key] for key in ("epochs", "first_epochs"))
    return f"`{recipe}`, {first} epochs, then {epochs}" if first else f"`{recipe}`, {epochs} epochs"


def recipes(results: list[Result]) -> Iterator[str]:
    """bic at 5 × 20 by every recipe that was run."""
    sizes = [20] * 5
    rows = []
    for recipe in RECIPES:
        if runs := select(results, recipe=recipe, sizes=sizes):
            rows.append(row(length(recipe, runs), runs))
    rows.append(theirs("the paper, 250 epochs", published("Table 3")["bic"]))
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
            if runs := select(results, recipe=recipe, sizes=sizes):
                first, *_, last, average, took, seeds = row("", runs)[1:]
                rows.append([name, f"`{recipe}`", first, last, average, took, seeds])
    return table(["steps", "recipe", "first", "last", "average", "minutes", "seeds"], rows)


# Others' figures by the same protocol, as far as they publish them: last step and average at 5 × 20, then at 10 × 10.
FIELD = {
    "BiC in PyCIL": ("56.5", "", "51", ""),
    "BiC in LibContinual": ("57.8", "70.2", "", ""),
    "iCaRL in PyCIL": ("54.2", "", "49.4", ""),
    "WA in PyCIL": ("57.9", "", "52.2", ""),
    "DER in PyCIL": ("62.4", "", "58.6", ""),
    "FOSTER in PyCIL, average by its authors": ("64.5", "72.54", "61.5", "72.90"),
}


def field(results: list[Result]) -> Iterator[str]:
    """bic by every recipe that was run at 5 × 20, beside others' published figures."""
    rows = []
    for recipe in RECIPES:
        if runs := select(results, recipe=recipe, sizes=[20] * 5):
            ten_steps = select(results, recipe=recipe, sizes=[10] * 10)
            if ten_steps and settings(ten_steps[0]) != settings(runs[0]):
                sys.exit(f"{recipe}: the runs of ten steps and of five must differ in their steps, and in nothing else")
            *_, last, average, took, _ = row("", runs)
            in_ten = row("", ten_steps)[-4:-2] if ten_steps else ["", ""]
            rows.append([f"**bic, {length(recipe, runs)}**", last, average, *in_ten, took])
    rows.append(["BiC, the paper, 250 epochs", *theirs("", published("Table 3")["bic"])[-4:-2], "", "", ""])
    rows += [[name, *figures, ""] for name, figures in FIELD.items()]
    return table(["", "5 × 20: last", "average", "10 × 10: last", "average", "minutes, 5 × 20"], rows)


def paper(name: str) -> Result:
    """One of the paper's experiments by the fast recipe, as far as it was run."""
    return gather(find(name, "fast"), ROOT / "results", "fast", range(3))


TABLES: dict[str, Callable[[list[Result]], Iterator[str]]] = {
    "five-steps": five_steps,
    "recipes": recipes,
    "field": field,
    "protocols": protocols,
    "glyphs": glyphs,
    "omniglot": omniglot,
}


def filled(text: str, results: list[Result]) -> str:
    """The page with every table made anew."""

    def fill(match: re.Match[str]) -> str:
        kind, _, experiment = match[1].partition("/")
        parts = sections(paper(experiment), "####") if kind == "paper" else ["\n".join(TABLES[kind](results))]
        lines = "\n\n".join(parts)
        return f"<!-- results: {match[1]} -->\n\n{lines}\n\n<!-- end -->"

    return re.sub(r"<!-- results: (\S+) -->.*?<!-- end -->", fill, text, flags=re.DOTALL)


def main() -> None:
    results = load()
    for name in PAGES:
        page = ROOT / name
        before = page.read_text()
        after = filled(before, results)
        if after == before:
            continue
        if "--check" in sys.argv:
            sys.exit(f"{name} is not up to date; run python benchmarks/results.py")
        page.write_text(after)
    if "--check" not in sys.argv:
        for name in DRAWN:
            draw(paper(name), ROOT / "docs", ROOT / "results", ["png"])


if __name__ == "__main__":
    main()
