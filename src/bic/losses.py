"""The formulas of stage 1, as pure functions. All are means over the batch."""

from collections.abc import Sequence
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor

TEMPERATURE = 2.0  # §6.2 of the paper, following LwF and EEIL


def old_class_weight(num_old: int, num_new: int) -> float:
    """λ = n / (n + m), the weight of the distilling loss (Eq. 3); 0 in the first step.

    With no new class at all, n / (n + m) would silence the labels: λ is then ½.

    >>> old_class_weight(20, 20), old_class_weight(80, 20), old_class_weight(0, 20)
    (0.5, 0.8, 0.0)
    """
    return 0.5 if num_new == 0 else num_old / (num_old + num_new)


def classification(scores: Tensor, labels: Tensor) -> Tensor:
    """Softmax cross-entropy over all classes seen (Eq. 2). scores [batch, classes]."""
    return F.cross_entropy(scores, labels)


def distillation(student: Tensor, teacher: Tensor, *, temperature: float = TEMPERATURE) -> Tensor:
    """Cross-entropy between two softmaxes at a temperature (Eq. 1), with no T² factor.

    Both [batch, old classes]; the softmax runs over classes.
    """
    return F.cross_entropy(student / temperature, F.softmax(teacher / temperature, dim=1))


def distillation_per_head(student: Tensor, teacher: Tensor, heads: Sequence[int]) -> Tensor:
    """EEIL's distilling loss: one `distillation` for each head the teacher knows, summed.

    `heads` are the numbers of classes learned in each step.
    """
    ends = [end for end in accumulate(heads) if end <= teacher.shape[1]]
    parts = [slice(end - size, end) for end, size in zip(ends, heads, strict=False) if size]
    return torch.stack([distillation(student[:, part], teacher[:, part]) for part in parts]).sum()


def sigmoid_with_teacher(scores: Tensor, labels: Tensor, teacher: Tensor | None) -> Tensor:
    """iCaRL's loss: sigmoid cross-entropy over all outputs, mean over batch and outputs.

    Targets are one-hot for new classes and the teacher's sigmoid outputs for the old classes' outputs, for every
    sample, exemplars included.
    """
    targets = torch.zeros_like(scores).scatter_(1, labels[:, None], 1.0)
    if teacher is not None:
        torch.sigmoid(teacher, out=targets[:, : teacher.shape[1]])
    return F.binary_cross_entropy_with_logits(scores, targets)
