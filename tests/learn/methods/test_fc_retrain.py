"""fc-retrain: the network of distill, with a head that is retrained for evaluation only."""

from __future__ import annotations

import torch
from support.learners import are_equal, learn, pixels_of, state_of, toy_learner, toy_steps
from support.toy import toy_dataset

from bic.model.answers import RetrainedHead


def test_fc_retrain_continues_from_the_network_of_distill() -> None:
    """Neither the next step nor its teacher uses the retrained head."""
    dataset = toy_dataset(0.7)
    distill = toy_learner("distill")
    retrain = toy_learner("fc-retrain")
    pixels = pixels_of(dataset.test)
    pairs = zip(toy_steps(dataset, "distill"), toy_steps(dataset, "fc-retrain"), strict=True)
    for plain_step, step in pairs:
        learn(distill, plain_step)
        learn(retrain, step)
        assert are_equal(state_of(distill), state_of(retrain))
        assert distill.memory.to_table().equals(retrain.memory.to_table())
        raw, answer = distill.model.logits(pixels)
        assert torch.equal(raw, answer)
        raw_again, retrained_answer = retrain.model.logits(pixels)
        assert torch.equal(raw, raw_again)
        assert isinstance(retrain.model.answer, RetrainedHead)
        assert retrained_answer.shape == raw.shape
        assert not torch.allclose(retrained_answer, raw, atol=1e-2)
        if step.number < 3:  # images of unknown classes get any answer
            assert retrained_answer.argmax(dim=1).tolist() != raw.argmax(dim=1).tolist()
