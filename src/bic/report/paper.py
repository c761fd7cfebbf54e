"""One of the paper's experiments, ours beside the paper's: tables, Markdown and figures."""

import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from bic.progress import clock
from bic.report.colours import COLOURS, MARKERS
from bic.report.plots import confusion
from bic.report.tables import new_table

Content = Mapping[str, Any]  # of NAME.json, which bic.paper.gather makes
Row = tuple[str, list[str]]


def rows(panel: Content, *, spreads: bool = True) -> Iterator[Row]:
    """Each line's figures after every step; where the paper has some, they follow, with the difference after the last.

    Without `spreads` only the last step's figure has its standard deviation.
    """
    width, compared = max(len(line["seen"]) for line in panel["lines"]), has_paper(panel)
    for line in panel["lines"]:
        name = line["name"] + (" *" if line["bound"] else "")
        every = [spread if spreads else None for spread in line["spread"][:-1]] + line["spread"][-1:]
        pairs = zip(line["mean"], every, strict=True)
        cells = [f"{mean:.2f}" if spread is None else f"{mean:.2f} ± {spread:.2f}" for mean, spread in pairs]
        ahead = [""] * (width - len(cells))  # an upper bound stands at the last step alone
        yield name, [*ahead, *cells, *[""] * compared]
        if line["paper"]:
            difference = line["mean"][-1] - line["paper"][-1]
            yield "  the paper", [*(f"{value:.2f}" for value in line["paper"]), f"{difference:+.2f}"]


def metric(panel: Content) -> str:
    return str(panel["metric"]).replace("top", "top-")


def has_paper(panel: Content) -> bool:
    return any(line["paper"] for line in panel["lines"])


def header(panel: Content, difference: str = "ours − paper") -> list[str]:
    seen = max((line["seen"] for line in panel["lines"]), key=len)
    return [*map(str, seen), *[difference] * has_paper(panel)]


def overview(experiments: Iterable[tuple[Any, int, int, float]], recipe: str | None, seeds: int) -> Table:
    """All experiments: what they show, their runs, and what the missing ones would take here."""
    table = new_table("The paper's experiments", "name", ["what", "runs", "done", "to do, here"])
    table.columns[1].justify = "left"
    for found, num_runs, num_done, seconds in experiments:
        table.add_row(found.name, found.title, str(num_runs), str(num_done), clock(seconds) if seconds else "–")
    counted = f"{seeds} seeds" if seeds > 1 else "one seed"
    trained = f"the {recipe} recipe" if recipe else "the paper's recipes (--recipe fast is quicker)"
    table.caption = f"by {trained}, {counted}; estimated from a few updates; runs that experiments share are done once"
    return table


def tables(content: Content, width: int) -> Iterator[Table]:
    """For a terminal of this width: where there are more steps than it has room for, some of them."""
    for panel in content["panels"]:
        body, columns = list(rows(panel, spreads=False)), header(panel, "Δ")
        shown = _fitting(panel, [("classes seen", columns), *body], width)
        title = f"{content['title']}: {panel['title']}, {metric(panel)} (%)"
        table = new_table(title, "classes seen", [columns[each] for each in shown])
        for name, cells in body:
            table.add_row(name, *(cells[each] for each in shown), style="dim" if name.startswith(" ") else None)
        delta = "; Δ: ours − the paper's" if has_paper(panel) else ""
        some = "; every step is in the Markdown" if len(shown) < len(columns) else ""
        table.caption = _caption(content, panel) + delta + some
        yield table
    if content["degradation"]:
        yield _degradation_table(content)


def _fitting(panel: Content, body: Sequence[Row], width: int) -> list[int]:
    """The columns that there is room for: the difference if there is one, and every step, or every second, third …"""
    widths = [max(map(len, column)) + 3 for column in zip(*(cells for _, cells in body), strict=True)]
    every = range(len(widths))
    steps, differences = (every[:-1], every[-1:]) if has_paper(panel) else (every, every[:0])
    room = width - max(len(name) for name, _ in body) - 4 - sum(widths[each] for each in differences)
    strides = (steps[::-stride][::-1] for stride in every[1:])
    chosen = next((some for some in strides if sum(widths[each] for each in some) <= room), steps[-1:])
    return [*chosen, *differences]


def _caption(content: Content, panel: Content) -> str:
    seeds = sorted({len(line["seeds"]) for line in panel["lines"]})
    spread = "" if seeds == [1] else "; ± standard deviation over seeds"
    bound = "* sees old data; " if any(line["bound"] for line in panel["lines"]) else ""
    recipe = f"ours: {content['recipe']} recipe; " if content["recipe"] else ""
    return f"{bound}{recipe}number of seeds: {' or '.join(map(str, seeds))}{spread}"


def degradation(content: Content) -> Iterator[tuple[str, list[float], Sequence[float]]]:
    """Each method's loss against joint training after the last step, per panel: ours and the paper's."""
    ends = [{line["method"]: line["mean"][-1] for line in panel["lines"]} for panel in content["panels"]]
    for method, paper in content["degradation"].items():
        if all(end.keys() >= {"joint", method} for end in ends):
            yield method, [end["joint"] - end[method] for end in ends], paper


