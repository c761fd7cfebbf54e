"""The first table of the report, a row per method; and the chart below it, a curve per method."""

import statistics
from typing import Any

from bic.lab.published import Published
from bic.report.comparisons import Comparison, Variant
from bic.report.looks import DASHES, VARIANT_LOOKS, Look, look_of


def rows(comparison: Comparison) -> list[dict[str, Any]]:
    """A row per variant: means over seeds, with their standard deviations."""
    best = comparison.ranked[0] if comparison.ranked else None
    return [_row(variant, best, comparison.published) for variant in comparison.variants]


def _row(variant: Variant, best: Variant | None, published: list[Published]) -> dict[str, Any]:
    runs = variant.runs
    uncorrected = statistics.mean(run.last.top1_uncorrected for run in runs)
    behind = None
    if best is not None and variant is not best and variant.complete:
        behind = variant.final - best.final
    return {
        "variant": variant,
        "best": variant is best,
        "classes": runs[0].last.seen,
        "final": variant.final,
        "final_std": variant.std(lambda run: run.last.top1),
        "behind": behind,
        **_averages(variant),
        "uncorrected": uncorrected if uncorrected != variant.final else None,
        "top5": variant.mean(lambda run: run.last.top5),
        "forgetting": variant.mean(lambda run: run.last.forgetting),
        "paper": _papers_result(variant, published),
        "time": duration(statistics.mean(sum(run.seconds.values()) for run in runs)),
        "seeds": ", ".join(map(str, variant.seeds)),
    }


def _averages(variant: Variant) -> dict[str, float | None]:
    """Averages over steps. An unfinished run has none: they could not be compared."""
    per_run = [run.result.top1 for run in variant.runs]
    averages = [statistics.mean(top1) for top1 in per_run]
    has_later_steps = len(per_run[0]) > 1
    later = None
    if variant.complete and has_later_steps:
        later = statistics.mean(statistics.mean(top1[1:]) for top1 in per_run)
    return {
        "average": statistics.mean(averages) if variant.complete else None,
        "average_std": statistics.stdev(averages) if len(averages) > 1 else None,
        "later": later,
    }


def _papers_result(variant: Variant, published: list[Published]) -> tuple[float, str, str] | None:
    """The paper's final accuracy for this variant, its metric and its table."""
    if not variant.complete:
        return None
    for curve in published:
        if curve.method == variant.method and curve.fits(variant.runs[0].plan):
            return curve.accuracies[-1], curve.metric, curve.source
    return None


def curves(comparison: Comparison) -> dict[str, Any]:
    """Accuracy over the classes seen: a curve per variant, and the curves of the paper."""
    drawn = [
        {
            "label": variant.label + _remark(variant),
            "colour": look.colour,
            "symbol": look.symbol + ("-open" if repeats % 2 else ""),
            "dash": DASHES[repeats % len(DASHES)],
            "bound": variant.is_upper_bound,
            "seeds": len(variant.runs),
            "seen": variant.runs[0].seen,
            "top1": _rounded(variant.curve(lambda step: step.top1)),
            "top5": _rounded(variant.curve(lambda step: step.top5)),
            "uncorrected": _rounded(variant.curve(lambda step: step.top1_uncorrected)),
            "std": _std_per_step(variant),
        }
        for variant, (look, repeats) in zip(
            comparison.variants, _looks(comparison.variants), strict=True
        )
    ]
    single_method = _is_single_method(comparison.variants)
    papers = [
        {
            "label": f"{curve.method}, the paper’s {curve.source}",
            "colour": "#000000" if single_method else look_of(curve.method).colour,
            "symbol": f"{look_of(curve.method).symbol}-open",
            "seen": [curve.step_size * number for number in range(1, len(curve.accuracies) + 1)],
            curve.metric: curve.accuracies,
        }
        for curve in comparison.published
    ]
    return {"curves": drawn, "papers": papers}


def _remark(variant: Variant) -> str:
    """Why a curve cannot be compared with the others, if it cannot."""
    if variant.is_upper_bound:
        return " (sees old data)"
    return " (pretrained)" if variant.is_pretrained else ""


def _is_single_method(variants: list[Variant]) -> bool:
    """Whether there are several variants, all of one method."""
    return len(variants) > 1 and len({variant.method for variant in variants}) == 1


def _looks(variants: list[Variant]) -> list[tuple[Look, int]]:
    """The look of each curve, and how many earlier curves have the same colour.

    Methods have their own colours. Variants of one method alone get different colours.
    """
    if _is_single_method(variants):
        looks = [VARIANT_LOOKS[number % len(VARIANT_LOOKS)] for number in range(len(variants))]
    else:
        looks = [look_of(variant.method) for variant in variants]
    colours = [look.colour for look in looks]
    return [(look, colours[:number].count(look.colour)) for number, look in enumerate(looks)]


def _std_per_step(variant: Variant) -> list[float] | None:
    """The standard deviation of top-1 over seeds, after each step; None for a single seed."""
    if len(variant.runs) < 2:
        return None
    by_step = zip(*(run.result.top1 for run in variant.runs), strict=True)
    return [round(statistics.stdev(top1), 3) for top1 in by_step]


def _rounded(values: list[float | None]) -> list[float | None]:
    return [None if value is None else round(value, 3) for value in values]


def duration(seconds: float) -> str:
    """
    >>> duration(8.04), duration(95), duration(7500)
    ('8.0 s', '1 min 35 s', '2 h 5 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
