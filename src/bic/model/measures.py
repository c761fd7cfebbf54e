"""Measures of predictions that evaluations and reports share. Pure functions; import no torch."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.floating[Any]]

RELIABILITY_BINS = 15  # of equal width; the usual number


class Reliability(NamedTuple):
    """Number of predictions, mean confidence and accuracy per bin of confidence.

    The mean and the accuracy of an empty bin are 0.
    """

    counts: Ints
    confidence: Floats
    accuracy: Floats

    @property
    def error(self) -> float:
        """The expected calibration error (ECE): Σ counts/total · |accuracy − confidence|."""
        gaps = np.abs(self.accuracy - self.confidence)
        return float(self.counts @ gaps / max(1, self.counts.sum()))


def reliability(
    confidence: Floats, is_right: npt.NDArray[np.bool_], num_bins: int = RELIABILITY_BINS
) -> Reliability:
    """Reliability in the bins (0, 1/n], (1/n, 2/n], … of confidence. All arrays: [images]."""
    upper_edges = np.ceil(confidence.astype(np.float64) * num_bins).astype(int)
    bins = np.clip(upper_edges - 1, 0, num_bins - 1)
    counts = np.bincount(bins, minlength=num_bins)
    divisor = np.maximum(counts, 1)
    mean_confidence = np.bincount(bins, weights=confidence, minlength=num_bins) / divisor
    accuracy = np.bincount(bins, weights=is_right, minlength=num_bins) / divisor
    return Reliability(counts, mean_confidence, accuracy)


def confused_pairs(true: Ints, predicted: Ints, num_classes: int) -> list[tuple[int, int, int]]:
    """(true class, predicted class, number of images) of all mistakes, the most frequent first."""
    is_wrong = true != predicted
    codes = true[is_wrong].astype(np.int64) * num_classes + predicted[is_wrong]
    pairs, counts = np.unique(codes, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return [
        (int(pair // num_classes), int(pair % num_classes), int(count))
        for pair, count in zip(pairs[order], counts[order], strict=True)
    ]
