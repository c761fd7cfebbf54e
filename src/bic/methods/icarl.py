"""iCaRL: sigmoid losses, and the nearest mean of exemplars as classifier."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bic.losses import sigmoid_with_teacher
from bic.methods.method import Losses, Method


def icarl(scores: Tensor, labels: Tensor, teacher: Tensor | None, heads: Sequence[int]) -> Losses:
    return {"sigmoid": sigmoid_with_teacher(scores, labels, teacher)}


ICARL = Method(
    name="icarl",
    summary="sigmoid losses with the old outputs as targets, nearest mean of exemplars",
    loss=icarl,
    classify="nearest mean",
    # Its loss is a mean over outputs too, so its published rate is 2.0 where others have 0.1.
    learning_rate_scale=20.0,
)
