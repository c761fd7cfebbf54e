"""Method: the few parts in which methods differ, as data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

Losses = dict[str, Tensor]

# (scores [batch, seen], labels [batch], teacher's scores [batch, old] or None in the first step, the number of classes
# learned in each step) → named terms whose sum is minimised
Loss = Callable[[Tensor, Tensor, Tensor | None, Sequence[int]], Losses]


@dataclass(frozen=True)
class Method:
    """How one method learns a step. The training loop, memory and evaluation are shared.

    `sees_old_data` marks the upper bounds: "head" retrains the head alone on all classes' data for evaluation,
    "network" trains everything on them.
    """

    name: str
    summary: str
    loss: Loss
    uses_teacher: bool = True
    keeps_exemplars: bool = True
    corrects: bool = False  # holds images out and fits a Correction on them
    corrects_on: Literal["held out", "trained"] = "held out"  # or on as many that were trained on, to show why not
    classify: Literal["scores", "nearest mean"] = "scores"
    sees_old_data: Literal["never", "head", "network"] = "never"
    starts_afresh: bool = False
    balanced_phase: bool = False
    recipe: Mapping[str, Any] = field(default_factory=dict)  # settings it brings to any recipe
    rate_per_class: float | None = None  # the learning rate's factor for each class of the data
