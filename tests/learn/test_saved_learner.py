"""A learner that is saved and loaded continues as if it had never stopped."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from support.learners import toy_learner
from support.toy import toy_dataset

from bic import (
    RECIPES,
    BiCClassifier,
    Learner,
    Learning,
    Model,
    RunConfig,
    UserError,
    open_model,
    run,
)
from bic.learn.saved_learner import read_learning
from bic.model.saved import tensors

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")


def learn_letters(learner: Learner, classes: list[int]) -> None:
    dataset = toy_dataset(0.8)
    names = [dataset.classes[number] for number in classes]
    learner.learn(dataset.train.of_classes(classes), classes=names)


@pytest.mark.parametrize("method", ["bic", "icarl", "lwf", "wa"])
def test_a_loaded_learner_continues_to_the_same_weights(tmp_path: Path, method: str) -> None:
    learner = toy_learner(method, {"epochs": 1})
    learn_letters(learner, [0, 1])
    learn_letters(learner, [2, 3])
    learner.save(tmp_path / "letters")
    loaded = Learner.load(tmp_path / "letters")
    assert loaded.memory.to_table().equals(learner.memory.to_table())
    for continued in (learner, loaded):
        continued.learning = continued.learning.without_num_classes()
        learn_letters(continued, [4, 5])
    ours = tensors(learner.model)
    for name, tensor in tensors(loaded.model).items():
        np.testing.assert_array_equal(tensor.numpy(), ours[name].numpy(), err_msg=name)
    images = toy_dataset(0.8).test
    assert loaded.model.predict(images) == learner.model.predict(images)


def test_a_finished_run_learns_more_classes(tmp_path: Path) -> None:
    config = RunConfig(dataset="digits", epochs=1)
    run(config, tmp_path / "run", threads=1)
    learner = Learner.load(tmp_path / "run")
    assert learner.learning.num_classes is None
    images = np.random.default_rng(0).integers(0, 256, (20, 8, 8), dtype=np.uint8)
    learner.learn(images, ["noise"] * 20)
    assert learner.model.classes[-1] == "noise"
    assert len(learner.model.classes) == 11
    learner.save(tmp_path / "more")
    assert Model.load(tmp_path / "more").classes == learner.model.classes


def test_what_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    learner = Learner(Learning(recipe="demo", memory=20))
    images = np.random.default_rng(0).integers(0, 256, (20, 8, 8), dtype=np.uint8)
    learner.learn(images, ["a", "b"] * 10)
    learner.model.save(tmp_path / "model only")
    with pytest.raises(UserError, match="cannot learn on"):
        Learner.load(tmp_path / "model only")
    with pytest.raises(UserError, match="does not exist"):
        Learner.load(tmp_path / "nowhere")
    learner.save(tmp_path / "whole")
    with pytest.raises(UserError, match="exists already"):
        learner.save(tmp_path / "whole")
    settings = tmp_path / "whole" / "learning.json"
    content = json.loads(settings.read_text())
    settings.write_text(json.dumps({**content, "seed": 5}))
    with pytest.raises(UserError, match="damaged"):
        Learner.load(tmp_path / "whole")


def test_settings_that_name_another_backbone_are_refused(tmp_path: Path) -> None:
    learner = Learner(Learning(recipe="demo", memory=20))
    images = np.random.default_rng(0).integers(0, 256, (20, 8, 8), dtype=np.uint8)
    learner.learn(images, ["a", "b"] * 10)
    learner.learning = learner.learning.with_recipe(backbone="evil:build")
    learner.save(tmp_path / "evil")
    with pytest.raises(UserError, match="another backbone"):
        Learner.load(tmp_path / "evil")


def test_a_recipe_of_ones_own_is_saved_and_loaded(tmp_path: Path) -> None:
    recipe = RECIPES["demo"].model_copy(update={"name": "mine", "batch_size": 7})
    images = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)

    learner = Learner(Learning(recipe=recipe, memory=20))
    learner.learn(images[:20], ["a", "b"] * 10)
    learner.save(tmp_path / "learner")
    assert Learner.load(tmp_path / "learner").learning == learner.learning

    classifier = BiCClassifier(recipe=recipe, memory=20).fit(images, ["a", "b"] * 20)
    loaded = pickle.loads(pickle.dumps(classifier))
    assert loaded.learner_.learning == classifier.learner_.learning

    folder = open_model(tmp_path / "folder", recipe=recipe, memory=20)
    folder.learn(images[:20], ["a", "b"] * 10)
    folder.learn(images[20:], ["c", "d"] * 10)
    assert folder.model.classes == ("a", "b", "c", "d")
    other = open_model(tmp_path / "folder", recipe=recipe.model_copy(update={"batch_size": 8}))
    with pytest.raises(UserError, match=r"was created with recipe\.batch_size 7, got 8"):
        other.learn(images[:20], ["e", "f"] * 10)


def test_settings_that_were_not_recorded_have_their_first_values() -> None:
    characters = Learning(recipe="characters").model_dump(mode="json")
    del characters["recipe"]["optimiser"]["undo_lambda"]
    del characters["method_settings"]["corrected_teacher"]
    read = read_learning(json.dumps(characters).encode(), Path("old"))
    assert not read.recipe.optimiser.undo_lambda
    assert read.method_settings.model_dump()["corrected_teacher"]

    best = Learning(recipe="best", method="bic").model_dump(mode="json")
    del best["method_settings"]
    read = read_learning(json.dumps(best).encode(), Path("old"))
    assert read.method_settings.model_dump() == {"previous_share": 0.0}
