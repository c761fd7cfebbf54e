"""Which runs may be compared, and the answer: a row per method with its mean over seeds."""

import json
import statistics
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

from bic.report.published import PUBLISHED, Published
from bic.report.runs import Run, StepRecord
from bic.report.tables import UPPER_BOUNDS

PROTOCOL = ("dataset", "fingerprint", "classes", "class_order", "order_seed", "step_sizes", "memory")
TRAINING = ("recipe.name", "recipe.backbone", "recipe.epochs", "recipe.first_epochs")  # the same for all methods
Settings = dict[str, Any]
Thing = TypeVar("Thing")


def flat(plan: Settings, prefix: str = "") -> Settings:
    """A plan's settings without levels, the memory and the steps in words.

    >>> flat({"memory": {"images": 2000, "bytes": None}, "recipe": {"epochs": 6}, "step_sizes": [20, 20]})
    {'memory': '2,000 images', 'recipe.epochs': 6, 'step_sizes': '2 × 20'}
    """
    found: Settings = {}
    for name, value in plan.items():
        if name == "memory":
            amount, unit = (value["images"], "images") if value["bytes"] is None else (value["bytes"], "bytes")
            found[name] = f"{amount:,} {unit}"
        elif name == "step_sizes":
            found[name] = sizes_in_words(value)
        elif isinstance(value, dict):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def sizes_in_words(sizes: Sequence[int]) -> str:
    """
    >>> sizes_in_words([20] * 5), sizes_in_words([50, 10, 10]), sizes_in_words([4])
    ('5 × 20', '50, 2 × 10', '4')
    """
    counted = [(size, len(list(same))) for size, same in groupby(sizes)]
    return ", ".join(f"{count} × {size}" if count > 1 else f"{size}" for size, count in counted)


def differing(plans: Sequence[Settings], *, but: Iterable[str] = ()) -> list[str]:
    """The names of settings in which flat plans are not all equal."""
    names = dict.fromkeys(name for plan in plans for name in plan if name not in but)
    return [name for name in names if any(plan.get(name) != plans[0].get(name) for plan in plans)]


@dataclass
class Variant:
    """Runs that differ in nothing but their seed, and are as far."""

    runs: list[Run]
    label: str = ""

    @property
    def method(self) -> str:
        return self.runs[0].result.method

    @property
    def complete(self) -> bool:
        return self.runs[0].result.complete

    @property
    def upper_bound(self) -> bool:
        return self.method in UPPER_BOUNDS

    @property
    def seeds(self) -> list[int]:
        return sorted(run.result.seed for run in self.runs)

    def mean(self, value: Callable[[Run], float | None]) -> float | None:
        """The mean over seeds; None where any has no such value."""
        values = [value(run) for run in self.runs]
        return None if None in values else statistics.mean(each for each in values if each is not None)

    def spread(self, value: Callable[[Run], float]) -> float | None:
        """The standard deviation over seeds; None for a single one."""
        return statistics.stdev(map(value, self.runs)) if len(self.runs) > 1 else None

    def curve(self, value: Callable[[StepRecord], float | None]) -> list[float | None]:
        """The mean over seeds after each step."""
        return [self.mean(partial(_at, value, number)) for number in range(len(self.runs[0].seen))]

    @property
    def final(self) -> float:
        return statistics.mean(run.last.top1 for run in self.runs)


@dataclass
class Protocol:
    """Runs that were given the same task, best method first."""

    name: str
    told_apart: str  # the settings that other protocols have otherwise, in words
    variants: list[Variant]
    published: list[Published]

    @property
    def ranked(self) -> list[Variant]:
        """Those that may be called best: complete, and kept from old data."""
        return [variant for variant in self.variants if variant.complete and not variant.upper_bound]


def compare(runs: Sequence[Run]) -> list[Protocol]:
    """Runs by protocol, in the order in which they were given."""
    families = _grouped(runs, lambda run: json.dumps([run.plan[name] for name in PROTOCOL]))
    plans = [flat(family[0].plan) for family in families]
    names = told_apart_by(plans)
    return [
        Protocol(_protocol_name(plan, names), ", ".join(_told(plan, names)), _variants(family), _published(family))
        for plan, family in zip(plans, families, strict=True)
    ]


