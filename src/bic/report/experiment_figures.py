"""The figures of an experiment: accuracy curves, ours and the paper's, and confusion matrices."""

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bic.errors import warn
from bic.npz import read_npz
from bic.report.looks import VARIANT_LOOKS, look_of
from bic.report.plots import STYLE, confusion

Content = Mapping[str, Any]  # of NAME.json, which `bic paper` writes


def draw(
    content: Content, folder: Path, runs: Path, kinds: Sequence[str] = ("png", "svg")
) -> list[Path]:
    """Draw the curves of all panels and the confusion matrices; return the files written.

    `runs` is the folder of the run folders. Every figure is written in each of these kinds.
    """
    written = []
    with mpl.rc_context({**STYLE, "svg.hashsalt": "bic"}):
        figures = {content["name"]: curves(content)}
        lines = list(_lines_with_predictions(content, runs))
        if lines:
            figures[f"{content['name']}-confusion"] = _confusions(lines)
        for name, figure in figures.items():
            for kind in kinds:
                path = folder / f"{name}.{kind}"
                figure.savefig(path, metadata={"Date": None} if kind == "svg" else None)
                written.append(path)
    return written


def curves(content: Content) -> Figure:
    """Accuracy over the classes seen, a plot for each panel."""
    panels = content["panels"]
    num_columns = min(2, len(panels))
    num_rows = -(-len(panels) // num_columns)
    size = (7 * num_columns, 4.8 * num_rows)
    figure = Figure(figsize=size, layout="constrained", dpi=120)
    recipe = f" ({content['recipe']} recipe)" if content["recipe"] else ""
    for number, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(num_rows, num_columns, number)
        for line, colour in zip(panel["lines"], _colours(panel["lines"]), strict=True):
            _curve(axes, line, colour)
        ticks = max((line["seen"] for line in panel["lines"]), key=len)
        axes.set(
            xlabel="classes seen",
            ylabel=f"{panel['metric'].replace('top', 'top-')} accuracy (%)",
            title=panel["title"] + recipe,
        )
        axes.set_xticks(ticks if len(ticks) <= 10 else ticks[1::2])
        axes.grid(alpha=0.25)
        axes.legend(fontsize=8.5, frameon=False)
    return figure


def _curve(axes: Axes, line: Content, colour: str) -> None:
    """Our curve with its standard deviation, and the paper's, dotted."""
    seen = line["seen"]
    mean = np.array(line["mean"])
    std = np.array([value or 0.0 for value in line["spread"]])
    axes.plot(
        seen,
        mean,
        label=line["name"],
        color=colour,
        marker=look_of(line["method"]).marker,
        linestyle="--" if line["bound"] else "-",
    )
    axes.fill_between(seen, mean - std, mean + std, color=colour, alpha=0.15, linewidth=0)
    if len(line["paper"]) == len(seen):
        label = f"{line['name']}, the paper"
        axes.plot(seen, line["paper"], label=label, color=colour, linestyle=":", alpha=0.7)


def _colours(lines: Sequence[Content]) -> list[str]:
    """The methods' own colours if they all differ, otherwise those for variants of one method."""
    own = [look_of(line["method"]).colour for line in lines]
    if len(set(own)) == len(own):
        return own
    return [VARIANT_LOOKS[number % len(VARIANT_LOOKS)].colour for number in range(len(lines))]


def _lines_with_predictions(content: Content, runs: Path) -> Iterator[tuple[Content, Path]]:
    """The lines to draw confusions of, and their predictions after the last step.

    A run without predictions, such as a copy of its result alone, is left out.
    """
    lines = {line["name"]: line for panel in content["panels"] for line in panel["lines"]}
    for name in content["confusions"]:
        if name not in lines:
            continue
        line = lines[name]
        file = runs / line["runs"][0] / f"predictions-{len(line['seen'])}.npz"
        if zipfile.is_zipfile(file):
            yield line, file
        elif (file.parent / "config.json").exists():
            warn(f"{file} is missing or damaged; the confusion matrix is left out")


def _confusions(lines: Sequence[tuple[Content, Path]]) -> Figure:
    figure = Figure(figsize=(4.6 * len(lines), 4.9), layout="constrained", dpi=120)
    plots = figure.subplots(1, len(lines), squeeze=False).flat
    for axes, (line, file) in zip(plots, lines, strict=True):
        num_old = line["seen"][-2] if len(line["seen"]) > 1 else 0
        classes = [str(number) for number in range(line["seen"][-1])]
        predictions = read_npz(file, ("true", "predicted"))
        true = predictions["true"]
        predicted = predictions["predicted"]
        confusion(axes, true, predicted, num_old, classes)
        accuracy = 100 * np.mean(true == predicted)
        axes.set_title(f"{line['name']}, seed {line['seeds'][0]}: {accuracy:.1f} %")
    return figure
