"""The answer first: the rows of the comparison and the curves of accuracy."""

import statistics
from typing import Any

from bic.report.colours import COLOURS, DASHES, NAMES, PALETTE, SYMBOLS
from bic.report.compare import Protocol, Variant
from bic.report.published import Published
from bic.report.runs import StepRecord


def rows(protocol: Protocol) -> list[dict[str, Any]]:
    """A row per method: means over seeds, with their standard deviation."""
    best = protocol.ranked[0] if protocol.ranked else None
    return [_row(variant, best, protocol.published) for variant in protocol.variants]


def _row(variant: Variant, best: Variant | None, published: list[Published]) -> dict[str, Any]:
    last, runs = variant.runs[0].last, variant.runs
    top1 = [[step.top1 for step in run.result.steps] for run in runs]
    averages = [statistics.mean(accuracies) for accuracies in top1]
    raw = statistics.mean(run.last.top1_uncorrected for run in runs)
    fitting = (curve for curve in published if curve.method == variant.method and curve.fits(variant.runs[0].plan))
    paper = next(fitting, None) if variant.complete else None
    return {
        "variant": variant,
        "best": variant is best,
        "classes": last.seen,
        "final": variant.final,
        "final_spread": variant.spread(lambda run: run.last.top1),
        "behind": variant.final - best.final if best and variant is not best and variant.complete else None,
        # Of fewer steps it would not compare.
        "average": statistics.mean(averages) if variant.complete else None,
        "average_spread": statistics.stdev(averages) if len(averages) > 1 else None,
        "later": statistics.mean(statistics.mean(each[1:]) for each in top1)
        if variant.complete and len(top1[0]) > 1
        else None,
        "raw": raw if raw != variant.final else None,
        "top5": variant.mean(lambda run: run.last.top5),
        "forgetting": variant.mean(lambda run: run.last.forgetting),
        "paper": paper and (paper.accuracies[-1], paper.metric, paper.source),
        "time": duration(statistics.mean(sum(run.seconds.values()) for run in runs)),
        "seeds": ", ".join(map(str, variant.seeds)),
    }


def curves(protocol: Protocol) -> dict[str, Any]:
    """Accuracy over the classes seen: a curve per method, and the paper's.

    A method has its own colour and its variants differ in dashes, but variants of one method alone in colours.
    """
    methods = [variant.method for variant in protocol.variants]
    several = len(set(methods)) > 1 or len(methods) == 1
    drawn = []
    for position, variant in enumerate(protocol.variants):
        own = several and variant.method in NAMES
        place = NAMES.index(variant.method) if own else position % len(PALETTE)
        again = methods[:position].count(variant.method) if own else position // len(PALETTE)
        drawn.append(
            {
                "label": variant.label + (" (sees old data)" if variant.upper_bound else ""),
                "colour": PALETTE[place],
                "symbol": SYMBOLS[place] + ("-open" if again % 2 else ""),
                "dash": DASHES[again % len(DASHES)],
                "bound": variant.upper_bound,
                "seeds": len(variant.runs),
                "seen": variant.runs[0].seen,
                "top1": _rounded(variant.curve(lambda step: step.top1)),
                "top5": _rounded(variant.curve(lambda step: step.top5)),
                "raw": _rounded(variant.curve(lambda step: step.top1_uncorrected)),
                "spread": _spread(variant),
            }
        )
    papers = [
        {
            "label": f"{curve.method}, the paper’s {curve.source}",
            "colour": COLOURS[curve.method] if several else "#000000",
            "symbol": f"{SYMBOLS[NAMES.index(curve.method)]}-open",
            "seen": [curve.step_size * number for number in range(1, len(curve.accuracies) + 1)],
            curve.metric: curve.accuracies,
        }
        for curve in protocol.published
    ]
    return {"curves": drawn, "papers": papers}


def _spread(variant: Variant) -> list[float] | None:
    """The standard deviation of top-1 over seeds, after each step."""
    if len(variant.runs) < 2:
        return None

    def of_step(step: list[StepRecord]) -> float:
        return round(statistics.stdev(each.top1 for each in step), 3)

    return [of_step([run.result.steps[number] for run in variant.runs]) for number in range(len(variant.runs[0].seen))]


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
