"""Every loss and weight against arithmetic done by hand."""

from __future__ import annotations

from math import exp, log

import pytest
import torch
from torch import Tensor

from bic import METHODS
from bic.learn.losses import (
    classification,
    distillation,
    distillation_per_step,
    old_class_weight,
    sigmoid_with_teacher,
)


def sigmoid(value: float) -> float:
    return 1 / (1 + exp(-value))


def softplus(value: float) -> float:
    return log(1 + exp(value))


def loss_of(
    method: str,
    logits: Tensor,
    labels: list[int],
    teacher: Tensor | None,
    classes_per_step: tuple[int, ...],
) -> dict[str, float]:
    """The terms of a method's loss."""
    terms = METHODS[method].loss(logits, torch.tensor(labels), teacher, classes_per_step)
    return {name: float(term) for name, term in terms.items()}


def test_the_weight_of_old_classes_is_their_share() -> None:
    assert old_class_weight(0, 20) == 0
    assert old_class_weight(20, 20) == 0.5
    assert old_class_weight(80, 20) == 0.8
    assert old_class_weight(20, 80) == 0.2


def test_the_weight_without_new_classes_is_one_half() -> None:
    assert old_class_weight(30, 0) == 0.5


def test_classification_is_the_mean_of_minus_log_softmax() -> None:
    logits = torch.tensor([[1.0, 0.0, -1.0], [0.0, 2.0, 0.0]])
    first = log(exp(1) + 1 + exp(-1)) - 1  # label 0
    second = log(1 + exp(2) + 1) - 0  # label 2
    loss = classification(logits, torch.tensor([0, 2]))
    assert float(loss) == pytest.approx((first + second) / 2, rel=1e-6)


# Distillation


def test_distillation_by_hand() -> None:
    student = torch.tensor([[2.0, 0.0], [0.0, 6.0]])
    teacher = torch.tensor([[4.0, 0.0], [0.0, 2.0]])
    # At temperature 2 the student's margins are 1 and −3, the teacher's 2 and −1 (first class).
    # The cross-entropy of p with softmax(margin) is softplus(−margin) + (1 − p)·margin.
    first = softplus(-1) + (1 - sigmoid(2)) * 1
    second = softplus(3) + (1 - sigmoid(-1)) * -3
    loss = distillation(student, teacher)
    assert float(loss) == pytest.approx((first + second) / 2, rel=1e-6)


def test_distillation_at_another_temperature() -> None:
    student = torch.tensor([[3.0, 0.0]])
    teacher = torch.tensor([[0.0, 3.0]])
    expected = softplus(-1) + (1 - sigmoid(-1)) * 1
    loss = distillation(student, teacher, temperature=3)
    assert float(loss) == pytest.approx(expected, rel=1e-6)


def test_the_softmax_of_distillation_runs_over_classes_and_not_over_the_batch() -> None:
    student = torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, 1.0]])
    teacher = torch.tensor([[2.0, 0.0, 1.0], [-1.0, 1.0, 0.0]])
    loss = distillation(student, teacher)
    per_image = torch.tensor([[5.0], [-7.0]])  # cancels in a softmax over classes
    torch.testing.assert_close(distillation(student + per_image, teacher), loss)
    torch.testing.assert_close(distillation(student, teacher + per_image), loss)
    per_class = torch.tensor([[5.0, -7.0, 0.0]])  # would cancel in a softmax over the batch
    assert abs(float(distillation(student + per_class, teacher) - loss)) > 0.1
    assert abs(float(distillation(student, teacher + per_class) - loss)) > 0.1


def test_distillation_has_no_temperature_squared_factor() -> None:
    zeros = torch.zeros(1, 2)
    assert float(distillation(zeros, zeros)) == pytest.approx(log(2), rel=1e-6)
    student = torch.zeros(1, 2, requires_grad=True)
    teacher = torch.tensor([[1.0, -1.0]])
    distillation(student, teacher).backward()
    # The gradient is (softmax − target) / T, and the teacher's margin at temperature 2 is 1.
    assert student.grad is not None
    assert float(student.grad[0, 0]) == pytest.approx((0.5 - sigmoid(1)) / 2, rel=1e-6)


# BiC and its relatives


def test_bic_weights_eighty_old_and_twenty_new_classes_as_four_to_one() -> None:
    terms = loss_of("bic", torch.zeros(3, 100), [0, 50, 99], torch.zeros(3, 80), (80, 20))
    assert terms["distillation"] == pytest.approx(0.8 * log(80), rel=1e-6)
    assert terms["classification"] == pytest.approx(0.2 * log(100), rel=1e-6)
    assert len(terms) == 2


def test_bic_distils_only_the_old_outputs_but_those_of_every_image() -> None:
    logits = torch.tensor([[2.0, 0.0, 1.0], [0.0, 6.0, 7.0]])
    teacher = torch.tensor([[4.0, 0.0], [0.0, 2.0]])
    terms = loss_of("bic", logits, [2, 1], teacher, (2, 1))
    first = softplus(-1) + (1 - sigmoid(2)) * 1
    second = softplus(3) + (1 - sigmoid(-1)) * -3
    assert terms["distillation"] == pytest.approx(2 / 3 * (first + second) / 2, rel=1e-6)
    new = log(exp(2) + 1 + exp(1)) - 1
    old = log(1 + exp(6) + exp(7)) - 6
    assert terms["classification"] == pytest.approx(1 / 3 * (new + old) / 2, rel=1e-6)


