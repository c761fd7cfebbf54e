"""The figures of a report, worked out from the answers for the test images. Pure functions of arrays.

Classes are numbered in the order in which they were learned. A group is the classes of one step; `edges` are the
class numbers at which groups, or other bins of neighbouring classes, begin, with the number of classes at the end.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.floating[Any]]

RELIABILITY_BINS = 15  # of equal width, the usual number


class Reliability(NamedTuple):
    """How sure the answers were and how often right, per bin of confidence; both 0 where a bin is empty."""

    counts: Ints
    confidence: Floats
    accuracy: Floats

    @property
    def error(self) -> float:
        """The expected calibration error (ECE): Σ counts/total · |accuracy − confidence|."""
        return float(self.counts @ np.abs(self.accuracy - self.confidence) / max(1, self.counts.sum()))


def reliability(confidence: Floats, right: npt.NDArray[np.bool_], num_bins: int = RELIABILITY_BINS) -> Reliability:
    """Bins (0, 1/n], (1/n, 2/n], … of confidence."""
    bins = np.clip(np.ceil(confidence.astype(np.float64) * num_bins).astype(int) - 1, 0, num_bins - 1)
    counts = np.bincount(bins, minlength=num_bins)
    share = np.maximum(counts, 1)
    mean = np.bincount(bins, weights=confidence, minlength=num_bins) / share
    return Reliability(counts, mean, np.bincount(bins, weights=right, minlength=num_bins) / share)


def shares(classes: Ints, edges: Ints) -> Floats:
    """The share of images whose class lies in each group."""
    return np.histogram(classes, bins=edges)[0] / max(1, len(classes))


def class_bins(step_sizes: Sequence[int], max_bins: int) -> Ints:
    """Edges of bins of neighbouring classes: one class each if there are no more than `max_bins`.

    With more classes no bin reaches over two steps, as long as the steps are fewer than the bins.

    >>> class_bins([2, 2], 4).tolist(), class_bins([6, 2], 4).tolist()
    ([0, 1, 2, 3, 4], [0, 2, 4, 6, 8])
    """
    total = sum(step_sizes)
    if total <= max_bins:
        return np.arange(total + 1)
    if len(step_sizes) > max_bins:
        return np.linspace(0, total, max_bins + 1).astype(int)
    starts = np.cumsum([0, *step_sizes])
    parts = [max(1, size * max_bins // total) for size in step_sizes]
    cuts = [
        start + np.arange(count) * size // count for start, size, count in zip(starts, step_sizes, parts, strict=False)
    ]
    return np.concatenate([*cuts, [total]])


def confusion(true: Ints, answers: Ints, edges: Ints) -> Ints:
    """Counts [bins, bins]: a row per bin of true classes, a column per bin of answers."""
    rows, columns = (np.searchsorted(edges, classes, side="right") - 1 for classes in (true, answers))
    size = len(edges) - 1
    return np.bincount(rows * size + columns, minlength=size * size).reshape(size, size)


def confused_pairs(true: Ints, answers: Ints, num_classes: int) -> list[tuple[int, int, int]]:
    """(true class, answer, number of images) where they differ, the most frequent first."""
    wrong = true != answers
    codes, counts = np.unique(true[wrong].astype(np.int64) * num_classes + answers[wrong], return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return [(int(code // num_classes), int(code % num_classes), int(count)) for code, count in
            zip(codes[order], counts[order], strict=True)]  # fmt: skip


def class_accuracy(true: Ints, answers: Ints, num_classes: int) -> Floats:
    """Accuracy of each class in percent; NaN where a class has no test image."""
    total = np.bincount(true, minlength=num_classes)
    right = np.bincount(true[true == answers], minlength=num_classes)
    return np.where(total > 0, 100 * right / np.maximum(total, 1), np.nan)


def best_past(accuracies: Sequence[Floats]) -> Floats:
    """Each class's best accuracy before the last of these steps; NaN for the classes that came with it.

    `accuracies` holds each step's accuracy per class, of as many classes as were seen then.
    """
    best = np.full(len(accuracies[-1]), np.nan)
    for past in accuracies[:-1]:
        best[: len(past)] = np.fmax(best[: len(past)], past)
    return best


def five_numbers(values: Floats, edges: Ints) -> list[list[float]]:
    """Minimum, quartiles and maximum of the values in each group."""
    groups = np.split(values, edges[1:-1])
    return [[float(each) for each in np.quantile(group, [0, 0.25, 0.5, 0.75, 1])] for group in groups]
