"""Finetune: classification loss only, with exemplars. The paper's baseline-1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bic.learn.losses import Losses, classification
from bic.learn.methods.method import Method

if TYPE_CHECKING:
    from torch import Tensor


def classification_only(
    logits: Tensor, labels: Tensor, teacher: Tensor | None, classes_per_step: Sequence[int]
) -> Losses:
    return {"classification": classification(logits, labels)}


METHOD = Method(
    name="finetune",
    summary="classification loss only (baseline-1)",
    loss=classification_only,
    uses_teacher=False,
    colour="#56B4E9",
    marker="v",
    symbol="triangle-down",
)
