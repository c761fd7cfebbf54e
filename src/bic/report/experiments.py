"""One of the paper's experiments as tables and Markdown: our results and the paper's."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.table import Table

from bic.files import write_file
from bic.lab.experiments import Experiment
from bic.progress import clock
from bic.report.experiment_figures import Content, draw
from bic.report.tables import new_table

Row = tuple[str, list[str]]  # its name and its cells


def write(content: Content, folder: Path, runs: Path) -> None:
    """Write NAME.md and the figures of an experiment to `folder`.

    `runs` is the folder of the run folders, which have the predictions for confusion matrices.
    """
    write_file(folder / f"{content['name']}.md", markdown(content).encode())
    draw(content, folder, runs)


def rows(panel: Content, *, stds: bool = True) -> Iterator[Row]:
    """The rows of a panel: each line's accuracy after every step, and below it the paper's.

    The paper's row ends with the difference after the last step. Without `stds`, only the last step
    has its standard deviation.
    """
    num_steps = max(len(line["seen"]) for line in panel["lines"])
    for line in panel["lines"]:
        cells = _cells(line, stds=stds)
        no_steps = [""] * (num_steps - len(cells))  # joint training has the last step only
        no_difference = [""] if has_paper(panel) else []
        mark = " *" if line["bound"] else ""
        yield line["name"] + mark, [*no_steps, *cells, *no_difference]
        if line["paper"]:
            difference = line["mean"][-1] - line["paper"][-1]
            papers = [f"{value:.2f}" for value in line["paper"]]
            yield "  the paper", [*papers, f"{difference:+.2f}"]


def _cells(line: Content, *, stds: bool) -> list[str]:
    """A line's mean after each step, with the standard deviation where it is shown."""
    last = len(line["mean"]) - 1
    cells = []
    for number, (mean, std) in enumerate(zip(line["mean"], line["spread"], strict=True)):
        has_std = std is not None and (stds or number == last)
        cells.append(f"{mean:.2f} ± {std:.2f}" if has_std else f"{mean:.2f}")
    return cells


def has_paper(panel: Content) -> bool:
    """Whether the paper prints numbers for a line of this panel."""
    return any(line["paper"] for line in panel["lines"])


def header(panel: Content, difference: str = "ours − paper") -> list[str]:
    """The titles of the columns after the first: classes seen, and the difference if any."""
    seen = max((line["seen"] for line in panel["lines"]), key=len)
    return [*map(str, seen), *([difference] if has_paper(panel) else [])]


def _metric(panel: Content) -> str:
    return str(panel["metric"]).replace("top", "top-")


def overview(
    experiments: Iterable[tuple[Experiment, int, int, float]], recipe: str | None, seeds: int
) -> Table:
    """All experiments: what they show, their runs, and how long the missing ones take here.

    Each experiment comes with its number of runs, how many are done, and the seconds of the others.
    """
    columns = ["what it shows", "runs", "done", "to do, here"]
    table = new_table("The paper's experiments", "name", columns)
    table.columns[1].justify = "left"
    for experiment, num_runs, num_done, seconds in experiments:
        to_do = clock(seconds) if seconds else "–"
        table.add_row(experiment.name, experiment.title, str(num_runs), str(num_done), to_do)
    num_seeds = f"{seeds} seeds" if seeds > 1 else "one seed"
    used = f"the {recipe} recipe" if recipe else "the paper's recipes (the fast recipe is quicker)"
    table.caption = (
        f"with {used}, {num_seeds}; estimated from a few updates; "
        "runs that experiments share are done once"
    )
    return table


def tables(content: Content, width: int) -> Iterator[Table]:
    """The tables for a terminal of this width. If not all steps fit, some are left out."""
    for panel in content["panels"]:
        body = list(rows(panel, stds=False))
        columns = header(panel, "Δ")
        shown = _fitting(panel, [("classes seen", columns), *body], width)
        title = f"{content['title']}: {panel['title']}, {_metric(panel)} (%)"
        table = new_table(title, "classes seen", [columns[number] for number in shown])
        for name, cells in body:
            style = "dim" if name.startswith(" ") else None
            table.add_row(name, *(cells[number] for number in shown), style=style)
        delta = "; Δ: ours − the paper's" if has_paper(panel) else ""
        some = "; every step is in the Markdown" if len(shown) < len(columns) else ""
        table.caption = _caption(content, panel) + delta + some
        yield table
    if content["degradation"]:
        yield _degradation_table(content)


