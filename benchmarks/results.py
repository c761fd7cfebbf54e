"""Write the tables of recorded results into README.md and the documents below docs/.

    python benchmarks/results.py [--check]

The numbers come from results/*/result.json, which `bic run` wrote; `bic paper` names the folders. A
table stands between `<!-- results: NAME -->` and `<!-- end -->` in any document. NAME is one of
TABLES below, or paper/NAME for one of the paper's experiments. If a document with such an
experiment shows the picture NAME.png, that is drawn too. With --check nothing is written, and the
exit code is 1 if a document is out of date.
"""

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bic.errors import UserError, unknown
from bic.lab.experiment_runs import find_experiment, gather
from bic.report.document_tables import (
    Row,
    documents,
    filled,
    markdown_table,
    marked_tables,
    method_rows,
    papers_row,
    protocol,
    published,
    recorded_runs,
    row,
    select,
    steps_header,
    training_of,
)
from bic.report.experiment_figures import draw
from bic.report.experiments import sections
from bic.report.runs import Run

ROOT = Path(__file__).parents[1]
RECIPES = ("fast", "best", "paper-cifar100")
NOT_TIMED = ("paper-cifar100",)  # made in parts, with different numbers of threads
CIFAR = protocol("cifar100", memory=2000, held_out=0.1)
GLYPHS = protocol("glyphs10000", memory=50_000, held_out=0.2)
OMNIGLOT = protocol("omniglot", memory=5000, held_out=0.2)
FIVE_STEPS = [20] * 5
TEN_STEPS = [10] * 10

# Published results of other implementations with the same protocol, where they exist: last step and
# average for 5 × 20, then for 10 × 10.
FIELD = {
    "BiC in PyCIL": ("56.5", "", "51", ""),
    "BiC in LibContinual": ("57.8", "70.2", "", ""),
    "iCaRL in PyCIL": ("54.2", "", "49.4", ""),
    "WA in PyCIL": ("57.9", "", "52.2", ""),
    "DER in PyCIL": ("62.4", "", "58.6", ""),
    "FOSTER in PyCIL, average by its authors": ("64.5", "72.54", "61.5", "72.90"),
    "BiC with a ResNet-18, by TCIL's authors": ("62.10", "73.10", "53.54", "68.80"),
    "DyTox+": ("", "", "62.34", "74.10"),
    "DER, one ResNet-18 per step": ("68.32", "76.80", "65.22", "75.36"),
    "TCIL, one ResNet-18 per step": ("69.58", "77.72", "66.41", "77.30"),
}
NOT_IN_README = (
    "iCaRL in PyCIL",
    "WA in PyCIL",
    "DER in PyCIL",
    "BiC with a ResNet-18, by TCIL's authors",
)


def five_steps(runs: Sequence[Run]) -> str:
    """All methods with the fast recipe in five steps, and the paper's results."""
    rows = method_rows(runs, CIFAR, recipe="fast", step_sizes=FIVE_STEPS)
    for method, accuracies in published("Table 3").items():
        rows.append(papers_row(f"{method}, the paper", accuracies))
    return markdown_table(steps_header(FIVE_STEPS), rows)


def glyphs(runs: Sequence[Run]) -> str:
    """10,000 characters in ten steps, and the paper's results for 10,000 faces."""
    step_sizes = [1000] * 10
    rows = method_rows(runs, GLYPHS, recipe="characters", step_sizes=step_sizes)
    for method, accuracies in published("Table 2").items():
        rows.append(papers_row(f"{method}, the paper, faces", accuracies))
    return markdown_table(steps_header(step_sizes), rows)


def omniglot(runs: Sequence[Run]) -> str:
    """All methods on 1,623 handwritten characters in ten steps."""
    step_sizes = [165] + [162] * 9
    rows = method_rows(runs, OMNIGLOT, recipe="characters", step_sizes=step_sizes)
    return markdown_table(steps_header(step_sizes), rows)


def with_epochs(recipe: str, runs: Sequence[Run]) -> str:
    """A recipe's name and its epochs."""
    epochs = runs[0].plan["recipe"]["epochs"]
    first_epochs = runs[0].plan["recipe"]["first_epochs"]
    if first_epochs:
        return f"`{recipe}`, {first_epochs} epochs, then {epochs}"
    return f"`{recipe}`, {epochs} epochs"


def recipes(runs: Sequence[Run]) -> str:
    """bic in five steps with every recipe that was run."""
    rows: list[Row] = []
    for recipe in RECIPES:
        chosen = select(runs, CIFAR, recipe=recipe, step_sizes=FIVE_STEPS)
        if chosen:
            timed = recipe not in NOT_TIMED
            rows.append(row(with_epochs(recipe, chosen), chosen, timed=timed))
    rows.append(papers_row("the paper, 250 epochs", published("Table 3")["bic"]))
    return markdown_table(steps_header(FIVE_STEPS), rows)


