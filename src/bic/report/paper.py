"""One of the paper's experiments, ours beside the paper's: tables, Markdown and figures."""

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


def rows(panel: Content) -> Iterator[Row]:
    """Each line's figures after every step, the paper's below, and the difference after the last."""
    width = max(len(line["seen"]) for line in panel["lines"])
    for line in panel["lines"]:
        name = line["name"] + (" *" if line["bound"] else "")
        pairs = zip(line["mean"], line["spread"], strict=True)
        cells = [f"{mean:.2f}" if spread is None else f"{mean:.2f} ± {spread:.2f}" for mean, spread in pairs]
        ahead = [""] * (width - len(cells))  # an upper bound stands at the last step alone
        yield name, [*ahead, *cells, ""]
        if line["paper"]:
            difference = line["mean"][-1] - line["paper"][-1]
            yield "  the paper", [*(f"{value:.2f}" for value in line["paper"]), f"{difference:+.2f}"]


def metric(panel: Content) -> str:
    return str(panel["metric"]).replace("top", "top-")


def header(panel: Content) -> list[str]:
    seen = max((line["seen"] for line in panel["lines"]), key=len)
    return [*map(str, seen), "ours − paper"]


def overview(experiments: Iterable[tuple[Any, int, int, float]]) -> Table:
    """All experiments: what they show, their runs, and what the missing ones would take here."""
    table = new_table("The paper's experiments", "name", ["what", "runs", "done", "to do, here"])
    table.columns[1].justify = "left"
    for found, num_runs, num_done, seconds in experiments:
        table.add_row(found.name, found.title, str(num_runs), str(num_done), clock(seconds) if seconds else "–")
    table.caption = "estimated from the time of a few updates, one seed; runs that experiments share are done once"
    return table


def tables(content: Content) -> Iterator[Table]:
    """For the terminal."""
    for panel in content["panels"]:
        table = new_table(f"{content['title']}: {panel['title']}, {metric(panel)} (%)", "classes seen", header(panel))
        for name, cells in rows(panel):
            table.add_row(name, *cells, style="dim" if name.startswith(" ") else None)
        table.caption = _caption(panel)
        yield table
    if content["degradation"]:
        yield _degradation_table(content)


def _caption(panel: Content) -> str:
    seeds = sorted({len(line["seeds"]) for line in panel["lines"]})
    spread = "" if seeds == [1] else "; ± standard deviation over seeds"
    bound = "* sees old data; " if any(line["bound"] for line in panel["lines"]) else ""
    return f"{bound}number of seeds: {' or '.join(map(str, seeds))}{spread}"


def degradation(content: Content) -> Iterator[tuple[str, list[float], Sequence[float]]]:
    """Each method's loss against joint training after the last step, per panel: ours and the paper's."""
    ends = [{line["method"]: line["mean"][-1] for line in panel["lines"]} for panel in content["panels"]]
    for method, paper in content["degradation"].items():
        if all(end.keys() >= {"joint", method} for end in ends):
            yield method, [end["joint"] - end[method] for end in ends], paper


def _degradation_table(content: Content) -> Table:
    names = [panel["title"] for panel in content["panels"]]
    table = new_table("Points lost against joint training", "method", [*names, "growth", "the paper's", "growth"])
    for method, ours, paper in degradation(content):
        cells = [*(f"{value:.2f}" for value in ours), f"{ours[-1] - ours[0]:+.2f}"]
        table.add_row(method, *cells, " → ".join(f"{value:.1f}" for value in paper), f"{paper[-1] - paper[0]:+.1f}")
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
        yield _caption(panel).replace("*", r"\*") + "."
    if content["degradation"]:
        names = [panel["title"] for panel in content["panels"]]
        body = [
            (method, [*(f"{value:.2f}" for value in ours), *(f"{value:.1f}" for value in paper)])
            for method, ours, paper in degradation(content)
        ]
        yield f"{marks} Points lost against joint training"
        yield _markdown_table(["", *names, *(f"the paper, scale {n}" for n in (1, 2))], body)


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
        axes.set(xlabel="classes seen", ylabel=f"{metric(panel)} accuracy (%)", title=panel["title"])
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
        if file.is_file():
            yield line, file


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
