"""LwF: it keeps no exemplar and distils on new images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from support.learners import NUM_TRAIN, learn, pixels_of, toy_learner, toy_steps, watch_phases
from support.toy import toy_dataset
from torch import Tensor

from bic import METHODS
from bic.learn.losses import Losses


def test_lwf_distils_on_new_images_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = toy_dataset(0.7)
    phases = watch_phases(monkeypatch)
    lwf = METHODS["lwf"]
    terms: list[Losses] = []
    targets: list[Tensor] = []

    def loss(
        logits: Tensor, labels: Tensor, teacher: Tensor | None, classes_per_step: Sequence[int]
    ) -> Losses:
        terms.append(lwf.loss(logits, labels, teacher, classes_per_step))
        if teacher is not None:
            targets.append(teacher)
        return terms[-1]

    monkeypatch.setitem(METHODS, "lwf", replace(lwf, loss=loss))
    learner = toy_learner("lwf", {"epochs": 1})
    for step in toy_steps(dataset):
        terms.clear()
        targets.clear()
        is_first = step.number == 1
        before = None
        if not is_first:
            before, _ = learner.model.logits(pixels_of(step.images))
        learned = learn(learner, step)
        images = phases["stage 1", step.number].images
        assert torch.equal(pixels_of(images), pixels_of(step.images))
        assert (images.labels - 2 * (step.number - 1)).tolist() == step.images.labels.tolist()
        assert learned.num_train == 2 * NUM_TRAIN
        assert learned.num_exemplars == len(learner.memory) == 0
        names = {"classification"} if is_first else {"classification", "distillation"}
        assert terms
        for batch_terms in terms:
            assert batch_terms.keys() == names
            assert all(term > 0 for term in batch_terms.values())
            assert all(term.requires_grad for term in batch_terms.values())
        if before is None:
            assert targets == []
            continue
        # The teacher's logits are those of the model before the step.
        received = torch.cat(targets)
        assert len(received) == 2 * NUM_TRAIN
        distances = torch.cdist(received, before, compute_mode="donot_use_mm_for_euclid_dist")
        assert distances.min(dim=1).values.max() < 1e-4
        assert distances.min(dim=0).values.max() < 1e-4


def test_images_of_known_classes_are_classified_over_all_outputs() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0], [0.5, 0.0, 1.0]])
    teacher = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    lwf = METHODS["lwf"]
    mixed = lwf.loss(logits, torch.tensor([0, 2]), teacher, (2, 1))
    assert float(mixed["classification"]) == pytest.approx(
        float(torch.nn.functional.cross_entropy(logits, torch.tensor([0, 2])))
    )
    new = lwf.loss(logits, torch.tensor([2, 2]), teacher, (2, 1))
    assert float(new["classification"]) == 0.0, "the only new class has all the probability"


def test_lwf_learns_known_classes() -> None:
    dataset = toy_dataset(0.7)
    learner = toy_learner("lwf", {"epochs": 1})
    learner.learn(dataset.train.of_classes([0, 1]), classes=["a", "b"])
    learner.learn(dataset.train.of_classes([0, 1]), classes=["a", "b"])
    assert learner.model.classes_per_step == (2, 0)
