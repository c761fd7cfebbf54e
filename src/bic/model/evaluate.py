"""Testing a model on all classes seen: accuracies, the bias, and histograms for the report."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bic.compute.distributed import gathered, gathered_objects, world
from bic.data.batches import plain_batches
from bic.data.images import ImageSet, Indices
from bic.errors import UserError
from bic.model.model import Model
from bic.progress import Progress

Arrays = dict[str, npt.NDArray[Any]]
BIN_WIDTH = 0.25  # of the histograms of logits
MAX_BINS = 400  # if there would be more, the bins are made wider
OUTERMOST = 2**19  # logits beyond this bin are counted in it


@dataclass
class Counts:
    """Sums over the test images of this process."""

    in_top5: int
    old_logits: Counter[int]
    new_logits: Counter[int]


def evaluate(
    model: Model, test: ImageSet, index: Indices, progress: Progress
) -> tuple[Arrays, dict[str, Any]]:
    """Predictions and metrics on `test`. `index` has each image's position in the data set.

    Predicted classes are positions in `model.classes`. Raises UserError if no image of a step's
    classes can be read.
    """
    answers, counts = _answers(model, test, progress)
    readable = answers["index"]
    predicted = answers["predicted"]
    predicted_raw = answers["predicted_uncorrected"]
    true = test.labels[readable]
    num_old = sum(model.classes_per_step[:-1])
    metrics = {
        "top1_per_group": per_group(predicted, true, model.classes_per_step),
        "top1": 100 * float((predicted == true).mean()),
        "top5": 100 * counts.in_top5 / len(true) if len(model.classes) >= 5 else None,
        "top1_uncorrected": 100 * float((predicted_raw == true).mean()),
        "share_on_new": float((predicted >= num_old).mean()),
        "share_on_new_uncorrected": float((predicted_raw >= num_old).mean()),
        "true_share_of_new": float((true >= num_old).mean()),
        "score_histograms": {"old": _dense(counts.old_logits), "new": _dense(counts.new_logits)},
        "head_norms_per_group": _norms_per_group(model),
    }
    return {**answers, "index": index[readable], "true": true}, metrics


def _answers(model: Model, test: ImageSet, progress: Progress) -> tuple[Arrays, Counts]:
    """Predictions and confidences of all processes. Logits are reduced one batch at a time."""
    num_old = sum(model.classes_per_step[:-1])
    has_top5 = len(model.classes) >= 5
    counts = Counts(0, Counter(), Counter())
    num_images = len(world().share(test.everything))
    # Preallocated, so that memory does not fragment between the batches' logits.
    columns: Arrays = {}
    for name in ("index", "predicted", "predicted_uncorrected"):
        columns[name] = np.empty(num_images, np.int64)
    for name in ("confidence", "confidence_uncorrected"):
        columns[name] = np.empty(num_images, np.float32)
    done = 0
    with progress.task("evaluating", len(test)) as task:
        for pixels, indices in plain_batches(test, num_outputs=len(model.classes)):
            raw, final = model.logits(pixels)
            rows = slice(done, done + len(indices))
            done += len(indices)
            columns["index"][rows] = indices
            for suffix, logits in (("", final), ("_uncorrected", raw)):
                confidence, best = torch.softmax(logits, dim=1).max(dim=1)
                columns[f"confidence{suffix}"][rows] = confidence.cpu()
                columns[f"predicted{suffix}"][rows] = best.cpu()
            if has_top5:
                labels = torch.from_numpy(test.labels[indices]).to(final.device)
                in_top5 = final.topk(5, dim=1).indices == labels[:, None]
                counts.in_top5 += int(in_top5.sum())
            counts.old_logits += _binned(raw[:, :num_old])
            counts.new_logits += _binned(raw[:, num_old:])
            task.advance(len(indices))
    answers = {}
    for name, column in columns.items():
        answers[name] = gathered(torch.from_numpy(column[:done])).numpy()
    everywhere = gathered_objects(counts)
    total = Counts(0, Counter(), Counter())
    for part in everywhere:
        total.in_top5 += part.in_top5
        total.old_logits += part.old_logits
        total.new_logits += part.new_logits
    return answers, total


def per_group(
    predicted: Indices, true: Indices, classes_per_step: Sequence[int]
) -> list[float | None]:
    """Accuracy on the classes of each step, in percent. None for a step without new classes."""
    num_steps = len(classes_per_step)
    steps = np.searchsorted(np.cumsum(classes_per_step), true, side="right")
    totals = np.bincount(steps, minlength=num_steps).tolist()
    numbers_right = np.bincount(steps[predicted == true], minlength=num_steps).tolist()
    accuracies: list[float | None] = []
    for step, num_classes in enumerate(classes_per_step):
        if not num_classes:
            accuracies.append(None)
        elif not totals[step]:
            raise UserError(
                f"no test image of the classes of step {step + 1} can be read",
                "fix these images and run again",
            )
        else:
            accuracies.append(100 * (numbers_right[step] / totals[step]))
    return accuracies


def forgetting(per_step: Sequence[Sequence[float | None]]) -> float | None:
    """Mean over old groups of the best past accuracy minus the present one. None in step 1.

    `per_step` holds each step's accuracy per group, the present step last.

    >>> forgetting([[90.0], [80.0, 70.0], [60.0, 75.0, 50.0]])
    12.5
    """
    lost = []
    for group, now in enumerate(per_step[-1][:-1]):
        past = [accuracies[group] for accuracies in per_step[group:-1]]
        known = [accuracy for accuracy in past if accuracy is not None]
        if now is not None and known:
            lost.append(max(known) - now)
    return sum(lost) / len(lost) if lost else None


def _norms_per_group(model: Model) -> list[list[float]]:
    """Minimum, quartiles and maximum of the head's row norms, for the classes of each step."""
    norms = model.network.head.weight.detach().norm(dim=1).cpu().numpy()
    groups = []
    for low, high in pairwise(np.cumsum([0, *model.classes_per_step])):
        quantiles = [0, 0.25, 0.5, 0.75, 1]
        groups.append(np.quantile(norms[low:high], quantiles).tolist() if high > low else [])
    return groups


def _binned(logits: Tensor) -> Counter[int]:
    """The number of logits in each bin, by the bin's number."""
    if not logits.numel():
        return Counter()
    bins = (logits / BIN_WIDTH).floor_().clamp_(-OUTERMOST, OUTERMOST).int()
    low = int(bins.min())
    sizes = torch.bincount(bins.sub_(low).flatten())
    present = sizes.nonzero()[:, 0]
    return Counter(dict(zip((present + low).tolist(), sizes[present].tolist(), strict=True)))


def _dense(counts: Counter[int]) -> dict[str, Any] | None:
    """Counts in bins of equal width from `start` on, in units of logits."""
    if not counts:
        return None
    bins, sizes = np.array(list(counts.items())).T
    factor = 2 ** math.ceil(math.log2(max(1.0, (np.ptp(bins) + 1) / MAX_BINS)))
    low = int(bins.min() // factor)
    width = factor * BIN_WIDTH
    filled = np.bincount(bins // factor - low, weights=sizes).astype(int)
    return {"start": low * width, "width": width, "counts": filled.tolist()}