def test_bic_without_new_classes_weights_both_terms_equally() -> None:
    terms = loss_of("bic", torch.zeros(2, 4), [0, 3], torch.zeros(2, 4), (4, 0))
    assert terms == pytest.approx({"distillation": 0.5 * log(4), "classification": 0.5 * log(4)})


@pytest.mark.parametrize("method", [name for name in METHODS if name != "icarl"])
def test_the_loss_of_the_first_step_is_classification_alone(method: str) -> None:
    terms = loss_of(method, torch.zeros(2, 5), [0, 4], None, (5,))
    assert terms == {"classification": pytest.approx(log(5), rel=1e-6)}


def test_distill_has_the_loss_of_bic_and_finetune_has_no_teacher() -> None:
    draws = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 5, generator=draws)
    teacher = torch.randn(4, 3, generator=draws)
    labels = [0, 3, 4, 2]
    terms = loss_of("distill", logits, labels, teacher, (3, 2))
    assert terms == loss_of("bic", logits, labels, teacher, (3, 2))
    assert not METHODS["finetune"].uses_teacher
    terms = loss_of("finetune", logits, labels, None, (3, 2))
    assert terms == {"classification": float(classification(logits, torch.tensor(labels)))}


# iCaRL


def icarl_by_hand(logits: list[float], targets: list[float]) -> float:
    """−t·log σ(s) − (1−t)·log(1−σ(s)) = softplus(s) − t·s, as a mean over outputs."""
    terms = [softplus(s) - t * s for s, t in zip(logits, targets, strict=True)]
    return sum(terms) / len(terms)


def test_the_targets_of_icarl_are_one_hot_in_the_first_step() -> None:
    loss = sigmoid_with_teacher(torch.tensor([[0.5, -1.0]]), torch.tensor([1]), None)
    assert float(loss) == pytest.approx(icarl_by_hand([0.5, -1.0], [0, 1]), rel=1e-6)


def test_the_targets_of_icarl_for_old_outputs_are_the_teachers_for_exemplars_too() -> None:
    logits = [0.5, -1.0, 2.0]
    teacher = torch.tensor([[1.0, -2.0], [1.0, -2.0]])
    labels = torch.tensor([0, 2])  # an exemplar of an old class, and a new image
    exemplar = icarl_by_hand(logits, [sigmoid(1), sigmoid(-2), 0])
    new = icarl_by_hand(logits, [sigmoid(1), sigmoid(-2), 1])
    expected = pytest.approx((exemplar + new) / 2, rel=1e-6)
    batch = torch.tensor([logits, logits])
    assert float(sigmoid_with_teacher(batch, labels, teacher)) == expected
    assert loss_of("icarl", batch, [0, 2], teacher, (2, 1)) == {"sigmoid": expected}


# EEIL


def test_eeil_has_one_unweighted_term_for_each_earlier_step() -> None:
    terms = loss_of("eeil", torch.zeros(2, 9), [0, 8], torch.zeros(2, 5), (2, 3, 4))
    assert terms["distillation"] == pytest.approx(log(2) + log(3), rel=1e-6)
    assert terms["classification"] == pytest.approx(log(9), rel=1e-6)


def test_the_softmaxes_of_eeil_are_separate() -> None:
    student = torch.tensor([[2.0, 0.0, 60.0, 66.0]])
    teacher = torch.tensor([[4.0, 0.0, 10.0, 12.0]])
    first = softplus(-1) + (1 - sigmoid(2)) * 1
    second = softplus(3) + (1 - sigmoid(-1)) * -3
    loss = distillation_per_step(student, teacher, (2, 2))
    assert float(loss) == pytest.approx(first + second, rel=1e-5)


def test_the_balanced_phase_of_eeil_distils_the_newest_classes_too() -> None:
    terms = loss_of("eeil", torch.zeros(2, 9), [0, 8], torch.zeros(2, 9), (2, 3, 4))
    assert terms["distillation"] == pytest.approx(log(2) + log(3) + log(4), rel=1e-6)


@pytest.mark.parametrize("classes_per_step", [(2, 0, 3), (2, 3, 0), (2, 0, 3, 4)])
def test_eeil_has_no_term_for_a_step_without_new_classes(classes_per_step: tuple[int, ...]) -> None:
    zeros = torch.zeros(2, 5)
    loss = distillation_per_step(zeros, zeros, classes_per_step)
    assert float(loss) == pytest.approx(log(2) + log(3), rel=1e-6)


# LwF


def test_lwf_classifies_over_the_new_outputs_only() -> None:
    logits = torch.tensor([[50.0, 0.0, 1.0, 0.0], [0.0, 50.0, 0.0, 3.0]])
    teacher = torch.tensor([[50.0, 0.0], [0.0, 50.0]])
    terms = loss_of("lwf", logits, [2, 2], teacher, (2, 2))
    assert terms["classification"] == pytest.approx((softplus(-1) + softplus(3)) / 2, rel=1e-6)
    # The term has weight 1, but with margins of 25 at temperature 2 it is almost zero.
    assert terms["distillation"] == pytest.approx(0, abs=1e-6)
    flat = loss_of("lwf", torch.zeros(1, 4), [3], torch.zeros(1, 2), (2, 2))
    assert flat == pytest.approx({"distillation": log(2), "classification": log(2)})
