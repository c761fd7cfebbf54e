"""Testing a model on all classes seen: accuracies, the bias, and what later pictures need."""

from __future__ import annotations

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


def evaluate(
    model: Model, test: ImageSet, index: Indices, progress: Progress
) -> tuple[Predictions, dict[str, Any]]:
    """Predictions and metrics on `test`, whose images have the places `index` in the data set."""
    num_old = sum(model.heads[:-1])
    answers: dict[str, list[Tensor]] = {"raw": [], "raw_sure": [], "final": [], "final_sure": []}
    in_top5 = 0
    histograms: dict[str, Counter[int]] = {
        name: Counter() for name in ("old", "new", "best_old", "best_new")
    }
    with progress.task("evaluating", len(test)) as task:
        for pixels, indices in plain_batches(test):
            raw, final = (scores.cpu() for scores in model.scores(pixels))
            for name, scores in (("raw", raw), ("final", final)):
                sure, best = torch.softmax(scores, dim=1).max(dim=1)
                answers[name].append(best)
                answers[f"{name}_sure"].append(sure)
            if len(model.classes) >= 5:
                labels = torch.from_numpy(test.labels[indices])
                in_top5 += int((final.topk(5, dim=1).indices == labels[:, None]).sum())
            for name, part in (("old", raw[:, :num_old]), ("new", raw[:, num_old:])):
                if part.shape[1]:
                    _count(histograms[name], part)
                    _count(histograms[f"best_{name}"], part.amax(dim=1))
            task.advance(len(indices))
    joined = {name: torch.cat(parts).numpy() for name, parts in answers.items()}
    predictions = Predictions(
        index=index,
        true=test.labels,
        predicted=joined["final"],
        predicted_uncorrected=joined["raw"],
        confidence=joined["final_sure"],
        confidence_uncorrected=joined["raw_sure"],
    )
    metrics = {
        "top1": percent(predictions.predicted == predictions.true),
        "top5": 100 * in_top5 / len(test) if len(model.classes) >= 5 else None,
        "top1_uncorrected": percent(predictions.predicted_uncorrected == predictions.true),
        "top1_per_group": per_group(predictions.predicted, predictions.true, model.heads),
        "share_on_new": float((predictions.predicted >= num_old).mean()),
        "share_on_new_uncorrected": float((predictions.predicted_uncorrected >= num_old).mean()),
        "true_share_of_new": float((predictions.true >= num_old).mean()),
        "score_histograms": {name: _dense(counts) for name, counts in histograms.items()},
        "head_norms": model.network.head.weight.detach().norm(dim=1).tolist(),
    }
    return predictions, metrics


def percent(hits: npt.NDArray[np.bool_]) -> float:
    return 100 * float(hits.mean())


def per_group(predicted: Indices, true: Indices, heads: Sequence[int]) -> list[float]:
    """Accuracy on the classes of each step, in percent."""
    edges = np.cumsum([0, *heads])
    groups = [(true >= low) & (true < high) for low, high in pairwise(edges)]
    return [percent(predicted[group] == true[group]) for group in groups]


def forgetting(per_step: Sequence[Sequence[float]]) -> float | None:
    """Mean over old groups of the best past accuracy minus the present one; None in step one.

    `per_step` holds each step's accuracy per group, the last being the present.

    >>> forgetting([[90.0], [80.0, 70.0], [60.0, 75.0, 50.0]])
    12.5
    """
    present = per_step[-1]
    lost = [
        max(past[group] for past in per_step[group:-1]) - present[group]
        for group in range(len(present) - 1)
    ]
    return sum(lost) / len(lost) if lost else None


def _count(counts: Counter[int], scores: Tensor) -> None:
    bins, sizes = np.unique(np.floor(scores.numpy() / BIN_WIDTH), return_counts=True)
    counts.update(dict(zip(bins.astype(int).tolist(), sizes.tolist(), strict=True)))


def _dense(counts: Counter[int]) -> dict[str, Any] | None:
    """Counts of equal bins from `start` on, in score units."""
    if not counts:
        return None
    low, high = min(counts), max(counts)
    return {
        "start": low * BIN_WIDTH,
        "width": BIN_WIDTH,
        "counts": [counts[number] for number in range(low, high + 1)],
    }
