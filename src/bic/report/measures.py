"""The figures of a report, computed from the predictions for the test images. Pure functions.

Classes are numbered in the order in which they were learned. A group is the classes of one step.
`edges` are the class numbers at which groups, or other bins of consecutive classes, begin, followed
by the number of classes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.floating[Any]]


def shares(classes: Ints, edges: Ints) -> Floats:
    """The share of images [groups] whose class is in each group. `classes`: [images]."""
    counts, _ = np.histogram(classes, bins=edges)
    return counts / max(1, len(classes))


def class_bins(step_sizes: Sequence[int], max_bins: int) -> Ints:
    """Edges of bins of consecutive classes: one class per bin if there are at most `max_bins`.

    With more classes, no bin contains classes of two steps unless there are more steps than bins.

    >>> class_bins([2, 2], 4).tolist(), class_bins([6, 2], 4).tolist()
    ([0, 1, 2, 3, 4], [0, 2, 4, 6, 8])
    """
    sizes = [size for size in step_sizes if size > 0]
    num_classes = sum(sizes)
    if num_classes <= max_bins:
        return np.arange(num_classes + 1)
    if len(sizes) > max_bins:
        return np.linspace(0, num_classes, max_bins + 1).astype(int)
    edges: list[int] = []
    start = 0
    for size in sizes:
        num_bins = max(1, size * max_bins // num_classes)
        edges += [start + number * size // num_bins for number in range(num_bins)]
        start += size
    return np.array([*edges, num_classes])


def confusion(true: Ints, predicted: Ints, edges: Ints) -> Ints:
    """Counts [bins, bins]: a row per bin of true classes, a column per bin of predicted ones."""
    rows = np.searchsorted(edges, true, side="right") - 1
    columns = np.searchsorted(edges, predicted, side="right") - 1
    size = len(edges) - 1
    return np.bincount(rows * size + columns, minlength=size * size).reshape(size, size)


def class_accuracy(true: Ints, predicted: Ints, num_classes: int) -> Floats:
    """Accuracy [classes] in percent; NaN for a class without test images."""
    num_images = np.bincount(true, minlength=num_classes)
    num_right = np.bincount(true[true == predicted], minlength=num_classes)
    return np.where(num_images > 0, 100 * num_right / np.maximum(num_images, 1), np.nan)


def best_past(accuracies: Sequence[Floats]) -> Floats:
    """The best accuracy of each class before the last step; NaN for the classes of that step.

    `accuracies` has one array per step: the accuracy of each class seen by then.
    """
    best = np.full(len(accuracies[-1]), np.nan)
    for past in accuracies[:-1]:
        best[: len(past)] = np.fmax(best[: len(past)], past)
    return best


def five_numbers(values: Floats, edges: Ints) -> list[list[float]]:
    """Minimum, quartiles and maximum of the values in each group; nothing for an empty group."""
    groups = np.split(values, edges[1:-1])
    quantiles = [0, 0.25, 0.5, 0.75, 1]
    return [np.quantile(group, quantiles).tolist() if len(group) else [] for group in groups]
