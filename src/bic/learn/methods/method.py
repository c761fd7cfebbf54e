"""Method: the few parts in which methods differ, as data. Importing a method imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from bic.learn.losses import Losses
from bic.settings import Settings

if TYPE_CHECKING:
    from torch import Tensor

    from bic.model.network import Network

# (logits [batch, seen], labels [batch], teacher's logits [batch, old] or None in the first step,
# number of classes learned in each step) → named terms; training minimises their sum
Loss = Callable[["Tensor", "Tensor", "Tensor | None", Sequence[int]], Losses]

# (network, number of old classes): changes the trained network in place
AfterTraining = Callable[["Network", int], None]


class MethodSettings(Settings):
    """The settings that only one method has. Most methods have none."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """How one method learns a step, and how tables and pictures show it.

    The training loop, the memory and the evaluation are shared. `sees_old_data` marks the upper
    bounds: "head" retrains the head on the data of all classes, for evaluation only; "network"
    trains the whole network on this data.
    """

    name: str
    summary: str
    loss: Loss
    uses_teacher: bool = True
    keeps_exemplars: bool = True
    needs_exemplars: bool = True  # False: it learns as well with a memory of 0
    corrects: bool = False  # holds images out and fits a correction on them
    # "trained" fits on the same number of trained images, to show why that fails (Fig. 5).
    corrects_on: Literal["held out", "trained"] = "held out"
    answer: Literal["head", "nearest mean", "head and means", "ridge"] = "head"
    sees_old_data: Literal["never", "head", "network"] = "never"
    starts_afresh: bool = False  # new weights in every step
    trains_once: bool = False  # the network is trained in the first step only, or not at all
    after_training: AfterTraining | None = None  # from the second step on
    balanced_phase: bool = False  # EEIL's fine-tuning, same number of images per class

    settings: type[MethodSettings] = MethodSettings
    # Changes that the method makes to every recipe, and to a recipe of a given name. Keys are those
    # of Learning: {"recipe": {...}, "method_settings": {...}}.
    changes: Mapping[str, Any] = field(default_factory=dict)
    changes_to: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rate_per_class: float | None = None  # the learning rate is multiplied by this × classes

    # How the method is shown.
    colour: str = "#666666"
    marker: str = "o"  # as matplotlib names it
    symbol: str = "circle"  # as plotly names it
    gives_probabilities: bool = True  # whether the softmax of its final logits means anything
    in_demo: bool = True
    listed: bool = True  # False: made for one experiment of the paper

    @property
    def holds_out(self) -> bool:
        """Whether some images of every class are never trained on."""
        return self.corrects or self.answer == "ridge"

    @property
    def is_upper_bound(self) -> bool:
        return self.sees_old_data != "never"
