"""BiC beyond the paper: the previous network keeps a share in the answer."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from support.learners import are_equal, learn, pixels_of, state_of, toy_learner, toy_steps
from support.toy import toy_dataset

from bic import Correction, Model
from bic.model.answers import BlendedHead, PreviousNetwork, RawHead
from bic.model.network import Network

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")


def test_old_class_logits_are_blended_with_those_of_the_previous_network() -> None:
    network = Network("mlp", channels=2, image_size=None)
    network.head.grow(2)
    previous_logits = torch.tensor([[1.0, 3.0], [0.0, -4.0]])
    network.forward = lambda images: previous_logits  # type: ignore[method-assign]
    images = torch.zeros(2, 2)
    logits = torch.tensor([[10.0, 14.0, 7.0], [2.0, 2.0, 9.0]])
    # With the mean of ours, the previous logits are 11 and 13, 4 and 0.
    half = PreviousNetwork(network, None, 0.5).blend(logits, images)
    assert half.tolist() == [[10.5, 13.5, 7.0], [3.0, 1.0, 9.0]]
    # Corrected, they are 1 and 7, 0 and −7: with the mean of ours 9 and 15, 5.5 and −1.5.
    correction = Correction(2.0, 1.0, num_old=1)
    quarter = PreviousNetwork(network, correction, 0.25).blend(logits, images)
    assert quarter.tolist() == [[9.75, 14.25, 7.0], [2.875, 1.125, 9.0]]


def test_the_previous_network_keeps_its_share_and_is_saved_with_the_model(tmp_path: Path) -> None:
    dataset = toy_dataset(0.7)
    learner = toy_learner(method_settings={"previous_share": 0.5})
    plain = toy_learner(method_settings={"previous_share": 0.0})
    pixels = pixels_of(dataset.test)
    for step in toy_steps(dataset):
        before = None
        if step.number > 1:
            teacher_correction = learner.model.answer.teacher_correction
            before = copy.deepcopy((learner.model.network, teacher_correction))
        learn(learner, step)
        learn(plain, step)
        model = learner.model
        # The share has no effect on training.
        assert are_equal(state_of(learner), state_of(plain))
        assert model.answer.teacher_correction == plain.model.correction
        raw, final = model.logits(pixels)
        model.save(tmp_path / str(step.number))
        loaded = Model.load(tmp_path / str(step.number))
        assert torch.equal(loaded.logits(pixels)[1], final)
        assert loaded.answer.teacher_correction == model.answer.teacher_correction
        if before is None:
            assert isinstance(model.answer, RawHead)
            continue
        previous_network, previous_correction = before
        assert isinstance(model.answer, BlendedHead)
        assert model.answer.previous.correction == previous_correction
        with torch.no_grad():
            previous = PreviousNetwork(previous_network, previous_correction, 0.5)
            blended = previous.blend(raw, pixels)
        assert model.correction is not None
        assert torch.equal(final, model.correction.apply(blended))
        assert not torch.equal(final, plain.model.logits(pixels)[1])