def told_apart_by(plans: Sequence[Settings]) -> list[str]:
    """The settings of flat plans in which their protocols differ, the telling ones first.

    A fingerprint says nothing where data sets have different names.
    """
    names = [name for name in differing(plans) if name in PROTOCOL]
    data = {(plan["dataset"], plan["fingerprint"]) for plan in plans}
    if len(data) == len({dataset for dataset, _ in data}):
        names = [name for name in names if name != "fingerprint"]
    first = ("step_sizes", "dataset", "memory")
    return [*(name for name in first if name in names), *(name for name in names if name not in first)]


def headline(protocol: Protocol) -> list[str]:
    """The answer in a sentence or two."""
    if not protocol.ranked:
        first = protocol.variants[0]
        reached = f"{first.final:.1f} % on {first.runs[0].last.seen:,} classes"
        if not first.complete:
            return [f"{first.label.removesuffix(', unfinished')} is unfinished: {reached} so far."]
        return [f"{first.label} reaches {reached}, an upper bound that sees old data."]
    best, *others = protocol.ranked
    last = best.runs[0].last
    reached = f"{best.final:.1f} % on {last.seen:,} classes of {best.runs[0].result.dataset}"
    if others:
        ahead = best.final - others[0].final
        said = f"{best.label} is best" if best.label == best.method else f"Best is {best.label}"
        sentences = [f"{said}: {reached}, {ahead:.1f} points ahead of {others[0].label}."]
    else:
        sentences = [f"{best.label} reaches {reached} in {len(best.runs[0].seen)} steps."]
    corrected = next((variant for variant in protocol.ranked if variant.runs[0].last.alpha is not None), None)
    if corrected is not None:
        raw = corrected.mean(lambda run: run.last.top1_uncorrected) or 0.0
        whose = "Its" if corrected is best else f"{corrected.label}’s"
        worth = corrected.final - raw
        verb = "adds" if worth >= 0 else "costs"
        sentences.append(f"{whose} correction {verb} {abs(worth):.1f} points: without it {raw:.1f} %.")
    return sentences


def _at(value: Callable[[StepRecord], float | None], number: int, run: Run) -> float | None:
    return value(run.result.steps[number])


def _grouped(things: Iterable[Thing], key: Callable[[Thing], Hashable]) -> list[list[Thing]]:
    """Things with the same key together, in order of appearance."""
    groups: dict[Hashable, list[Thing]] = {}
    for thing in things:
        groups.setdefault(key(thing), []).append(thing)
    return list(groups.values())


def _protocol_name(plan: Settings, differing_in: Iterable[str]) -> str:
    hidden = [name for name in differing_in if name not in ("dataset", "step_sizes", "memory")]
    always = f"{plan['dataset']}, {plan['step_sizes']} classes, memory of {plan['memory']}"
    return ", ".join([always, *_told(plan, hidden)])


def _variants(family: Sequence[Run]) -> list[Variant]:
    """One per setting other than the seed; those of the same method are told apart by what differs."""
    groups = _grouped(family, lambda run: json.dumps([{**run.plan, "seed": None}, run.result.complete, run.seen]))
    variants = [Variant(group) for group in groups]
    several_recipes = "recipe.name" in differing([flat(variant.runs[0].plan) for variant in variants])
    for variant in variants:
        plans = [flat(other.runs[0].plan) for other in variants if other.method == variant.method]
        names = differing(plans, but=["seed"])
        if several_recipes:  # every label has one, and where a method's differ that says the rest
            alike = "recipe.name" not in names
            names = [name for name in names if not name.startswith("recipe.") or alike] + ["recipe.name"]
        told = _told(flat(variant.runs[0].plan), names)
        state = [] if variant.complete else ["unfinished"]
        variant.label = ", ".join([variant.method, *told, *state])
    return sorted(variants, key=lambda variant: (not variant.complete, -variant.final))


def _told(plan: Settings, names: Iterable[str]) -> list[str]:
    """Settings in few words: `fast recipe`, `5 × 20`, `held-out 0.2`."""
    return [
        f"{plan[name]} recipe" if name == "recipe.name" else str(plan[name]) if name in ("dataset", "step_sizes")
        else f"{name.removeprefix('recipe.').replace('_', ' ')} {str(plan.get(name))[:24]}"
        for name in names
    ]  # fmt: skip


def _published(family: Sequence[Run]) -> list[Published]:
    return [curve for curve in PUBLISHED if any(curve.fits(run.plan) for run in family)]
