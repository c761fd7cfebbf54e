"""Plots of results, drawn with matplotlib."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bic.report.looks import look_of
from bic.store.results import Result, read_predictions

# Settings of matplotlib.
STYLE: dict[Any, Any] = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}


def draw_demo(results: Sequence[Result], folder: Path) -> Path:
    """Draw `demo.png`: the accuracy of all methods, and the confusions of bic.

    `folder` has the run folder of each method. The picture is written there; returns its path.
    """
    bic = next(result for result in results if result.method == "bic")
    last = bic.steps[-1]
    num_old = last.seen - bic.config["step_sizes"][-1]
    predictions = read_predictions(folder / "bic", last)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(14, 4.6), layout="constrained", dpi=120)
        curves, before, after = figure.subplots(1, 3, width_ratios=[1.35, 1, 1])
        accuracy_curves(curves, results)
        for axes, title, column, top1 in (
            (before, "before correction", "predicted_uncorrected", last.top1_uncorrected),
            (after, "after correction", "predicted", last.top1),
        ):
            confusion(axes, predictions["true"], predictions[column], num_old, bic.classes)
            axes.set_title(f"bic {title}: {top1:.1f} %")
        picture = folder / "demo.png"
        figure.savefig(picture)
    return picture


def accuracy_curves(axes: Axes, results: Sequence[Result]) -> None:
    """A curve per method: accuracy over the number of classes seen."""
    for result in results:
        name = result.method
        look = look_of(name)
        is_bic = name == "bic"
        axes.plot(
            [step.seen for step in result.steps],
            result.top1,
            label=f"{name} (sees old data)" if look.is_upper_bound else name,
            color=look.colour,
            marker=look.marker,
            linestyle="--" if look.is_upper_bound else "-",
            linewidth=2.5 if is_bic else 1.4,
            zorder=3 if is_bic else 2,
        )
    axes.set(
        xlabel="classes seen",
        ylabel="top-1 accuracy (%)",
        title="Accuracy after each step",
        xticks=[step.seen for step in results[0].steps],
    )
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8.5, frameon=False, loc="lower left")


def confusion(
    axes: Axes,
    true: npt.NDArray[Any],
    predicted: npt.NDArray[Any],
    num_old: int,
    classes: Sequence[str],
) -> None:
    """Draw a confusion matrix: a row per true class, a column per predicted class.

    A line separates the newest classes from the `num_old` old ones.
    """
    size = int(true.max()) + 1
    counts = np.zeros((size, size))
    np.add.at(counts, (true, predicted), 1)
    axes.imshow(counts / counts.sum(axis=1, keepdims=True), cmap="Blues", vmin=0, vmax=1)
    axes.axvline(num_old - 0.5, color="#D55E00", linewidth=1.2, linestyle="--")
    axes.set(xlabel="predicted class (right of the line: newest classes)", ylabel="true class")
    if size <= 12:
        axes.set(xticks=range(size), yticks=range(size), xticklabels=classes, yticklabels=classes)
