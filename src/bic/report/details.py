"""What a page shows of one run, worked out here so that the page stays small however many classes there are."""

import base64
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bic.report import measures
from bic.report.measures import Ints
from bic.report.runs import Answers, Run, StepRecord

MAX_BINS, MAX_CELLS = 100, 200_000  # of one confusion matrix's side, and of all a run's matrices of one kind
MAX_PAIRS = 200
BY_DISTANCE = ("icarl",)  # whose own classifier has an order of answers, but no confidence in them
BEFORE, AFTER = "_uncorrected", ""  # endings of the columns of predictions


def details(run: Run) -> dict[str, Any]:
    """Everything about one run, for the page's script; what needs predictions is left out where there are none."""
    steps = run.result.steps
    answers = run.answers()
    found: dict[str, Any] = {
        "second": _second_answer(steps, answers),
        "sizes": np.diff(run.edges).tolist(),
        "steps": [_step(step, run.edges[: step.step + 1]) for step in steps],
        "seconds": {phase: round(seconds, 2) for phase, seconds in run.seconds.items()},
    }
    if answers is not None:
        max_bins = min(MAX_BINS, math.isqrt(MAX_CELLS // len(steps)))
        bins = measures.class_bins(found["sizes"], max_bins)
        found["bins"] = bins.tolist()
        for record, step, columns in zip(found["steps"], steps, answers, strict=True):
            record |= _step_with_answers(columns, run.edges[: step.step + 1], bins)
            if run.result.method in BY_DISTANCE:
                del record["calibration"]["after"]
        found["classes"] = _classes(answers, run.seen)
        last, num_classes = answers[-1], run.seen[-1]
        for name, ending in (("before", BEFORE), ("after", AFTER)):
            pairs = measures.confused_pairs(last["true"], last[f"predicted{ending}"], num_classes)
            found.setdefault("pairs", {})[name] = {"listed": pairs[:MAX_PAIRS], "total": len(pairs)}
    return found


def pictured(found: dict[str, Any]) -> list[int]:
    """Class numbers in the order in which their pictures matter: most confused, most forgotten, then all."""
    pairs = found["pairs"]["after"]["listed"] if "pairs" in found else []
    classes = found.get("classes", {})
    lost = [
        (best or 0) - (now or 0) for now, best in zip(classes.get("after", []), classes.get("best", []), strict=True)
    ]
    worst = np.argsort(np.negative(lost), kind="stable").tolist()
    return [*(number for pair in pairs for number in pair[:2]), *worst, *range(sum(found["sizes"]))]


def _second_answer(steps: Sequence[StepRecord], answers: Sequence[Answers] | None) -> str | None:
    """What stands beside the raw answer: a correction, or another classifier of the method; None if nothing does."""
    if any(step.alpha is not None for step in steps):
        return "correction"
    changed = any(step.top1 != step.top1_uncorrected for step in steps)
    changed |= any((each["predicted"] != each["predicted_uncorrected"]).any() for each in answers or ())
    return "classifier" if changed else None


def _step(step: StepRecord, edges: Ints) -> dict[str, Any]:
    """What the result alone tells of a step."""
    new = {"true": step.true_share_of_new, "before": step.share_on_new_uncorrected, "after": step.share_on_new}
    norms = step.head_norms_per_group
    if step.head_norms:
        norms = measures.five_numbers(np.array(step.head_norms), edges)
    return {
        "seen": step.seen,
        "top1": round(step.top1, 3),
        "raw": round(step.top1_uncorrected, 3),
        "groups": [round(each, 2) for each in step.top1_per_group],
        "alpha": step.alpha,
        "beta": step.beta,
        "new": {name: round(share, 5) for name, share in new.items()},
        "scores": {name: part and part.model_dump() for name, part in step.score_histograms.items()},
        "norms": _plain(norms, 4) if norms else None,
    }


def _step_with_answers(columns: Answers, edges: Ints, bins: Ints) -> dict[str, Any]:
    """What the predictions add to it."""
    true, bins = columns["true"], np.union1d(bins[bins < edges[-1]], edges[-1:])
    found: dict[str, Any] = {
        "shares": {"true": _plain(measures.shares(true, edges), 5)},
        "confusion": {},
        "calibration": {},
    }
    for name, ending in (("before", BEFORE), ("after", AFTER)):
        predicted, confidence = columns[f"predicted{ending}"], columns[f"confidence{ending}"]
        found["shares"][name] = _plain(measures.shares(predicted, edges), 5)
        found["confusion"][name] = _packed(measures.confusion(true, predicted, bins))
        measured = measures.reliability(confidence, predicted == true)
        bars = zip(*(_plain(column, 4) for column in measured), strict=True)
        found["calibration"][name] = {"error": round(measured.error, 5), "bins": list(bars)}
    return found


def _classes(answers: Sequence[Answers], seen: Sequence[int]) -> dict[str, list[float | None]]:
    """Accuracy of each class after the last step, before and after correction, and its best in earlier steps."""
    after = [
        measures.class_accuracy(each["true"], each["predicted"], size) for each, size in zip(answers, seen, strict=True)
    ]
    last = answers[-1]
    before = measures.class_accuracy(last["true"], last["predicted_uncorrected"], seen[-1])
    images = np.bincount(last["true"], minlength=seen[-1])
    columns = {"after": after[-1], "before": before, "best": measures.best_past(after), "images": images}
    return {name: _plain(column, 2) for name, column in columns.items()}


def _plain(values: npt.ArrayLike, digits: int) -> Any:
    """As JSON takes it: rounded, None for NaN."""
    array = np.round(np.asarray(values), digits).astype(object)
    array[array != array] = None  # only NaN differs from itself
    return array.tolist()


def _packed(counts: Ints) -> dict[str, str]:
    """A matrix as base64 of its smallest kind of number, by the name JavaScript has for it."""
    bits = next(bits for bits in (8, 16, 32) if counts.max() < 2**bits)
    return {"kind": f"Uint{bits}Array", "data": base64.b64encode(counts.astype(f"<u{bits // 8}").tobytes()).decode()}
