"""iCaRL (Rebuffi et al., 2017): sigmoid losses, and the nearest class mean as answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bic.learn.losses import Losses, sigmoid_with_teacher
from bic.learn.methods.method import Method

if TYPE_CHECKING:
    from torch import Tensor


def icarl(
    logits: Tensor, labels: Tensor, teacher: Tensor | None, classes_per_step: Sequence[int]
) -> Losses:
    return {"sigmoid": sigmoid_with_teacher(logits, labels, teacher)}


def _published(epochs: int, milestones: tuple[float, ...]) -> dict[str, Any]:
    """iCaRL's own schedule. The paper's figures for iCaRL are based on it."""
    return {
        "recipe": {
            "epochs": epochs,
            "batch_size": 128,
            "learning_rate": 2.0,
            "optimiser": {"weight_decay": 1e-5},
            "schedule": {"milestones": milestones, "decay": 0.2},
        }
    }


METHOD = Method(
    name="icarl",
    summary="sigmoid losses, nearest class mean",
    loss=icarl,
    answer="nearest mean",
    # The loss is also a mean over outputs, so the published learning rate for 100 classes is 20
    # times that of the other methods. The weight decay is divided by the same factor, so that only
    # the loss is scaled.
    rate_per_class=0.2,
    changes_to={
        "paper-cifar100": _published(70, (0.7, 0.9)),
        "paper-imagenet": _published(60, (2 / 6, 3 / 6, 4 / 6, 5 / 6)),
    },
    gives_probabilities=False,
    colour="#009E73",
    marker="D",
    symbol="diamond",
)
