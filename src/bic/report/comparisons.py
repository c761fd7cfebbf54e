"""Compares runs of the same protocol, and puts the result of the comparison into words."""

import json
import statistics
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bic.lab.published import PUBLISHED, Published
from bic.model.pretrained import is_pretrained
from bic.report.looks import look_of
from bic.report.plans import Settings, differing, flat, name_in_words
from bic.report.runs import Run
from bic.store.results import StepResult

# Runs that differ in one of these settings were given different tasks.
PROTOCOL = (
    "dataset",
    "fingerprint",
    "classes",
    "class_order",
    "order_seed",
    "step_sizes",
    "memory",
)
# Settings that should be the same for all methods that are compared.
TRAINING = ("recipe.name", "recipe.backbone", "recipe.epochs", "recipe.first_epochs")
BROUGHT_BY_RECIPE = ("recipe.", "method_settings.")
Thing = TypeVar("Thing")


@dataclass
class Variant:
    """Runs that differ only in their seed and have done the same number of steps."""

    runs: list[Run]
    label: str = ""

    @property
    def method(self) -> str:
        return self.runs[0].result.method

    @property
    def complete(self) -> bool:
        return self.runs[0].result.complete

    @property
    def is_upper_bound(self) -> bool:
        return look_of(self.method).is_upper_bound

    @property
    def is_pretrained(self) -> bool:
        """Whether the backbone had learned from other images before the first step."""
        return is_pretrained(str(self.runs[0].plan["recipe"]["backbone"]))

    @property
    def seeds(self) -> list[int]:
        return sorted(run.result.seed for run in self.runs)

    @property
    def final(self) -> float:
        """The accuracy after the last step: the mean over seeds."""
        return statistics.mean(run.last.top1 for run in self.runs)

    def mean(self, value: Callable[[Run], float | None]) -> float | None:
        """The mean over seeds; None if a run has no such value."""
        return _mean([value(run) for run in self.runs])

    def std(self, value: Callable[[Run], float]) -> float | None:
        """The standard deviation over seeds; None for a single seed."""
        return statistics.stdev(map(value, self.runs)) if len(self.runs) > 1 else None

    def curve(self, value: Callable[[StepResult], float | None]) -> list[float | None]:
        """The mean over seeds after each step."""
        by_step = zip(*(run.result.steps for run in self.runs), strict=True)
        return [_mean([value(step) for step in same_step]) for same_step in by_step]


@dataclass
class Comparison:
    """Runs of one protocol, the best variant first."""

    name: str
    difference: str  # the settings in which other protocols differ from this one, in words
    variants: list[Variant]
    published: list[Published]

    @property
    def ranked(self) -> list[Variant]:
        """The variants that may be called best: complete, and no upper bounds.

        Pretrained ones are ranked only among themselves.
        """
        ranked = []
        for variant in self.variants:
            if variant.complete and not variant.is_upper_bound:
                ranked.append(variant)
        from_scratch = [variant for variant in ranked if not variant.is_pretrained]
        return from_scratch or ranked


def comparisons(runs: Sequence[Run]) -> list[Comparison]:
    """The runs by protocol, in the order in which the protocols appear."""
    families = _grouped(runs, _protocol_key)
    plans = [flat(family[0].plan) for family in families]
    names = protocol_differences(plans)
    return [
        Comparison(
            name=_protocol_name(plan, names),
            difference=", ".join(_in_words(plan, names)),
            variants=_variants(family),
            published=_published(family),
        )
        for plan, family in zip(plans, families, strict=True)
    ]


def protocol_differences(plans: Sequence[Settings]) -> list[str]:
    """The settings in which the protocols of flat plans differ, the most important first.

    The fingerprint is left out if the names of the data sets tell them apart.
    """
    names = [name for name in differing(plans) if name in PROTOCOL]
    data = {(plan["dataset"], plan["fingerprint"]) for plan in plans}
    if len(data) == len({dataset for dataset, _ in data}):
        names = [name for name in names if name != "fingerprint"]
    important = [name for name in ("step_sizes", "dataset", "memory") if name in names]
    return important + [name for name in names if name not in important]


