"""Testing a model on all classes seen: accuracies, the bias, and what later pictures need."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bic.data.images import ImageSet, Indices
from bic.data.loader import plain_batches
from bic.distributed import gathered, gathered_objects
from bic.model import Model
from bic.progress import Progress

Arrays = dict[str, npt.NDArray[Any]]
BIN_WIDTH, MAX_BINS = 0.25, 400  # of the histograms of scores; the bins are widened where they would be more


def evaluate(model: Model, test: ImageSet, index: Indices, progress: Progress) -> tuple[Arrays, dict[str, Any]]:
    """Predictions (classes count as learned) and metrics on `test`, whose images stand at `index` in the data set."""
    num_old = sum(model.heads[:-1])
    answers, in_top5 = [], 0
    histograms = {"old": Counter[int](), "new": Counter[int]()}
    readable = []
    with progress.task("evaluating", len(test)) as task:
        for pixels, indices in plain_batches(test):
            readable.append(indices)
            raw, final = (scores.cpu() for scores in model.scores(pixels))
            answers.append((*torch.softmax(final, dim=1).max(dim=1), *torch.softmax(raw, dim=1).max(dim=1)))
            if len(model.classes) >= 5:
                labels = torch.from_numpy(test.labels[indices])
                in_top5 += int((final.topk(5, dim=1).indices == labels[:, None]).sum())
            for name, part in (("old", raw[:, :num_old]), ("new", raw[:, num_old:])):
                bins, sizes = np.unique(np.floor(part.numpy() / BIN_WIDTH).astype(int), return_counts=True)
                histograms[name].update(dict(zip(bins.tolist(), sizes.tolist(), strict=True)))
            task.advance(len(indices))
    seen = gathered(torch.from_numpy(np.concatenate(readable))).numpy()
    test, index = test.select(seen), index[seen]
    columns = (gathered(torch.cat(column)).numpy() for column in zip(*answers, strict=True))
    sure, predicted, sure_raw, predicted_raw = columns
    in_top5 = sum(gathered_objects(in_top5))
    histograms = {name: sum(gathered_objects(counts), Counter[int]()) for name, counts in histograms.items()}
    metrics = {
        "top1": 100 * float((predicted == test.labels).mean()),
        "top5": 100 * in_top5 / len(test) if len(model.classes) >= 5 else None,
        "top1_uncorrected": 100 * float((predicted_raw == test.labels).mean()),
        "top1_per_group": per_group(predicted, test.labels, model.heads),
        "share_on_new": float((predicted >= num_old).mean()),
        "share_on_new_uncorrected": float((predicted_raw >= num_old).mean()),
        "true_share_of_new": float((test.labels >= num_old).mean()),
        "score_histograms": {name: _dense(counts) for name, counts in histograms.items()},
        "head_norms": model.network.head.weight.detach().norm(dim=1).tolist(),
    }
    answers_of = {"predicted": predicted, "predicted_uncorrected": predicted_raw}
    sureness = {"confidence": sure, "confidence_uncorrected": sure_raw}
    return {"index": index, "true": test.labels, **answers_of, **sureness}, metrics


def per_group(predicted: Indices, true: Indices, heads: Sequence[int]) -> list[float]:
    """Accuracy on the classes of each step, in percent."""
    groups = [(true >= low) & (true < high) for low, high in pairwise(np.cumsum([0, *heads]))]
    return [100 * float((predicted[group] == true[group]).mean()) for group in groups]


def forgetting(per_step: Sequence[Sequence[float]]) -> float | None:
    """Mean over old groups of the best past accuracy minus the present one; None in step one.

    `per_step` holds each step's accuracy per group, the last being the present.

    >>> forgetting([[90.0], [80.0, 70.0], [60.0, 75.0, 50.0]])
    12.5
    """
    present = per_step[-1][:-1]
    lost = [max(past[group] for past in per_step[group:-1]) - now for group, now in enumerate(present)]
    return sum(lost) / len(lost) if lost else None


def _dense(counts: Counter[int]) -> dict[str, Any] | None:
    """Counts of equal bins from `start` on, in score units."""
    if not counts:
        return None
    bins, sizes = np.array(list(counts.items())).T
    factor = 2 ** math.ceil(math.log2(max(1.0, (np.ptp(bins) + 1) / MAX_BINS)))
    low, width = int(bins.min() // factor), factor * BIN_WIDTH
    filled = np.bincount(bins // factor - low, weights=sizes).astype(int)
    return {"start": low * width, "width": width, "counts": filled.tolist()}
