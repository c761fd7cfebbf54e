"""Retired classes: their logits are −∞, and stage 2 is fitted as if they did not exist."""

from pathlib import Path

import numpy as np
import pytest
import torch
from support.learners import toy_learner
from support.model_folders import ANSWERS, CLASSES, made_model
from support.toy import toy_dataset

from bic import Learner, Model, UserError, fit_correction
from bic.model.features import class_means
from bic.progress import Progress

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")


@pytest.mark.parametrize("kind", ANSWERS)
def test_the_final_logit_is_minus_infinity(kind: str) -> None:
    model = made_model(kind)
    images = np.random.default_rng(0).integers(0, 256, (30, 1, 8, 8), dtype=np.uint8)
    raw, final = model.logits(images)
    model.retired = (1, 3)
    raw_after, final_after = model.logits(images)
    assert torch.equal(raw, raw_after)
    assert torch.equal(final[:, [0, 2, 4]], final_after[:, [0, 2, 4]])
    assert torch.all(final_after[:, [1, 3]] == -torch.inf)
    answers = model.predict_proba(images[:, 0])
    assert np.all(answers[:, [1, 3]] == 0)
    assert not {CLASSES[1], CLASSES[3]} & set(model.predict(images[:, 0]))


def learned(classes: list[int], learner: Learner) -> None:
    dataset = toy_dataset(0.5)
    names = [dataset.classes[number] for number in classes]
    learner.learn(dataset.train.of_classes(classes), classes=names)


def retire(learner: Learner, position: int) -> None:
    learner.model.retired = (position,)
    del learner.memory.classes[position]


def test_the_correction_is_fitted_without_the_class() -> None:
    learner = toy_learner(memory=1000)
    learned([0, 1, 2], learner)
    retire(learner, 1)
    learned([3, 4], learner)
    held_out = learner.memory.held_out_images()
    with torch.no_grad():
        logits = learner.model.network.eval()(held_out.take(held_out.everything))
    by_hand = fit_correction(
        logits[:, [0, 2, 3, 4]], np.searchsorted([0, 2, 3, 4], held_out.labels), 2
    )
    correction = learner.model.correction
    assert correction is not None
    assert correction.alpha == pytest.approx(by_hand.alpha, rel=1e-4)
    assert correction.beta == pytest.approx(by_hand.beta, rel=1e-4, abs=1e-4)


def test_a_correction_of_retired_classes_only_is_the_identity() -> None:
    learner = toy_learner()
    learned([0, 1], learner)
    learned([2], learner)
    retire(learner, 2)
    learned([0], learner)
    correction = learner.model.correction
    assert correction is not None
    assert (correction.alpha, correction.beta, correction.num_old) == (1.0, 0.0, 2)


def test_a_class_without_exemplars_has_a_mean_of_zeros() -> None:
    learner = toy_learner("icarl")
    learned([0, 1, 2], learner)
    retire(learner, 2)
    exemplars = learner.memory.train_images()
    means = class_means(learner.model.network, exemplars, Progress("quiet"), mirrored=False)
    assert means.shape[0] == 3
    assert torch.all(means[2] == 0)
    assert torch.allclose(means[:2].norm(dim=1), torch.ones(2))


def test_the_name_of_a_retired_class_is_taken() -> None:
    learner = toy_learner()
    learned([0, 1], learner)
    retire(learner, 1)
    with pytest.raises(UserError, match="class 'b' is retired; give the class another name"):
        learned([1], learner)


@pytest.mark.parametrize("retired", [[5], [-1], [0, 0], [0, 1, 2, 3, 4]])
def test_positions_that_cannot_be_retired_are_damage(tmp_path: Path, retired: list[int]) -> None:
    model = made_model()
    model.retired = (1,)
    model.save(tmp_path / "good")
    assert Model.load(tmp_path / "good").retired == (1,)
    model.retired = tuple(retired)
    model.save(tmp_path / "bad")
    with pytest.raises(UserError, match="retired classes are not among its classes"):
        Model.load(tmp_path / "bad")
