"""Pictures of results."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bic.report.colours import COLOURS, MARKERS
from bic.report.tables import UPPER_BOUNDS, Result


def picture(results: Sequence[Result], predictions: Mapping[str, npt.NDArray[Any]], path: Path) -> None:
    """Accuracy curves of all methods, and one run's confusions before and after correction."""
    with mpl.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(14, 4.6), layout="constrained", dpi=120)
        curves, before, after = figure.subplots(1, 3, width_ratios=[1.35, 1, 1])
        accuracy_curves(curves, results)
        shown = next(result for result in results if result["method"] == "bic")
        last, classes = shown["steps"][-1], shown["classes"]
        num_old = last["seen"] - shown["config"]["step_sizes"][-1]
        for axes, title, column, top1 in (
            (before, "before correction", "predicted_uncorrected", last["top1_uncorrected"]),
            (after, "after correction", "predicted", last["top1"]),
        ):
            confusion(axes, predictions["true"], predictions[column], num_old, classes)
            axes.set_title(f"bic {title}: {top1:.1f} %")
        figure.savefig(path)


def accuracy_curves(axes: Axes, results: Sequence[Result]) -> None:
    for result in results:
        name = result["method"]
        bound = name in UPPER_BOUNDS
        axes.plot(
            [step["seen"] for step in result["steps"]],
            [step["top1"] for step in result["steps"]],
            label=f"{name} (sees old data)" if bound else name,
            color=COLOURS.get(name), marker=MARKERS.get(name, "o"), linestyle="--" if bound else "-",
            linewidth=2.5 if name == "bic" else 1.4, zorder=3 if name == "bic" else 2,
        )  # fmt: skip
    ticks = [step["seen"] for step in results[0]["steps"]]
    axes.set(xlabel="classes seen", ylabel="top-1 accuracy (%)", title="Accuracy after each step", xticks=ticks)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8.5, frameon=False, loc="lower left")


def confusion(
    axes: Axes, true: npt.NDArray[Any], predicted: npt.NDArray[Any], num_old: int, classes: Sequence[str]
) -> None:
    """Rows are true classes, columns answers; the newest classes lie behind the line."""
    size = int(true.max()) + 1
    counts = np.zeros((size, size))
    np.add.at(counts, (true, predicted), 1)
    axes.imshow(counts / counts.sum(axis=1, keepdims=True), cmap="Blues", vmin=0, vmax=1)
    axes.axvline(num_old - 0.5, color="#D55E00", linewidth=1.2, linestyle="--")
    axes.set(xlabel="answer (right of the line: newest classes)", ylabel="true class")
    if size <= 12:
        axes.set(xticks=range(size), yticks=range(size), xticklabels=classes, yticklabels=classes)
