"""BiC and its ablations: the paper's baseline-1, baseline-2, correction, and head upper bound."""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from bic.losses import classification, distillation, old_class_weight
from bic.methods.method import Losses, Method


def classification_only(scores: Tensor, labels: Tensor, teacher: Tensor | None, heads: Sequence[int]) -> Losses:
    return {"classification": classification(scores, labels)}


def distilling(scores: Tensor, labels: Tensor, teacher: Tensor | None, heads: Sequence[int]) -> Losses:
    """L = λ·L_d + (1−λ)·L_c (Eq. 3): the teacher is corrected, the student's scores are raw."""
    if teacher is None:
        return classification_only(scores, labels, teacher, heads)
    num_old = teacher.shape[1]
    weight = old_class_weight(num_old, scores.shape[1] - num_old)
    return {
        "distillation": weight * distillation(scores[:, :num_old], teacher),
        "classification": (1 - weight) * classification(scores, labels),
    }


BIC = Method("bic", "distillation, then the bias towards new classes corrected", distilling, corrects=True)
BIC_TRAINED = replace(BIC, name="bic-trained", summary="the correction fitted on trained images", corrects_on="trained")
DISTILL = replace(BIC, name="distill", summary="distillation without correction (baseline-2)", corrects=False)
FINETUNE = Method("finetune", "classification loss only (baseline-1)", classification_only, uses_teacher=False)
FC_RETRAIN = replace(
    DISTILL, name="fc-retrain", summary="upper bound: head retrained on all data", sees_old_data="head"
)
JOINT = replace(
    FINETUNE, name="joint", summary="upper bound: everything retrained on all data", sees_old_data="network"
)
JOINT = replace(JOINT, keeps_exemplars=False, starts_afresh=True)
