"""The methods the paper compares with: LwF, iCaRL and EEIL."""

from collections.abc import Sequence

from torch import Tensor

from bic.losses import classification, distillation, distillation_per_head, sigmoid_with_teacher
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


def icarl(scores: Tensor, labels: Tensor, teacher: Tensor | None, heads: Sequence[int]) -> Losses:
    return {"sigmoid": sigmoid_with_teacher(scores, labels, teacher)}


def eeil(scores: Tensor, labels: Tensor, teacher: Tensor | None, heads: Sequence[int]) -> Losses:
    """Cross-entropy plus one distilling term per head the teacher knows, weight 1."""
    losses = {"classification": classification(scores, labels)}
    if teacher is not None:
        losses["distillation"] = distillation_per_head(scores, teacher, heads)
    return losses


LWF = Method(
    name="lwf",
    summary="learning without forgetting: distillation on new data only, no exemplars",
    loss=lwf,
    keeps_exemplars=False,
)

ICARL = Method(
    name="icarl",
    summary="sigmoid losses with the old outputs as targets, nearest mean of exemplars",
    loss=icarl,
    classify="nearest mean",
    # Its loss is a mean over outputs too, so its published rate is 2.0 where others have 0.1.
    learning_rate_scale=20.0,
)

EEIL = Method(
    name="eeil",
    summary="distillation per earlier head, then fine-tuning on equally many images per class",
    loss=eeil,
    balanced_phase=True,
    # Its enhanced augmentation and gradient noise.
    recipe={"brightness": 63.0, "contrast": 0.8, "gradient_noise": 0.3},
)
