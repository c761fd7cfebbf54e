"""A model folder with an exact head: its moments are stored, shared, emptied and checked."""

from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from support.taught import images_of, learn, probabilities, test_images, toy_model

from bic import Learner, Learning, ModelFolder, UserError, open_model
from bic.data.images import array_set
from bic.model.version_files import live_version, read_root

MOMENTS = "moments.safetensors"
WEIGHTS = "weights.safetensors"


def taught(folder: Path, *lessons: str) -> ModelFolder:
    model = toy_model(folder, method="ridge", random_features=50)
    for classes in lessons:
        learn(model, classes)
    return model


def tensors_of(folder: Path, file: str) -> dict[str, np.ndarray]:
    """The tensors in a file of the live version."""
    version = live_version(folder, read_root(folder))
    content = (folder / version.files[file].name).read_bytes()
    return dict(safetensors.numpy.load(content))


def accuracy(model: ModelFolder) -> float:
    images, names = test_images()
    known = set(model.model.classes)
    chosen = [index for index, name in enumerate(names) if name in known]
    answers = model.predict(images[chosen])
    return float(np.mean([answers[row] == names[i] for row, i in enumerate(chosen)]))


def test_a_model_is_learned_in_lessons_and_predicts_the_same_when_it_is_opened_again(
    tmp_path: Path,
) -> None:
    model = taught(tmp_path / "m", "ab", "cd", "ef")
    assert accuracy(model) > 0.8
    assert np.array_equal(probabilities(open_model(tmp_path / "m")), probabilities(model))
    stored = tensors_of(tmp_path / "m", MOMENTS)
    assert stored["counts"].tolist() == [17.0] * 4 + [21.0] * 2  # of 24 images each
    assert stored["scatter"].dtype == np.float32
    assert model.check().damages == ()


def test_a_learner_whose_memory_lacks_a_class_is_taken_over(tmp_path: Path) -> None:
    learner = Learner(Learning(method="ridge", recipe="demo", memory=0, held_out_limit=1))
    learner.learn(*images_of("ab"))
    counts = [learner.memory.classes[position].num_images for position in (0, 1)]
    assert sorted(counts) == [0, 1]
    learner.save(tmp_path / "m")
    model = open_model(tmp_path / "m")
    model.learn(*images_of("cd"))
    assert model.model.classes == ("a", "b", "c", "d")
    assert model.check().damages == ()


def test_a_rollback_can_learn_on(tmp_path: Path) -> None:
    model = taught(tmp_path / "m", "ab", "cd", "ef")
    straight = taught(tmp_path / "n", "ab", "ef")
    model.rollback(1)
    learn(model, "ef")
    # The versions have other numbers, and draw other held-out images, but not much differs.
    assert accuracy(model) == pytest.approx(accuracy(straight), abs=0.1)
    assert tensors_of(tmp_path / "m", MOMENTS)["counts"].tolist() == [17.0] * 4


def test_a_retired_class_leaves_no_row_in_any_version(tmp_path: Path) -> None:
    model = taught(tmp_path / "m", "ab", "cd")
    model.retire("a")
    for number in (2, 1):
        model.rollback(number)
        weights = tensors_of(tmp_path / "m", WEIGHTS)
        moments = tensors_of(tmp_path / "m", MOMENTS)
        assert not weights["answer.weight"][0].any()
        assert weights["answer.weight"][1].any()
        assert not moments["means"][0].any()
        assert moments["counts"][0] == 0
        assert moments["counts"][1] == 17
    model.rollback(2)
    learn(model, "e")
    assert accuracy(model) > 0.8


def test_only_held_out_images_are_kept_with_a_memory_of_zero(tmp_path: Path) -> None:
    model = toy_model(tmp_path / "m", method="ridge", memory=0, random_features=50)
    learn(model, "abc")
    learn(model, "def")
    assert [(summary.kept, summary.held_out) for summary in model.classes()] == [(7, 7)] * 6
    assert accuracy(model) > 0.8


def test_nothing_is_kept_without_held_out_images(tmp_path: Path) -> None:
    model = toy_model(tmp_path / "m", method="ridge", memory=0, held_out=0, random_features=50)
    report = learn(model, "abc")
    learn(model, "def")
    assert report.memory_images == 0
    assert [(summary.kept, summary.held_out) for summary in model.classes()] == [(0, 0)] * 6
    assert accuracy(model) > 0.8
    assert model.model.calibration is None


@pytest.mark.parametrize("settings", [{"memory": 0}, {"held_out": 0}])
def test_other_methods_need_exemplars_and_held_out_images(
    tmp_path: Path, settings: dict[str, int]
) -> None:
    with pytest.raises(UserError, match="more than 0 for bic-means"):
        learn(toy_model(tmp_path / "m", method="bic-means", **settings), "ab")


def test_damaged_moments_are_named(tmp_path: Path) -> None:
    model = taught(tmp_path / "m", "ab")
    version = live_version(tmp_path / "m", read_root(tmp_path / "m"))
    path = tmp_path / "m" / version.files[MOMENTS].name
    path.write_bytes(path.read_bytes()[:-8] + b"12345678")
    assert [damage.file for damage in model.check().damages] == [version.files[MOMENTS].name]
    with pytest.raises(UserError, match=path.name):
        learn(model, "cd")


def test_a_learner_is_saved_with_its_moments_in_double_precision(tmp_path: Path) -> None:
    own = {"random_features": 50}
    settings = Learning(method="ridge", recipe="demo", memory=48, held_out=0.3, method_settings=own)
    learner = Learner(settings)
    learner.learn(*images_of("abc"))
    learner.save(tmp_path / "saved")
    again = Learner.load(tmp_path / "saved")
    for each in (learner, again):
        each.learn(*images_of("def"))
    images, _ = test_images()
    assert np.array_equal(learner.model.predict_proba(images), again.model.predict_proba(images))
    (tmp_path / "saved" / MOMENTS).unlink()
    with pytest.raises(UserError, match=r"moments\.safetensors"):
        Learner.load(tmp_path / "saved")


def test_none_of_these_is_an_image_far_from_all_class_means(tmp_path: Path) -> None:
    model = taught(tmp_path / "m", "abc")
    assert model.model.calibration is not None
    means = model.model.answer.means
    np.testing.assert_allclose(np.linalg.norm(means.numpy(), axis=1), 1, rtol=1e-5)
    images, names = test_images()
    outputs = model.model.outputs(array_set(images, np.zeros(len(images), np.int64)).pixels)
    features = outputs.features.detach().numpy()
    cosines = features @ means.numpy().T / np.linalg.norm(features, axis=1, keepdims=True)
    expected = (1 + cosines.max(axis=1)) / 2 >= model.model.threshold(0.1)
    answers = model.predict(images, reject=0.1)
    assert [answer is not None for answer in answers] == expected.tolist()
    is_known = np.isin(names, list("abc"))
    rejected = ~expected
    assert rejected[~is_known].mean() > rejected[is_known].mean() + 0.1
