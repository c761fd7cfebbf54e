"""What the page shows about one run. It is computed here, so that the page stays small."""

import base64
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bic.model.measures import confused_pairs, reliability
from bic.report import measures
from bic.report.looks import look_of
from bic.report.measures import Ints
from bic.report.runs import Run
from bic.store.results import Predictions, StepResult

MAX_BINS = 100  # per side of a confusion matrix
MAX_CELLS = 200_000  # in all confusion matrices of a run that are of one kind
MAX_PAIRS = 200
# Names on the page, and endings of the columns of predictions.
BEFORE_AND_AFTER = (("before", "_uncorrected"), ("after", ""))


def details(run: Run) -> dict[str, Any]:
    """Everything about one run, for the page's script.

    Without predictions, what is computed from them is left out.
    """
    steps = run.result.steps
    sizes = np.diff(run.edges).tolist()
    predictions = run.predictions()
    content: dict[str, Any] = {
        "second": _second_prediction(steps, predictions or []),
        "sizes": sizes,
        "steps": [_step(step, run.edges[: step.step + 1]) for step in steps],
        "seconds": {phase: round(seconds, 2) for phase, seconds in run.seconds.items()},
    }
    if predictions is None:
        return content
    max_bins = min(MAX_BINS, math.isqrt(MAX_CELLS // len(steps)))
    bins = measures.class_bins(sizes, max_bins)
    gives_probabilities = look_of(run.result.method).gives_probabilities
    for record, step, columns in zip(content["steps"], steps, predictions, strict=True):
        record |= _step_with_predictions(columns, run.edges[: step.step + 1], bins)
        if not gives_probabilities:
            del record["calibration"]["after"]
    return {
        **content,
        "bins": bins.tolist(),
        "classes": _classes(predictions, run.seen),
        "pairs": _pairs(predictions[-1], run.seen[-1]),
    }


def classes_to_picture(content: dict[str, Any]) -> list[int]:
    """All class numbers, the most important first: the most confused, then the most forgotten."""
    pairs = content["pairs"]["after"]["listed"] if "pairs" in content else []
    confused = [number for pair in pairs for number in pair[:2]]
    classes = content.get("classes", {"after": [], "best": []})
    forgetting = [
        (best or 0) - (now or 0)
        for now, best in zip(classes["after"], classes["best"], strict=True)
    ]
    most_forgotten = np.argsort(np.negative(forgetting), kind="stable").tolist()
    return [*confused, *most_forgotten, *range(sum(content["sizes"]))]


def _second_prediction(
    steps: Sequence[StepResult], predictions: Sequence[Predictions]
) -> str | None:
    """What makes the final predictions differ from those of the raw logits, if they differ.

    "correction", "classifier" (the method has its own), or None.
    """
    if any(step.alpha is not None for step in steps):
        return "correction"
    if any(step.top1 != step.top1_uncorrected for step in steps):
        return "classifier"
    for columns in predictions:
        if (columns["predicted"] != columns["predicted_uncorrected"]).any():
            return "classifier"
    return None


def _step(step: StepResult, edges: Ints) -> dict[str, Any]:
    """What the result alone says about a step."""
    shares_of_new = {
        "true": step.true_share_of_new,
        "before": step.share_on_new_uncorrected,
        "after": step.share_on_new,
    }
    norms = step.head_norms_per_group
    if step.head_norms:
        norms = measures.five_numbers(np.array(step.head_norms), edges)
    return {
        "seen": step.seen,
        "top1": round(step.top1, 3),
        "uncorrected": round(step.top1_uncorrected, 3),
        "groups": [None if top1 is None else round(top1, 2) for top1 in step.top1_per_group],
        "alpha": step.alpha,
        "beta": step.beta,
        "new": {name: round(share, 5) for name, share in shares_of_new.items()},
        "logits": {
            name: None if histogram is None else histogram.model_dump()
            for name, histogram in step.score_histograms.items()
        },
        "norms": [_plain(group, 4) for group in norms] or None,
    }


def _step_with_predictions(columns: Predictions, edges: Ints, bins: Ints) -> dict[str, Any]:
    """What the predictions add to a step."""
    true = columns["true"]
    bins = np.union1d(bins[bins < edges[-1]], edges[-1:])
    shares: dict[str, Any] = {"true": _plain(measures.shares(true, edges), 5)}
    confusion: dict[str, Any] = {}
    calibration: dict[str, Any] = {}
    for name, ending in BEFORE_AND_AFTER:
        predicted = columns[f"predicted{ending}"]
        confidence = columns[f"confidence{ending}"]
        shares[name] = _plain(measures.shares(predicted, edges), 5)
        confusion[name] = _packed(measures.confusion(true, predicted, bins))
        measured = reliability(confidence, predicted == true)
        bars = zip(*(_plain(column, 4) for column in measured), strict=True)
        calibration[name] = {"error": round(measured.error, 5), "bins": list(bars)}
    return {"shares": shares, "confusion": confusion, "calibration": calibration}


def _classes(
    predictions: Sequence[Predictions], seen: Sequence[int]
) -> dict[str, list[float | None]]:
    """The accuracy of each class: now, without the correction, and the best of earlier steps."""
    after = [
        measures.class_accuracy(columns["true"], columns["predicted"], num_classes)
        for columns, num_classes in zip(predictions, seen, strict=True)
    ]
    last = predictions[-1]
    before = measures.class_accuracy(last["true"], last["predicted_uncorrected"], seen[-1])
    num_images = np.bincount(last["true"], minlength=seen[-1])
    return {
        "after": _plain(after[-1], 2),
        "before": _plain(before, 2),
        "best": _plain(measures.best_past(after), 2),
        "images": _plain(num_images, 2),
    }


def _pairs(columns: Predictions, num_classes: int) -> dict[str, Any]:
    """The pairs of classes that are confused most often."""
    content = {}
    for name, ending in BEFORE_AND_AFTER:
        predicted = columns[f"predicted{ending}"]
        pairs = confused_pairs(columns["true"], predicted, num_classes)
        content[name] = {"listed": pairs[:MAX_PAIRS], "total": len(pairs)}
    return content


def _plain(values: npt.ArrayLike, digits: int) -> Any:
    """Values as JSON has them: rounded, with None for NaN."""
    array = np.round(np.asarray(values), digits).astype(object)
    array[array != array] = None  # only NaN differs from itself
    return array.tolist()


def _packed(counts: Ints) -> dict[str, str]:
    """A matrix as base64 of the smallest sufficient integers, with JavaScript's name for them."""
    bits = next(bits for bits in (8, 16, 32) if counts.max() < 2**bits)
    data = base64.b64encode(counts.astype(f"<u{bits // 8}").tobytes()).decode()
    return {"kind": f"Uint{bits}Array", "data": data}