def protocols(runs: Sequence[Run]) -> str:
    """bic on the same classes in other steps."""
    all_step_sizes = {
        "2 × 50": [50] * 2,
        "5 × 20": FIVE_STEPS,
        "10 × 10": TEN_STEPS,
        "20 × 5": [5] * 20,
        "50, then 5 × 10": [50] + [10] * 5,
    }
    rows: list[Row] = []
    for name, step_sizes in all_step_sizes.items():
        for recipe in ("fast", "best"):
            chosen = select(runs, CIFAR, recipe=recipe, step_sizes=step_sizes)
            if chosen:
                _, first, *_, last, average, minutes, seeds = row("", chosen)
                rows.append([name, f"`{recipe}`", first, last, average, minutes, seeds])
    header = ["steps", "recipe", "first", "last", "average", "minutes", "seeds"]
    return markdown_table(header, rows)


def field(runs: Sequence[Run], *, left_out: Sequence[str] = ()) -> str:
    """bic with every recipe that was run, and the results that others have published."""
    rows: list[Row] = []
    for recipe in RECIPES:
        in_five = select(runs, CIFAR, recipe=recipe, step_sizes=FIVE_STEPS)
        in_ten = select(runs, CIFAR, recipe=recipe, step_sizes=TEN_STEPS)
        if not in_five:
            continue
        if in_ten and training_of(in_ten[0]) != training_of(in_five[0]):
            raise UserError(
                f"runs with the {recipe} recipe in five and in ten steps differ in more than steps",
                "run one of them again",
            )
        *_, last, average, minutes, _ = row("", in_five, timed=recipe not in NOT_TIMED)
        ten_last_and_average = row("", in_ten)[-4:-2] if in_ten else ["", ""]
        name = f"**bic, {with_epochs(recipe, in_five)}**"
        rows.append([name, last, average, *ten_last_and_average, minutes])
    last_and_average = papers_row("", published("Table 3")["bic"])[-4:-2]
    rows.append(["BiC, the paper, 250 epochs", *last_and_average, "", "", ""])
    for name, figures in FIELD.items():
        if name not in left_out:
            rows.append([name, *figures, ""])
    header = ["", "5 × 20: last", "average", "10 × 10: last", "average", "minutes, 5 × 20"]
    return markdown_table(header, rows)


def pretrained(runs: Sequence[Run]) -> str:
    """Methods on the same features of a frozen backbone, in five steps."""
    rows: list[Row] = []
    for count in (2000, 8000):
        own = [run for run in runs if run.plan["method_settings"].get("random_features") == count]
        chosen = select(own, CIFAR, recipe="photos", step_sizes=FIVE_STEPS, method="ridge")
        if chosen:
            rows.append(row(f"**ridge**, {count:,} random features", chosen))
    others = [run for run in runs if run.plan["method"] != "ridge"]
    rows += method_rows(others, CIFAR, recipe="photos", step_sizes=FIVE_STEPS)
    return markdown_table(steps_header(FIVE_STEPS), rows)


TABLES: dict[str, Callable[[Sequence[Run]], str]] = {
    "five-steps": five_steps,
    "recipes": recipes,
    "field": field,
    "field-in-readme": partial(field, left_out=NOT_IN_README),
    "protocols": protocols,
    "glyphs": glyphs,
    "omniglot": omniglot,
    "pretrained": pretrained,
}


def papers_experiment(name: str, root: Path) -> dict[str, Any]:
    """One of the paper's experiments with the fast recipe, from the runs that are there."""
    return gather(find_experiment(name, "fast"), root / "results", "fast", range(3))


def table(name: str, runs: Sequence[Run], root: Path) -> str:
    """The table that a marker names."""
    kind, _, experiment = name.partition("/")
    if kind == "paper":
        return "\n\n".join(sections(papers_experiment(experiment, root), "####"))
    if name not in TABLES:
        raise unknown("table", name, TABLES)
    return TABLES[name](runs)


def draw_pictures(document: Path, root: Path) -> None:
    """Draw the curves of the experiments in a document that shows them."""
    text = document.read_text(encoding="utf-8")
    for name in marked_tables(text):
        kind, _, experiment = name.partition("/")
        link = re.search(rf"\(([^()\s]*)\b{re.escape(experiment)}\.png\)", text)
        if kind == "paper" and link is not None:
            folder = document.parent / link[1]
            draw(papers_experiment(experiment, root), folder, root / "results", ["png"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, and only compare")
    parser.add_argument("--root", type=Path, default=ROOT, help="has README.md, docs/ and results/")
    options = parser.parse_args()
    root: Path = options.root
    runs = recorded_runs(root / "results")
    outdated = []
    for document in documents(root):
        before = document.read_text(encoding="utf-8")
        after = filled(before, lambda name: table(name, runs, root))
        if after != before:
            outdated.append(str(document.relative_to(root)))
            if not options.check:
                document.write_text(after, encoding="utf-8")
        if not options.check:
            draw_pictures(document, root)
    if options.check and outdated:
        sys.exit(f"out of date: {', '.join(outdated)}; run python benchmarks/results.py")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(str(error))