def _fitting(panel: Content, body: Sequence[Row], width: int) -> list[int]:
    """The numbers of the columns that fit: all steps or every second or third, and the difference.

    The last step is always shown.
    """
    columns = zip(*(cells for _, cells in body), strict=True)
    widths = [max(map(len, column)) + 3 for column in columns]
    numbers = list(range(len(widths)))
    num_steps = len(widths) - 1 if has_paper(panel) else len(widths)
    steps = numbers[:num_steps]
    differences = numbers[num_steps:]
    room = width - max(len(name) for name, _ in body) - 4
    room -= sum(widths[number] for number in differences)
    for stride in range(1, num_steps + 1):
        chosen = steps[::-stride][::-1]
        if sum(widths[number] for number in chosen) <= room:
            return [*chosen, *differences]
    return [*steps[-1:], *differences]


def _caption(content: Content, panel: Content) -> str:
    num_seeds = sorted({len(line["seeds"]) for line in panel["lines"]})
    std = "" if num_seeds == [1] else "; ± standard deviation over seeds"
    bound = "* sees old data; " if any(line["bound"] for line in panel["lines"]) else ""
    recipe = f"ours: {content['recipe']} recipe; " if content["recipe"] else ""
    return f"{bound}{recipe}number of seeds: {' or '.join(map(str, num_seeds))}{std}"


def degradation(content: Content) -> Iterator[tuple[str, list[float], Sequence[float]]]:
    """Points that each method loses against joint training, per panel: ours and the paper's.

    Both are measured after the last step.
    """
    finals = [
        {line["method"]: line["mean"][-1] for line in panel["lines"]} for panel in content["panels"]
    ]
    for method, paper in content["degradation"].items():
        if all(final.keys() >= {"joint", method} for final in finals):
            yield method, [final["joint"] - final[method] for final in finals], paper


def _degradation_rows(content: Content) -> Iterator[Row]:
    for method, ours, paper in degradation(content):
        cells = [f"{points:.2f}" for points in ours]
        cells.append(f"{ours[-1] - ours[0]:+.2f}")
        cells.append(" → ".join(f"{points:.1f}" for points in paper))
        cells.append(f"{paper[-1] - paper[0]:+.1f}")
        yield method, cells


def _degradation_columns(content: Content) -> list[str]:
    titles = [panel["title"] for panel in content["panels"]]
    return [*titles, "growth", "the paper's", "growth"]


def _degradation_table(content: Content) -> Table:
    title = "Points lost against joint training"
    table = new_table(title, "method", _degradation_columns(content))
    for method, cells in _degradation_rows(content):
        table.add_row(method, *cells)
    return table


def markdown(content: Content) -> str:
    """The experiment as a Markdown page."""
    title = f"# {content['name']}: {content['title']}"
    claim = f"The paper: {content['claim']}."
    parts = [title, claim, content["note"], *sections(content, "##")]
    return "\n\n".join(part for part in parts if part) + "\n"


def sections(content: Content, marks: str) -> Iterator[str]:
    """The tables in Markdown, each below a heading that begins with these marks."""
    for panel in content["panels"]:
        yield f"{marks} {panel['title']} ({_metric(panel)}, %)"
        yield _markdown_table(["", *header(panel)], rows(panel))
        yield _caption(content, panel).replace("*", r"\*") + "."
    if content["degradation"]:
        yield f"{marks} Points lost against joint training"
        yield _markdown_table(["", *_degradation_columns(content)], _degradation_rows(content))


def _markdown_table(columns: Sequence[str], body: Iterable[Row]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for name, cells in body:
        escaped = name.strip().replace("*", r"\*")
        lines.append("| " + " | ".join([escaped, *cells]) + " |")
    return "\n".join(lines)
