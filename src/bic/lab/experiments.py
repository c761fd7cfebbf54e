"""The paper's experiments: their runs, how they are shown, and the paper's numbers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from bic.lab.protocol import DEFAULTS
from bic.lab.published import PUBLISHED
from bic.learn.methods import find_method

# The settings of a RunConfig. `first_classes` is a number n: use the first n classes of the data.
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Line:
    """A row of a table or a curve of a figure: one run per seed."""

    name: str
    settings: Settings
    paper: tuple[float, ...] = ()  # the paper's accuracy after each step, if printed

    @property
    def method(self) -> str:
        return str(self.settings["method"])

    @property
    def is_upper_bound(self) -> bool:
        return find_method(self.method).is_upper_bound


@dataclass(frozen=True)
class Panel:
    """Lines that can be compared: they have the same data and the same steps."""

    title: str
    lines: tuple[Line, ...]
    metric: Literal["top1", "top5"] = "top1"


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper."""

    name: str
    title: str
    panels: tuple[Panel, ...]
    claim: str  # what the paper concludes from it
    confusions: tuple[str, ...] = ()  # names of the lines whose confusion matrix is drawn
    # Points lost against joint training in each panel, by method, as the paper states them.
    degradation: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    note: str = ""

    def lines(self) -> tuple[Line, ...]:
        return tuple(line for panel in self.panels for line in panel.lines)


def published(settings: Settings) -> tuple[float, ...]:
    """The paper's accuracies for a run with these settings; empty if it prints none."""
    if settings.keys() - {"dataset", "steps", "method", "held_out", "exemplars"}:
        return ()
    defaults = {"held_out": DEFAULTS[settings["dataset"]].held_out, "exemplars": "herding"}
    ours = {**defaults, **settings}
    for curve in PUBLISHED:
        theirs = {
            "dataset": curve.dataset,
            "steps": len(curve.accuracies),
            "method": curve.method,
            "held_out": curve.held_out,
            "exemplars": curve.exemplars,
        }
        if ours == theirs:
            return curve.accuracies
    return ()


def _line(name: str, base: Settings, **changes: Any) -> Line:
    """A line with the paper's accuracies, where its tables have them."""
    settings = {**base, **changes}
    return Line(name, settings, published(settings))


def _joint(base: Settings) -> Line:
    """Joint training on all classes in one step: the upper bound that the paper's figures draw."""
    data = {name: value for name, value in base.items() if name in ("dataset", "first_classes")}
    return Line("joint", {**data, "method": "joint", "steps": 1})


def _methods(base: Settings, names: Iterable[str]) -> tuple[Line, ...]:
    """A line per method."""
    return tuple(_line(name, base, method=name) for name in names)


def _in_table(source: str) -> list[str]:
    """The methods in one of the paper's tables."""
    return [curve.method for curve in PUBLISHED if curve.source == source]


CIFAR: Settings = {"dataset": "cifar100", "steps": 5}
CELEB: Settings = {"dataset": "celeb10000", "steps": 10}
IMAGENET: Settings = {"dataset": "imagenet1000", "steps": 10}
IMAGENET_100: Settings = {"dataset": "imagenet100", "steps": 10}

FINETUNE = _line("baseline-1, finetune", CIFAR, method="finetune")
DISTILL = _line("baseline-2, distill", CIFAR, method="distill")
BIC = _line("bic", CIFAR, method="bic")
FC_RETRAIN = _line("fc-retrain", CIFAR, method="fc-retrain")
JOINT = _line("joint", CIFAR, method="joint")
ABLATION = Panel("CIFAR-100, 5 × 20", (FINETUNE, DISTILL, BIC, FC_RETRAIN))

TABLE1 = _methods(IMAGENET, _in_table("Table 1"))
TABLE2 = _methods(CELEB, _in_table("Table 2"))

DEGRADATION = {"icarl": (31.1, 45.2), "eeil": (15.1, 37.2), "bic": (10.5, 16.0)}
LESS_WITH_SCALE = "degradation grows less with scale for bic than for EEIL and iCaRL"


def _at_scale(title: str, base: Settings, metric: Literal["top1", "top5"] = "top1") -> Panel:
    """One of the two scales at which the paper measures degradation."""
    return Panel(title, (*_methods(base, DEGRADATION), _joint(base)), metric)


SCALES = (
    _at_scale("ImageNet-100", IMAGENET_100, "top5"),
    _at_scale("ImageNet-1000", IMAGENET, "top5"),
)


def _fig8_panel(steps: int) -> Panel:
    base = {"dataset": "cifar100", "steps": steps}
    lines = _methods(base, ("lwf", "icarl", "eeil", "bic"))
    return Panel(f"CIFAR-100, {steps} × {100 // steps}", (*lines, _joint(base)))


