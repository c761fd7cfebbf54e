"""A model and its held-out images, from every kind of folder."""

from pathlib import Path

import numpy as np
import pytest
from support.command_line import write_arrays
from support.learners import toy_learner
from support.model_folders import made_model
from support.taught import images_of, learn, toy_model

from bic import Learner, UserError
from bic.store.held_out import labelled_for, model_and_held_out

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")


def test_folder_with_versions_gives_the_live_one(tmp_path: Path) -> None:
    folder = toy_model(tmp_path / "shop")
    learn(folder, "ab")
    learn(folder, "cd")
    model, held_out = model_and_held_out(tmp_path / "shop")
    assert model.classes == ("a", "b", "c", "d")
    assert held_out is not None
    summaries = folder.classes()
    counts = np.bincount(held_out.labels, minlength=4).tolist()
    assert counts == [summary.held_out for summary in summaries]
    folder.rollback()
    assert model_and_held_out(tmp_path / "shop")[0].classes == ("a", "b")


def test_saved_learner_and_model_alone(tmp_path: Path) -> None:
    learner: Learner = toy_learner()
    learner.learn(*images_of("ab"))
    learner.save(tmp_path / "learner")
    model, held_out = model_and_held_out(tmp_path / "learner")
    assert model.classes == ("a", "b")
    assert held_out is not None
    assert len(held_out) == len(learner.memory.held_out_images()) > 0
    made_model().save(tmp_path / "model")
    assert model_and_held_out(tmp_path / "model")[1] is None


def test_labelled_images_of_known_classes(tmp_path: Path) -> None:
    model = made_model()
    model.classes = ("9", "3", "1", "7", "0")
    model.retired = (4,)
    images = labelled_for(model, write_arrays(tmp_path / "images.npz"))
    assert sorted(set(images.labels.tolist())) == [1, 2]  # 3 and 1; 0 is retired, 2 is unknown
    assert len(images) == 8
    model.classes = ("a", "b", "c", "d", "e")
    with pytest.raises(UserError, match="has no images of the model's classes"):
        labelled_for(model, tmp_path / "images.npz")
