"""The formulas of stage 1, as pure functions. All are means over the batch.

torch is imported inside the functions: reports import methods, methods import this module, and a
report must start quickly.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

Losses = dict[str, "Tensor"]  # named terms; training minimises their sum

TEMPERATURE = 2.0  # §6.2 of the paper, following LwF and EEIL


def old_class_weight(num_old: int, num_new: int) -> float:
    """λ = n / (n + m), the weight of the distillation loss (Eq. 3); 0 in the first step.

    A step without new classes has λ = ½: with λ = 1 the labels would not count.

    >>> old_class_weight(20, 20), old_class_weight(80, 20), old_class_weight(0, 20)
    (0.5, 0.8, 0.0)
    """
    return 0.5 if num_new == 0 else num_old / (num_old + num_new)


def classification(logits: Tensor, labels: Tensor) -> Tensor:
    """Softmax cross-entropy over all classes seen (Eq. 2). logits [batch, classes]."""
    import torch.nn.functional as F

    return F.cross_entropy(logits, labels)


def distillation(student: Tensor, teacher: Tensor, *, temperature: float = TEMPERATURE) -> Tensor:
    """Cross-entropy between two softmaxes at a temperature (Eq. 1), with no T² factor.

    Both are logits [batch, old classes]; the softmax runs over classes.
    """
    import torch.nn.functional as F

    return F.cross_entropy(student / temperature, F.softmax(teacher / temperature, dim=1))


def distillation_per_step(
    student: Tensor, teacher: Tensor, classes_per_step: Sequence[int]
) -> Tensor:
    """EEIL's distillation: one term for the classes of each step that the teacher knows, summed."""
    import torch

    ends = [end for end in accumulate(classes_per_step) if end <= teacher.shape[1]]
    terms = []
    for end, size in zip(ends, classes_per_step, strict=False):
        if size:
            part = slice(end - size, end)
            terms.append(distillation(student[:, part], teacher[:, part]))
    return torch.stack(terms).sum()


def sigmoid_with_teacher(logits: Tensor, labels: Tensor, teacher: Tensor | None) -> Tensor:
    """iCaRL's loss: sigmoid cross-entropy over all outputs, mean over batch and outputs.

    The targets are one-hot for new classes. For the outputs of old classes they are the teacher's
    sigmoid outputs, for every sample, exemplars included.
    """
    import torch
    import torch.nn.functional as F

    targets = torch.zeros_like(logits).scatter_(1, labels[:, None], 1.0)
    if teacher is not None:
        targets[:, : teacher.shape[1]] = torch.sigmoid(teacher)
    return F.binary_cross_entropy_with_logits(logits, targets)