def _split(parts: int) -> Line:
    """bic with this many tenths of the exemplars held out."""
    return _line(f"{10 - parts}:{parts}", CIFAR, method="bic", held_out=parts / 10)


_ALL = (
    Experiment(
        name="fig1",
        title="Degradation against joint training at two scales",
        panels=SCALES,
        claim=LESS_WITH_SCALE,
        degradation=DEGRADATION,
    ),
    Experiment(
        name="fig4",
        title="Diagnosis: the bias is in the last layer",
        panels=(Panel("CIFAR-100, 5 × 20", (DISTILL, BIC, FC_RETRAIN, JOINT)),),
        claim=(
            "retraining the head alone gains about 20 points; "
            "the rest of the gap to joint is in the features"
        ),
        confusions=(DISTILL.name,),
    ),
    Experiment(
        name="fig5",
        title="Held-out images fit the correction better than trained ones",
        panels=(
            Panel(
                "CIFAR-100, 5 × 20",
                (
                    replace(BIC, name="correction on held-out images"),
                    _line("correction on trained images", CIFAR, method="bic-trained"),
                ),
            ),
        ),
        claim="the correction needs images that the network was not trained on",
    ),
    Experiment(
        name="fig6",
        title="The curves of Tables 1 and 2",
        panels=(
            Panel("ImageNet-1000", (*TABLE1, _joint(IMAGENET)), "top5"),
            Panel("Celeb-10000", (*TABLE2, _joint(CELEB))),
        ),
        claim="the gap to the other methods grows with the number of steps",
    ),
    Experiment(
        name="fig7",
        title="Curves at two scales",
        panels=SCALES,
        claim=LESS_WITH_SCALE,
        degradation=DEGRADATION,
    ),
    Experiment(
        name="fig8",
        title="CIFAR-100 in steps of 5, 10, 20 and 50 classes",
        panels=tuple(_fig8_panel(steps) for steps in (20, 10, 5, 2)),
        claim=(
            "about equal to iCaRL and EEIL: ahead at 20 and 50 classes per step, "
            "a little behind EEIL at 5 and 10"
        ),
    ),
    Experiment(
        name="fig9",
        title="Confusion matrices of the four variants",
        panels=(ABLATION,),
        claim="bic removes most of the bias and comes close to the upper bound",
        confusions=tuple(line.name for line in ABLATION.lines),
    ),
    Experiment(
        name="table1",
        title="ImageNet-1000 in steps of 100 classes",
        panels=(Panel("ImageNet-1000, 10 × 100", TABLE1, "top5"),),
        claim=(
            "bic ends 21.2 points above EEIL and 29.2 above iCaRL in the table "
            "(the paper's text says 18.5 and 26.5)"
        ),
    ),
    Experiment(
        name="table2",
        title="Celeb-10000 in steps of 1,000 classes",
        panels=(Panel("10 × 1,000", TABLE2),),
        claim="the gap to iCaRL grows with the number of steps",
        note=(
            "MS-Celeb-1M is no longer distributed; "
            "any data set of 10,000 classes can take its place."
        ),
    ),
    Experiment(
        name="table3",
        title="Ablation of the losses and the correction",
        panels=(ABLATION,),
        claim=(
            "distillation helps a little, the correction adds 16 points, "
            "and retraining the head on all data would add 4 more"
        ),
    ),
    Experiment(
        name="table4",
        title="Share of the exemplars held out",
        panels=(
            Panel(
                "CIFAR-100, 5 × 20",
                (replace(BIC, name="9:1"), *(_split(parts) for parts in (2, 3, 4))),
            ),
        ),
        claim="9:1 is the best split",
    ),
    Experiment(
        name="table5",
        title="Random exemplars against herding",
        panels=(
            Panel(
                "CIFAR-100, 5 × 20",
                (
                    _line("random", CIFAR, method="bic", exemplars="random"),
                    replace(BIC, name="herding"),
                ),
            ),
        ),
        claim="herding is better by about one point",
    ),
)
EXPERIMENTS = {experiment.name: experiment for experiment in _ALL}

# With the fast recipe, the two scales are the first 20 classes of CIFAR-100 and all 100.
FIRST_20 = {"dataset": "cifar100", "first_classes": 20, "steps": 10, "memory": {"images": 400}}
FAST_SCALES = (
    _at_scale("CIFAR-100's first 20 classes, 10 × 2", FIRST_20),
    _at_scale("CIFAR-100, 10 × 10", {"dataset": "cifar100", "steps": 10}),
)


def experiment(name: str, recipe: str) -> Experiment:
    """The experiment as it is run with a recipe."""
    declared = EXPERIMENTS[name]
    if declared.panels != SCALES or recipe.startswith("paper"):
        return declared
    note = (
        "The paper uses ImageNet-100 and ImageNet-1000 (top-5); "
        "here the two scales are parts of CIFAR-100 (top-1)."
    )
    return replace(declared, panels=FAST_SCALES, note=note)
