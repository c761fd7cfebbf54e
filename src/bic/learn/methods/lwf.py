"""LwF: Learning without Forgetting (Li and Hoiem, 2016). Keeps no exemplars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bic.learn.losses import Losses, classification, distillation
from bic.learn.methods.method import Method

if TYPE_CHECKING:
    from torch import Tensor


def lwf(
    logits: Tensor, labels: Tensor, teacher: Tensor | None, classes_per_step: Sequence[int]
) -> Losses:
    """Classification over the outputs of the new classes, plus distillation with weight 1.

    A batch with images of known classes is classified over all outputs.
    """
    if teacher is None:
        return {"classification": classification(logits, labels)}
    num_old = teacher.shape[1]
    new_logits = logits[:, num_old:]
    new_labels = labels - num_old
    if int(new_labels.min()) < 0:
        new_logits = logits
        new_labels = labels
    return {
        "distillation": distillation(logits[:, :num_old], teacher),
        "classification": classification(new_logits, new_labels),
    }


METHOD = Method(
    name="lwf",
    summary="distillation on new data only, no exemplars",
    loss=lwf,
    keeps_exemplars=False,
    colour="#999999",
    marker="^",
    symbol="triangle-up",
)
