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


LWF = Method("lwf", "distillation on new data only, no exemplars", lwf, keeps_exemplars=False)

# iCaRL's loss is a mean over outputs too: its published rate for 100 classes is 20 times that of the others. Weight
# decay is divided by the same factor, which makes it a factor of the loss.
ICARL = Method("icarl", "sigmoid losses, nearest class mean", icarl, classify="nearest mean", rate_per_class=0.2)

# With its enhanced augmentation and gradient noise.
_ENHANCED = {"brightness": 63.0, "contrast": 0.8, "gradient_noise": 0.3}
EEIL = Method("eeil", "distillation per head, then balanced fine-tuning", eeil, balanced_phase=True, recipe=_ENHANCED)