def headline(comparison: Comparison) -> list[str]:
    """What the comparison shows, in one or two sentences."""
    if not comparison.ranked:
        return [_nothing_ranked(comparison.variants[0])]
    best, *others = comparison.ranked
    reached = f"{_reached(best)} of {best.runs[0].result.dataset}"
    if others:
        lead = best.final - others[0].final
        start = f"{best.label} is best" if best.label == best.method else f"Best is {best.label}"
        sentences = [f"{start}: {reached}, {lead:.1f} points ahead of {others[0].label}."]
    else:
        sentences = [f"{best.label} reaches {reached} in {len(best.runs[0].seen)} steps."]
    for variant in comparison.ranked:
        if variant.runs[0].last.alpha is not None:
            whose = "Its" if variant is best else f"{variant.label}’s"
            return [*sentences, _effect_of_correction(variant, whose)]
    return sentences


def _nothing_ranked(first: Variant) -> str:
    if not first.complete:
        label = first.label.removesuffix(", unfinished")
        return f"{label} is unfinished: {_reached(first)} so far."
    return f"{first.label} reaches {_reached(first)}, an upper bound that sees old data."


def _reached(variant: Variant) -> str:
    return f"{variant.final:.1f} % on {variant.runs[0].last.seen:,} classes"


def _effect_of_correction(variant: Variant, whose: str) -> str:
    uncorrected = statistics.mean(run.last.top1_uncorrected for run in variant.runs)
    gain = variant.final - uncorrected
    verb = "adds" if gain >= 0 else "costs"
    uses_means = variant.runs[0].last.blend is not None
    part = "answer, with correction and class means," if uses_means else "correction"
    return f"{whose} {part} {verb} {abs(gain):.1f} points: without it {uncorrected:.1f} %."


def _mean(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return statistics.mean(present) if len(present) == len(values) else None


def _grouped(things: Iterable[Thing], key: Callable[[Thing], Hashable]) -> list[list[Thing]]:
    """Lists of things with the same key, in order of appearance."""
    groups: dict[Hashable, list[Thing]] = {}
    for thing in things:
        groups.setdefault(key(thing), []).append(thing)
    return list(groups.values())


def _protocol_key(run: Run) -> str:
    return json.dumps([run.plan[name] for name in PROTOCOL])


def _variant_key(run: Run) -> str:
    plan = {**run.plan, "seed": None}
    return json.dumps([plan, run.result.complete, run.seen], sort_keys=True)


def _protocol_name(plan: Settings, differences: Iterable[str]) -> str:
    always = f"{plan['dataset']}, {plan['step_sizes']} classes, memory of {plan['memory']}"
    others = [name for name in differences if name not in ("dataset", "step_sizes", "memory")]
    return ", ".join([always, *_in_words(plan, others)])


def _variants(family: Sequence[Run]) -> list[Variant]:
    """The variants of one protocol. Those of one method are labelled with what differs."""
    variants = [Variant(runs) for runs in _grouped(family, _variant_key)]
    plans = [flat(variant.runs[0].plan) for variant in variants]
    several_recipes = "recipe.name" in differing(plans)
    for variant, plan in zip(variants, plans, strict=True):
        same_method = [other for other in plans if other["method"] == variant.method]
        names = differing(same_method, but=["seed"])
        if several_recipes:
            # Every label names its recipe. Where recipes differ, their names stand for the rest.
            if "recipe.name" in names:
                names = [name for name in names if not name.startswith(BROUGHT_BY_RECIPE)]
            names.append("recipe.name")
        state = [] if variant.complete else ["unfinished"]
        variant.label = ", ".join([variant.method, *_in_words(plan, names), *state])
    return sorted(variants, key=lambda variant: (not variant.complete, -variant.final))


def _in_words(plan: Settings, names: Iterable[str]) -> list[str]:
    """Settings in a few words each: `fast recipe`, `5 × 20`, `held out 0.2`."""
    phrases = []
    for name in names:
        value = str(plan.get(name))
        if name == "recipe.name":
            phrases.append(f"{value} recipe")
        elif name in ("dataset", "step_sizes"):
            phrases.append(value)
        else:
            phrases.append(f"{name_in_words(name)} {value[:24]}")
    return phrases


def _published(family: Sequence[Run]) -> list[Published]:
    return [curve for curve in PUBLISHED if any(curve.fits(run.plan) for run in family)]
