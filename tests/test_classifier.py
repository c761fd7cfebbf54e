"""BiCClassifier: scikit-learn's contract, new classes in any call, saving and pickling."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from bic import BiCClassifier, Learner, Model, Recipe, UserError
from bic.data.images import array_set
from bic.learn.recipes import VECTORS

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")

IRIS, KINDS = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])[KINDS]


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([BiCClassifier()])
def test_contract_of_scikit_learn(estimator: BaseEstimator, check: Any) -> None:
    """All checks; none is marked as an expected failure."""
    check(estimator)


def pictures(count: int, channels: int = 0, size: int = 8, seed: int = 0) -> np.ndarray:
    """Grey or RGB images of two classes in turn: dark and bright."""
    draws = np.random.default_rng(seed)
    shape = (count, size, size, channels) if channels else (count, size, size)
    images = draws.integers(0, 120, shape)
    images[1::2] += 120
    return images.astype(np.uint8)


def test_new_classes_in_any_call() -> None:
    classifier = BiCClassifier()
    first = KINDS != 1
    classifier.partial_fit(IRIS[first], KINDS[first], classes=[0, 1, 2])
    assert classifier.classes_.tolist() == [0, 2]
    classifier.partial_fit(IRIS[~first], KINDS[~first])
    assert classifier.classes_.tolist() == [0, 1, 2]
    assert classifier.learner_.model.classes == ("0", "2", "1")  # as they were learned
    probabilities = classifier.predict_proba(IRIS)
    assert probabilities.shape == (150, 3)
    assert probabilities.sum(axis=1) == pytest.approx(1)
    assert (classifier.classes_[probabilities.argmax(axis=1)] == classifier.predict(IRIS)).all()
    assert classifier.score(IRIS, KINDS) > 0.8
    known = classifier.learner_
    classifier.partial_fit(IRIS[:1], KINDS[:1])  # one more image of a known class
    assert classifier.learner_ is known
    classifier.fit(IRIS[first], KINDS[first])
    assert classifier.classes_.tolist() == [0, 2]
    assert classifier.learner_ is not known


def test_answers_are_those_of_a_learner() -> None:
    classifier = BiCClassifier(random_state=3, epochs=4, memory=30).fit(IRIS, NAMES)
    learner = Learner(classifier.learner_.learning)
    learner.learn(IRIS, NAMES)
    learner.calibrate()
    assert classifier.learner_.learning.seed == 3
    assert classifier.learner_.learning.memory.images == 30
    assert classifier.predict(IRIS).tolist() == learner.model.predict(IRIS)
    expected = learner.model.predict_proba(IRIS)
    np.testing.assert_allclose(classifier.predict_proba(IRIS), expected, atol=1e-6)


@pytest.mark.parametrize("kind", [np.int8, np.uint64, np.float64, bool, str, object])
def test_labels_keep_their_type(kind: type, tmp_path: Path) -> None:
    chosen = KINDS < 2
    labels = (NAMES if kind in (str, object) else KINDS)[chosen].astype(kind)
    classifier = BiCClassifier(epochs=2).partial_fit(IRIS[chosen], labels)
    expected = np.unique(labels)
    assert classifier.classes_.dtype == expected.dtype
    assert classifier.predict(IRIS).dtype == expected.dtype
    classifier.save(tmp_path / "saved")
    loaded = BiCClassifier.load(tmp_path / "saved")
    assert loaded.classes_.dtype == expected.dtype
    assert loaded.classes_.tolist() == expected.tolist()


def test_one_number_is_one_class_whatever_its_type() -> None:
    classifier = BiCClassifier(epochs=2).partial_fit(IRIS[:100], KINDS[:100])
    classifier.partial_fit(IRIS[50:], KINDS[50:].astype(float))
    assert classifier.classes_.tolist() == [0, 1, 2]
    assert len(classifier.learner_.model.classes) == 3


def test_works_in_pipelines_and_searches() -> None:
    pipeline = make_pipeline(StandardScaler(), BiCClassifier())
    assert cross_val_score(pipeline, IRIS, NAMES, cv=3).mean() > 0.9
    search = GridSearchCV(BiCClassifier(epochs=2), {"memory": [9, 90], "method": ["bic"]}, cv=2)
    search.fit(IRIS, NAMES)
    assert search.best_params_["memory"] in (9, 90)
    copied = clone(search.best_estimator_)
    assert copied.get_params() == search.best_estimator_.get_params()
    with pytest.raises(NotFittedError):
        copied.predict(IRIS)


@pytest.mark.parametrize("channels", [0, 1, 3])
def test_images(channels: int) -> None:
    images = pictures(40, channels)
    labels = ["dark", "bright"] * 20
    classifier = BiCClassifier(epochs=6).partial_fit(images, labels)
    assert classifier.learner_.learning.recipe.backbone == "small"
    assert classifier.n_features_in_ == 64 * max(channels, 1)
    others = pictures(20, channels, seed=1)
    assert classifier.score(others, labels[:20]) > 0.9
    assert (classifier.predict(others / 255) == classifier.predict(others)).all()
    assert (classifier.predict(torch.from_numpy(others)) == classifier.predict(others)).all()
    assert (classifier.predict(list(others)) == classifier.predict(others)).all()
    larger = pictures(8, channels, size=16)
    classifier.partial_fit(larger, ["other"] * 8)  # resized
    assert classifier.classes_.tolist() == ["bright", "dark", "other"]


def test_files_and_image_sets(tmp_path: Path) -> None:
    images = pictures(24, 3, size=12)
    paths = []
    for number, image in enumerate(images):
        paths.append(tmp_path / f"{number}.png")
        Image.fromarray(image).save(paths[-1])
    labels = [0, 1] * 12
    settings = {"epochs": 1, "backbone": "small", "image_size": 12}
    from_arrays = BiCClassifier(**settings).fit(images, labels).predict_proba(images)
    for given in (paths, np.array(paths), [Image.open(path) for path in paths]):
        same = BiCClassifier(**settings).fit(given, labels)
        np.testing.assert_allclose(same.predict_proba(given), from_arrays, atol=1e-6)
    image_set = array_set(images, np.zeros(24, dtype=np.int64))
    same = BiCClassifier(**settings).fit(image_set, labels)
    np.testing.assert_allclose(same.predict_proba(image_set), from_arrays, atol=1e-6)


def test_pickled_estimator_predicts_and_learns_on() -> None:
    classifier = BiCClassifier(epochs=3, memory=30).partial_fit(IRIS[:100], NAMES[:100])
    content = pickle.dumps(classifier)
    assert b"torch" not in content  # the files of a learner, and no object of torch
    copied = pickle.loads(content)
    np.testing.assert_array_equal(copied.predict_proba(IRIS), classifier.predict_proba(IRIS))
    for estimator in (classifier, copied):
        estimator.partial_fit(IRIS[100:], NAMES[100:])
    np.testing.assert_array_equal(copied.predict_proba(IRIS), classifier.predict_proba(IRIS))
    unfitted = pickle.loads(pickle.dumps(BiCClassifier(memory=7)))
    assert unfitted.get_params()["memory"] == 7
    assert not hasattr(unfitted, "learner_")


def test_saved_estimator_predicts_and_learns_on(tmp_path: Path) -> None:
    recipe = Recipe(**{**VECTORS.model_dump(), "epochs": 3})
    random_state = np.random.RandomState(0)
    classifier = BiCClassifier(recipe=recipe, memory="10KB", random_state=random_state)
    classifier.fit(IRIS[:100], NAMES[:100])
    classifier.save(tmp_path / "flowers")
    loaded = BiCClassifier.load(tmp_path / "flowers")
    assert loaded.get_params()["random_state"] == classifier.learner_.learning.seed
    assert loaded.n_features_in_ == 4
    model = Model.load(tmp_path / "flowers")
    assert model.predict(IRIS) == classifier.predict(IRIS).tolist()
    for estimator in (classifier, loaded):
        estimator.partial_fit(IRIS[100:], NAMES[100:])
    np.testing.assert_array_equal(loaded.predict_proba(IRIS), classifier.predict_proba(IRIS))
    with pytest.raises(UserError, match="exists already"):
        classifier.save(tmp_path / "flowers")


def test_damaged_folders_are_refused(tmp_path: Path) -> None:
    classifier = BiCClassifier(epochs=1).fit(IRIS[:100], NAMES[:100])
    with pytest.raises(UserError, match="holds no estimator"):
        BiCClassifier.load(tmp_path)
    with pytest.raises(NotFittedError):
        BiCClassifier().save(tmp_path / "unfitted")
    changes: list[dict[str, Any]] = [
        {"format": 2},
        {"classes": ["setosa", "other"]},
        {"classes": [1, 2]},
        {"type": "<M8[s]"},
        {"parameters": {"hook": "os.system"}},
        {"parameters": 3},
    ]
    for number, change in enumerate(changes):
        place = tmp_path / str(number)
        classifier.save(place)
        _edit(place / "classifier.json", change)
        with pytest.raises(UserError, match=r"classifier\.json is damaged"):
            BiCClassifier.load(place)


@pytest.mark.parametrize(
    "change", [{"backbone": "theirs:make"}, {"recipe": {"name": "vectors", "backbone": "a:b+mlp"}}]
)
def test_the_next_fit_imports_nothing_that_a_file_names(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    classifier = BiCClassifier(epochs=1).fit(IRIS[:100], NAMES[:100])
    classifier.save(tmp_path / "theirs")
    parameters = classifier.get_params() | {"random_state": 0} | change
    _edit(tmp_path / "theirs" / "classifier.json", {"parameters": parameters})
    with pytest.raises(UserError, match="would be imported and run"):
        BiCClassifier.load(tmp_path / "theirs")
    trusted = BiCClassifier.load(tmp_path / "theirs", trust=True)
    assert change.items() <= trusted.get_params().items()


def _edit(path: Path, change: dict[str, Any]) -> None:
    """Change a JSON file and its checksum."""
    import hashlib

    content = json.dumps({**json.loads(path.read_text()), **change}).encode()
    path.write_bytes(content)
    checksums = path.parent / "checksums.json"
    known = json.loads(checksums.read_text())
    known[path.name] = hashlib.sha256(content).hexdigest()
    checksums.write_text(json.dumps(known))


def test_mistakes_are_value_errors_with_a_remedy() -> None:
    mistakes: list[tuple[dict[str, Any], Any, Any, str]] = [
        ({"method": "bicc"}, IRIS, NAMES, "unknown method 'bicc'; did you mean 'bic'"),
        ({"backbone": "fast"}, IRIS, NAMES, "takes square images"),
        ({"memory": 3}, IRIS, NAMES, "memory must hold two images"),
        ({"image_size": 8}, IRIS, NAMES, "vectors have no image size"),
        ({}, IRIS[:51], KINDS[:51], "class '1' has only 1 training image"),
        ({}, IRIS, NAMES[:3], "X has 150 rows and y has 3"),
        ({}, pictures(4)[:, :3], [0, 1, 0, 1], "images must be square"),
        ({}, ["nowhere.jpg", "b.jpg"], [0, 1], "can't read nowhere.jpg"),
        ({}, IRIS, [object()] * 150, "labels|label type"),
    ]
    for settings, given, labels, message in mistakes:
        with pytest.raises(ValueError, match=message):
            BiCClassifier(**settings).fit(given, labels)


def test_failed_calls_change_nothing() -> None:
    classifier = BiCClassifier(epochs=2).fit(IRIS[:100], NAMES[:100])
    before = classifier.predict_proba(IRIS)
    failing: list[tuple[Any, Any, str]] = [
        (IRIS[:, :3], NAMES, "3 features"),
        (pictures(4), ["a", "b", "a", "b"], "the model takes vectors of 4 numbers, got images"),
        (IRIS[100:101], NAMES[100:101], "class 'virginica' has only 1 training image"),
        (IRIS, KINDS, "the known classes are names"),
    ]
    for given, labels, message in failing:
        with pytest.raises(ValueError, match=message):
            classifier.partial_fit(given, labels)
        np.testing.assert_array_equal(classifier.predict_proba(IRIS), before)
    assert classifier.classes_.tolist() == ["setosa", "versicolor"]


def test_training_leaves_the_number_of_threads_alone() -> None:
    before = torch.get_num_threads()
    BiCClassifier(epochs=1).fit(IRIS, NAMES)
    assert torch.get_num_threads() == before


def test_default_recipe_for_vectors_learns_digits_in_steps() -> None:
    images, labels = load_digits(return_X_y=True)
    classifier = BiCClassifier(memory=300)
    for classes in ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9)):
        chosen = np.isin(labels[:1300], classes)
        classifier.partial_fit(images[:1300][chosen], labels[:1300][chosen])
    assert classifier.score(images[1300:], labels[1300:]) > 0.85
