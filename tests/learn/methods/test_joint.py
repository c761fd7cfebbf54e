"""Joint: new weights in every step, trained on the images of all classes seen."""

from __future__ import annotations

import torch
from support.learners import FROZEN, State, learn, pixels_of, state_of, toy_learner, toy_steps
from support.toy import toy_dataset

from bic import Model
from bic.compute.seeding import seeded


def test_joint_starts_afresh_in_each_step() -> None:
    dataset = toy_dataset(0.7)
    learner = toy_learner("joint", FROZEN)
    states: list[State] = []
    for step in toy_steps(dataset, "joint"):
        learn(learner, step)
        with seeded(learner.learning.seed, "weights", step.number):
            fresh = Model.fresh("mlp", dataset.train.preprocessing).network
            fresh.head.grow(2 * step.number)
        parameters = dict(learner.model.network.named_parameters())
        for name, value in fresh.named_parameters():
            message = f"{name} of step {step.number}"
            torch.testing.assert_close(parameters[name], value, atol=1e-8, rtol=0, msg=message)
        assert step.everything is not None
        mean = pixels_of(step.everything).float().mean().view(1)
        torch.testing.assert_close(learner.model.network.mean, mean)
        states.append(state_of(learner))
    weights = [state["backbone.1.weight"] for state in states]
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert not torch.allclose(weights[first], weights[second], atol=1e-3)