def _degradation_rows(content: Content) -> Iterator[Row]:
    for method, ours, paper in degradation(content):
        theirs = " → ".join(f"{value:.1f}" for value in paper)
        growth = [f"{ends[-1] - ends[0]:+.{digits}f}" for ends, digits in ((ours, 2), (paper, 1))]
        yield method, [*(f"{value:.2f}" for value in ours), growth[0], theirs, growth[1]]


def _degradation_table(content: Content) -> Table:
    names = [panel["title"] for panel in content["panels"]]
    table = new_table("Points lost against joint training", "method", [*names, "growth", "the paper's", "growth"])
    for method, cells in _degradation_rows(content):
        table.add_row(method, *cells)
    return table


def markdown(content: Content) -> str:
    """The same as a page."""
    parts = [f"# {content['name']}: {content['title']}", f"The paper: {content['claim']}.", content["note"]]
    return "\n\n".join(part for part in (*parts, *sections(content, "##")) if part) + "\n"


def sections(content: Content, marks: str) -> Iterator[str]:
    """The page's tables, each below a heading with these marks."""
    for panel in content["panels"]:
        yield f"{marks} {panel['title']} ({metric(panel)}, %)"
        yield _markdown_table(["", *header(panel)], rows(panel))
        yield _caption(content, panel).replace("*", r"\*") + "."
    if content["degradation"]:
        names = [panel["title"] for panel in content["panels"]]
        yield f"{marks} Points lost against joint training"
        yield _markdown_table(["", *names, "growth", "the paper's", "growth"], _degradation_rows(content))


def _markdown_table(columns: Sequence[str], body: Iterable[Row]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join([name.strip().replace("*", r"\*"), *cells]) + " |" for name, cells in body]
    return "\n".join(lines)


def draw(content: Content, folder: Path, runs: Path, kinds: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Curves of every panel, and the confusion matrices; each in these kinds of file."""
    with mpl.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "bic"}):
        figures = {content["name"]: curves(content)}
        if shown := list(_with_predictions(content, runs)):
            figures[f"{content['name']}-confusion"] = _confusions(shown)
        written = []
        for name, figure in figures.items():
            for kind in kinds:
                written.append(folder / f"{name}.{kind}")
                figure.savefig(written[-1], metadata={"Date": None} if kind == "svg" else None)
    return written


def curves(content: Content) -> Figure:
    """Accuracy over the classes seen, a plot for each panel."""
    panels = content["panels"]
    columns = min(2, len(panels))
    height = -(-len(panels) // columns)
    figure = Figure(figsize=(7 * columns, 4.8 * height), layout="constrained", dpi=120)
    for number, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(height, columns, number)
        for line, colour in zip(panel["lines"], _colours(panel["lines"]), strict=True):
            seen, mean, marker = line["seen"], np.array(line["mean"]), MARKERS.get(line["method"], "o")
            spread = np.array([each or 0.0 for each in line["spread"]])
            style = "--" if line["bound"] else "-"
            axes.plot(seen, mean, label=line["name"], color=colour, marker=marker, linestyle=style)
            axes.fill_between(seen, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)
            if len(line["paper"]) == len(seen):
                name = f"{line['name']}, the paper"
                axes.plot(seen, line["paper"], label=name, color=colour, linestyle=":", alpha=0.7)
        ticks = max((line["seen"] for line in panel["lines"]), key=len)
        trained = f" ({content['recipe']} recipe)" if content["recipe"] else ""
        axes.set(xlabel="classes seen", ylabel=f"{metric(panel)} accuracy (%)", title=panel["title"] + trained)
        axes.set_xticks(ticks if len(ticks) <= 10 else ticks[1::2])
        axes.grid(alpha=0.25)
        axes.legend(fontsize=8.5, frameon=False)
    return figure


def _colours(lines: Sequence[Content]) -> list[str]:
    """A method's own colour, or the palette's in turn where the lines are variants of one method."""
    methods = [line["method"] for line in lines]
    if len(set(methods)) == len(methods) and set(methods) <= set(COLOURS):
        return [COLOURS[method] for method in methods]
    return list(COLOURS.values())[: len(lines)]


def _with_predictions(content: Content, runs: Path) -> Iterator[tuple[Content, Path]]:
    """The lines whose confusions are to be drawn, and the answers after the last step; a result.json alone has none."""
    lines = {line["name"]: line for panel in content["panels"] for line in panel["lines"]}
    for line in (lines[name] for name in content["confusions"] if name in lines):
        file = runs / line["runs"][0] / f"predictions-{len(line['seen'])}.npz"
        if zipfile.is_zipfile(file):
            yield line, file
        elif (file.parent / "config.json").exists():
            warnings.warn(f"{file} is missing or damaged; the confusion matrix is left out", stacklevel=2)


def _confusions(shown: Sequence[tuple[Content, Path]]) -> Figure:
    figure = Figure(figsize=(4.6 * len(shown), 4.9), layout="constrained", dpi=120)
    for axes, (line, file) in zip(figure.subplots(1, len(shown), squeeze=False).flat, shown, strict=True):
        with np.load(file) as predictions:
            num_old = line["seen"][-2] if len(line["seen"]) > 1 else 0
            classes = [str(number) for number in range(line["seen"][-1])]
            confusion(axes, predictions["true"], predictions["predicted"], num_old, classes)
            right = 100 * np.mean(predictions["true"] == predictions["predicted"])
        axes.set_title(f"{line['name']}, seed {line['seeds'][0]}: {right:.1f} %")
    return figure
