"""Testing a model on all classes seen: accuracies, the bias, and what later pictures need."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bic.data.images import ImageSet, Indices
from bic.data.loader import plain_batches
from bic.model import Model
from bic.progress import Progress

BIN_WIDTH = 0.25  # of the histograms of scores


@dataclass(frozen=True)
class Predictions:
    """One answer per test image. Classes count in the order in which they were learned."""

    index: Indices  # of the image in the data set's test part
    true: Indices
    predicted: Indices
    predicted_uncorrected: Indices
    confidence: npt.NDArray[np.float32]
    confidence_uncorrected: npt.NDArray[np.float32]


def evaluate(model: Model, test: ImageSet, index: Indices, progress: Progress) -> tuple[Predictions, dict[str, Any]]:
    """Predictions and metrics on `test`, whose images have the places `index` in the data set."""
    num_old = sum(model.heads[:-1])
    answers: list[list[Tensor]] = [[], [], [], []]
    in_top5 = 0
    histograms = {name: Counter[int]() for name in ("old", "new", "best_old", "best_new")}
    with progress.task("evaluating", len(test)) as task:
        for pixels, indices in plain_batches(test):
            raw, final = (scores.cpu() for scores in model.scores(pixels))
            best = (*torch.softmax(final, dim=1).max(dim=1), *torch.softmax(raw, dim=1).max(dim=1))
            for column, values in zip(answers, best, strict=True):
                column.append(values)
            if len(model.classes) >= 5:
                labels = torch.from_numpy(test.labels[indices])
                in_top5 += int((final.topk(5, dim=1).indices == labels[:, None]).sum())
            for name, part in (("old", raw[:, :num_old]), ("new", raw[:, num_old:])):
                if part.shape[1]:
                    _count(histograms[name], part)
                    _count(histograms[f"best_{name}"], part.amax(dim=1))
            task.advance(len(indices))
    sure, predicted, sure_raw, predicted_raw = (torch.cat(column).numpy() for column in answers)
    metrics = {
        "top1": percent(predicted == test.labels),
        "top5": 100 * in_top5 / len(test) if len(model.classes) >= 5 else None,
        "top1_uncorrected": percent(predicted_raw == test.labels),
        "top1_per_group": per_group(predicted, test.labels, model.heads),
        "share_on_new": float((predicted >= num_old).mean()),
        "share_on_new_uncorrected": float((predicted_raw >= num_old).mean()),
        "true_share_of_new": float((test.labels >= num_old).mean()),
        "score_histograms": {name: _dense(counts) for name, counts in histograms.items()},
        "head_norms": model.network.head.weight.detach().norm(dim=1).tolist(),
    }
    return Predictions(index, test.labels, predicted, predicted_raw, sure, sure_raw), metrics


def percent(hits: npt.NDArray[np.bool_]) -> float:
    return 100 * float(hits.mean())


def per_group(predicted: Indices, true: Indices, heads: Sequence[int]) -> list[float]:
    """Accuracy on the classes of each step, in percent."""
    groups = [(true >= low) & (true < high) for low, high in pairwise(np.cumsum([0, *heads]))]
    return [percent(predicted[group] == true[group]) for group in groups]


def forgetting(per_step: Sequence[Sequence[float]]) -> float | None:
    """Mean over old groups of the best past accuracy minus the present one; None in step one.

    `per_step` holds each step's accuracy per group, the last being the present.

    >>> forgetting([[90.0], [80.0, 70.0], [60.0, 75.0, 50.0]])
    12.5
    """
    present = per_step[-1][:-1]
    lost = [max(past[group] for past in per_step[group:-1]) - now for group, now in enumerate(present)]
    return sum(lost) / len(lost) if lost else None


def _count(counts: Counter[int], scores: Tensor) -> None:
    bins, sizes = np.unique(np.floor(scores.numpy() / BIN_WIDTH).astype(int), return_counts=True)
    counts.update(dict(zip(bins.tolist(), sizes.tolist(), strict=True)))


def _dense(counts: Counter[int]) -> dict[str, Any] | None:
    """Counts of equal bins from `start` on, in score units."""
    if not counts:
        return None
    filled = [counts[number] for number in range(min(counts), max(counts) + 1)]
    return {"start": min(counts) * BIN_WIDTH, "width": BIN_WIDTH, "counts": filled}
