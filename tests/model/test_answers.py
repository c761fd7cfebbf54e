"""Answers: final logits by hand, and what each answer says about its corrections."""

import numpy as np
import torch
from support.model_folders import GREY, made_model, prepared_network

from bic import Correction
from bic.model.answers import (
    Blend,
    BlendedHead,
    CorrectedHead,
    HeadAndMeans,
    NearestMean,
    Outputs,
    PreviousNetwork,
    RawHead,
    RetrainedHead,
    cosines,
)

IMAGES = torch.zeros(2, 1, 8, 8, dtype=torch.uint8)
FEATURES = torch.tensor([[3.0, 4.0], [0.0, -2.0]])
LOGITS = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, -6.0]])
OUTPUTS = Outputs(IMAGES, FEATURES, LOGITS)


def test_correction_changes_only_new_classes() -> None:
    correction = Correction(alpha=0.5, beta=10.0, num_old=1)
    expected = [[1.0, 11.0, 11.5], [4.0, 12.5, 7.0]]
    assert correction.apply(LOGITS).tolist() == expected
    assert correction.apply(LOGITS.numpy()).tolist() == expected
    assert LOGITS.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, -6.0]]
    in_place = LOGITS.numpy().copy()
    assert correction.apply_(in_place) is in_place
    assert np.array_equal(in_place, expected)


def test_raw_head_returns_the_logits() -> None:
    answer = RawHead()
    assert answer(OUTPUTS) is LOGITS
    assert answer.correction is None
    assert answer.teacher_correction is None


def test_corrected_head_also_corrects_the_teacher() -> None:
    correction = Correction(2.0, -1.0, 2)
    answer = CorrectedHead(correction)
    assert answer(OUTPUTS).tolist() == [[1.0, 2.0, 5.0], [4.0, 5.0, -13.0]]
    assert answer.correction == answer.teacher_correction == correction


def test_nearest_mean_answers_with_squared_distances_of_normalised_features() -> None:
    answer = NearestMean(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]))
    # The features are normalised to (0.6, 0.8) and (0, -1).
    expected = torch.tensor([[-0.8, -0.4, 0.0], [-2.0, -4.0, -3.6]])
    torch.testing.assert_close(answer(OUTPUTS), expected, atol=1e-5, rtol=0)
    assert answer.correction is None


def test_head_and_means_adds_weighted_cosines_to_corrected_logits() -> None:
    means = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    correction = Correction(2.0, -1.0, num_old=1)
    answer = HeadAndMeans(
        means, Blend(0.5, 10.0, correction), correction=None, teacher_correction=None
    )
    # The normalised features (0.6, 0.8) and (0, -1) have the cosines (0.6, 0.8, 1), (0, -1, -0.8).
    expected = torch.tensor([[0.5 + 6, 3.0 + 8, 5.0 + 10], [2.0, 9.0 - 10, -13.0 - 8]])
    torch.testing.assert_close(answer(OUTPUTS), expected)
    assert LOGITS.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, -6.0]]
    assert answer.correction is None
    assert answer.teacher_correction is None


def test_head_and_means_blends_with_the_previous_network_first() -> None:
    torch.manual_seed(0)
    previous = PreviousNetwork(prepared_network("mlp", GREY, num_classes=2), None, share=0.5)
    means = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    blend = Blend(0.5, 10.0, Correction(2.0, -1.0, num_old=2))
    alone = HeadAndMeans(means, blend, correction=None, teacher_correction=None)
    answer = HeadAndMeans(means, blend, correction=None, teacher_correction=None, previous=previous)
    with torch.no_grad():
        blended = previous.blend(LOGITS, IMAGES)
        expected = alone(Outputs(IMAGES, FEATURES, blended))
        torch.testing.assert_close(answer(OUTPUTS), expected)


def test_a_feature_of_zero_has_the_cosine_zero_to_every_mean() -> None:
    assert cosines(torch.zeros(1, 2), torch.eye(2)).tolist() == [[0.0, 0.0]]


def test_retrained_head_is_linear_in_the_features() -> None:
    answer = RetrainedHead(torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([0.5, -1.0]))
    assert answer(OUTPUTS).tolist() == [[3.5, 7.0], [0.5, -5.0]]


def test_blend_keeps_the_mean_of_the_old_logits() -> None:
    torch.manual_seed(0)
    network = prepared_network("mlp", GREY, num_classes=2)
    correction = Correction(0.5, 3.0, num_old=1)
    previous = PreviousNetwork(network, correction, share=0.25)
    with torch.no_grad():
        teacher = correction.apply(network(IMAGES))
        blended = previous.blend(LOGITS, IMAGES)
    old = LOGITS[:, :2]
    shifted = teacher - teacher.mean(dim=1, keepdim=True) + old.mean(dim=1, keepdim=True)
    torch.testing.assert_close(blended[:, :2], 0.75 * old + 0.25 * shifted)
    torch.testing.assert_close(blended[:, :2].mean(dim=1), old.mean(dim=1))
    assert torch.equal(blended[:, 2:], LOGITS[:, 2:])


def test_blended_head_corrects_the_blend_and_has_another_correction_for_the_teacher() -> None:
    torch.manual_seed(0)
    previous = PreviousNetwork(prepared_network("mlp", GREY, num_classes=2), None, share=0.5)
    correction = Correction(2.0, 1.0, 2)
    teacher_correction = Correction(3.0, 0.0, 2)
    answer = BlendedHead(previous, correction, teacher_correction)
    with torch.no_grad():
        blended = previous.blend(LOGITS, IMAGES)
        torch.testing.assert_close(answer(OUTPUTS), correction.apply(blended))
    assert answer.correction == correction
    assert answer.teacher_correction == teacher_correction


def test_model_has_raw_and_final_logits() -> None:
    model = made_model("corrected")
    images = torch.randint(0, 256, (4, 1, 8, 8), dtype=torch.uint8)
    raw, final = model.logits(images)
    assert model.correction is not None
    assert torch.equal(final, model.correction.apply(raw))
    assert not raw.requires_grad
    assert torch.equal(model.logits(images.numpy())[1], final)
