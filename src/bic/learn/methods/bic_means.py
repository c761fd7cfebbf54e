"""BiC whose answer also uses class means, as iCaRL's does. This is ours, not the paper's.

Distillation has a higher temperature than in bic. On splits of training images this kept the
features better, with many classes and with few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bic.learn.losses import Losses, classification, distillation, old_class_weight
from bic.learn.methods import bic

if TYPE_CHECKING:
    from torch import Tensor

TEMPERATURE = 4.0
FACTOR = 4.0  # (4/2)²: the gradient has the size that it has at bic's temperature of 2


def distilling(
    logits: Tensor, labels: Tensor, teacher: Tensor | None, classes_per_step: Sequence[int]
) -> Losses:
    """λ·L_d + (1−λ)·L_c as in bic, at a higher temperature."""
    if teacher is None:
        return {"classification": classification(logits, labels)}
    num_old = teacher.shape[1]
    weight = old_class_weight(num_old, logits.shape[1] - num_old)
    distilled = distillation(logits[:, :num_old], teacher, temperature=TEMPERATURE)
    return {
        "distillation": weight * FACTOR * distilled,
        "classification": (1 - weight) * classification(logits, labels),
    }


METHOD = replace(
    bic.METHOD,
    name="bic-means",
    summary="bic whose answer also uses class means",
    loss=distilling,
    answer="head and means",
    colour="#882255",
    marker="h",
    symbol="hexagon",
)
