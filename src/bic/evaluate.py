"""Testing a model on all classes seen: accuracies, the bias, and what later pictures need."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bic.data.images import ImageSet, Indices
from bic.data.loader import plain_batches
from bic.distributed import gathered, gathered_objects, world
from bic.errors import UserError
from bic.model import Model
from bic.progress import Progress

Arrays = dict[str, npt.NDArray[Any]]
BIN_WIDTH, MAX_BINS = 0.25, 400  # of the histograms of scores; the bins are widened where they would be more
OUTERMOST = 2**19  # the number of the last bin counted, either way


def evaluate(model: Model, test: ImageSet, index: Indices, progress: Progress) -> tuple[Arrays, dict[str, Any]]:
    """Predictions (classes count as learned) and metrics on `test`, whose images stand at `index` in the data set.

    Scores are reduced to answers and counts a batch at a time. Raises UserError if no image of a step can be read.
    """
    num_old, top5 = sum(model.heads[:-1]), len(model.classes) >= 5
    in_top5, histograms = 0, {"old": Counter[int](), "new": Counter[int]()}
    # Room for all answers at once: kept between batches' scores they would hold on to the memory of both.
    room, count = len(world().share(test.everything)), 0
    answers: Arrays = {name: np.empty(room, np.int64) for name in ("index", "predicted", "predicted_uncorrected")}
    answers |= {name: np.empty(room, np.float32) for name in ("confidence", "confidence_uncorrected")}
    with progress.task("evaluating", len(test)) as task:
        for pixels, indices in plain_batches(test, num_outputs=len(model.classes)):
            raw, final = model.scores(pixels)
            rows = slice(count, count := count + len(indices))
            answers["index"][rows] = indices
            for kind, scores in (("", final), ("_uncorrected", raw)):
                sure, best = torch.softmax(scores, dim=1).max(dim=1)
                answers["confidence" + kind][rows], answers["predicted" + kind][rows] = sure.cpu(), best.cpu()
            if top5:
                labels = torch.from_numpy(test.labels[indices]).to(final.device)
                in_top5 += int((final.topk(5, dim=1).indices == labels[:, None]).sum())
            histograms["old"] += _binned(raw[:, :num_old])
            histograms["new"] += _binned(raw[:, num_old:])
            task.advance(len(indices))
    answers = {name: gathered(torch.from_numpy(column[:count])).numpy() for name, column in answers.items()}
    readable, predicted, predicted_raw = (answers[key] for key in ("index", "predicted", "predicted_uncorrected"))
    true = test.labels[readable]
    in_top5 = sum(gathered_objects(in_top5))
    histograms = {name: sum(gathered_objects(counts), Counter[int]()) for name, counts in histograms.items()}
    norms = model.network.head.weight.detach().norm(dim=1).cpu().numpy()
    metrics = {
        "top1_per_group": per_group(predicted, true, model.heads),
        "top1": 100 * float((predicted == true).mean()),
        "top5": 100 * in_top5 / len(true) if top5 else None,
        "top1_uncorrected": 100 * float((predicted_raw == true).mean()),
        "share_on_new": float((predicted >= num_old).mean()),
        "share_on_new_uncorrected": float((predicted_raw >= num_old).mean()),
        "true_share_of_new": float((true >= num_old).mean()),
        "score_histograms": {name: _dense(counts) for name, counts in histograms.items()},
        "head_norms_per_group": [
            _five_numbers(norms[low:high]) for low, high in pairwise(np.cumsum([0, *model.heads]))
        ],
    }
    return {**answers, "index": index[readable], "true": true}, metrics


def per_group(predicted: Indices, true: Indices, heads: Sequence[int]) -> list[float]:
    """Accuracy on the classes of each step, in percent."""
    groups = [(true >= low) & (true < high) for low, high in pairwise(np.cumsum([0, *heads]))]
    for step, group in enumerate(groups, start=1):
        if heads[step - 1] and not group.any():
            raise UserError(f"no test image of step {step}'s classes can be read; mend them and run again")
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


def _binned(scores: Tensor) -> Counter[int]:
    """How many scores lie in each bin, by its number. Those beyond any sane network's lie in the outermost."""
    if not scores.numel():
        return Counter()
    bins = (scores / BIN_WIDTH).floor_().clamp_(-OUTERMOST, OUTERMOST).int()
    low = int(bins.min())
    sizes = torch.bincount(bins.sub_(low).flatten())
    present = sizes.nonzero()[:, 0]
    return Counter(dict(zip((present + low).tolist(), sizes[present].tolist(), strict=True)))


def _dense(counts: Counter[int]) -> dict[str, Any] | None:
    """Counts of equal bins from `start` on, in score units."""
    if not counts:
        return None
    bins, sizes = np.array(list(counts.items())).T
    factor = 2 ** math.ceil(math.log2(max(1.0, (np.ptp(bins) + 1) / MAX_BINS)))
    low, width = int(bins.min() // factor), factor * BIN_WIDTH
    filled = np.bincount(bins // factor - low, weights=sizes).astype(int)
    return {"start": low * width, "width": width, "counts": filled.tolist()}


def _five_numbers(norms: npt.NDArray[np.float32]) -> list[float]:
    """Minimum, quartiles and maximum; nothing of nothing."""
    return np.quantile(norms, [0, 0.25, 0.5, 0.75, 1]).tolist() if len(norms) else []
