"""BiC: distillation, then a correction of the bias towards new classes (Wu et al., 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from bic.learn.losses import TEMPERATURE, Losses, classification, distillation, old_class_weight
from bic.learn.methods.method import Method, MethodSettings

if TYPE_CHECKING:
    from torch import Tensor


class BicSettings(MethodSettings):
    """Our extension of the paper: old-class logits can be blended with the previous network's."""

    # Weight of the previous network's logits in the final logits of old classes.
    previous_share: float = Field(0.0, ge=0, lt=1)


def distilling(
    logits: Tensor,
    labels: Tensor,
    teacher: Tensor | None,
    classes_per_step: Sequence[int],
    *,
    temperature: float = TEMPERATURE,
    factor: float = 1.0,
) -> Losses:
    """λ·L_d + (1−λ)·L_c (Eq. 3). The teacher is corrected; the student's logits are raw.

    `factor` multiplies L_d; the paper has none.
    """
    if teacher is None:
        return {"classification": classification(logits, labels)}
    num_old = teacher.shape[1]
    weight = old_class_weight(num_old, logits.shape[1] - num_old)
    distilled = distillation(logits[:, :num_old], teacher, temperature=temperature)
    return {
        "distillation": weight * factor * distilled,
        "classification": (1 - weight) * classification(logits, labels),
    }


METHOD = Method(
    name="bic",
    summary="distillation, then a correction of the bias towards new classes",
    loss=distilling,
    corrects=True,
    settings=BicSettings,
    changes_to={"best": {"method_settings": {"previous_share": 0.5}}},
    colour="#D55E00",
    marker="o",
    symbol="circle",
)
