"""LwF: learning without forgetting, without exemplars."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bic.losses import classification, distillation
from bic.methods.method import Losses, Method


def lwf(scores: Tensor, labels: Tensor, teacher: Tensor | None, heads: Sequence[int]) -> Losses:
    """Classification over the new classes' outputs, plus distillation with weight 1."""
    if teacher is None:
        return {"classification": classification(scores, labels)}
    num_old = teacher.shape[1]
    return {
        "distillation": distillation(scores[:, :num_old], teacher),
        "classification": classification(scores[:, num_old:], labels - num_old),
    }


LWF = Method(
    name="lwf",
    summary="learning without forgetting: distillation on new data only, no exemplars",
    loss=lwf,
    keeps_exemplars=False,
)
