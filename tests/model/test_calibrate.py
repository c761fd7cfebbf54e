"""Calibration: the temperature against an independent solver, the threshold, and its files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from support.model_folders import ANSWERS, change_description, made_model
from torch import Tensor

from bic import Learner, Learning, Model, Progress, UserError
from bic.data.from_python import as_image_set
from bic.model import calibrate as calibrate_module
from bic.model.calibrate import PULL, calibrate, fit_temperature
from bic.model.calibration import Calibration
from bic.model.certainty import certainty

QUIET = Progress("quiet")


def drawn(seed: int, num_images: int, num_classes: int, scale: float) -> tuple[Tensor, Tensor]:
    """Logits, and labels that have the probabilities softmax(logits / scale)."""
    draws = np.random.default_rng(seed)
    logits = draws.normal(0, 2 * scale, (num_images, num_classes))
    probabilities = torch.softmax(torch.from_numpy(logits / scale), dim=1).numpy()
    labels = [draws.choice(num_classes, p=row) for row in probabilities]
    return torch.from_numpy(logits), torch.tensor(labels)


def reference(logits: Tensor, labels: Tensor) -> float:
    """The temperature by scipy, from the definition."""
    values = logits.double().numpy()
    positions = labels.numpy()
    counts = np.bincount(positions)
    weights = len(positions) / np.count_nonzero(counts) / counts[positions]

    def loss(log_slope: float) -> float:
        slope = np.exp(log_slope)
        own = values[np.arange(len(values)), positions]
        losses = logsumexp(slope * values, axis=1) - slope * own
        return float(weights @ losses + PULL * (slope - 1 - log_slope))

    found = minimize_scalar(loss, bounds=(-12, 12), method="bounded", options={"xatol": 1e-10})
    return float(np.exp(-found.x))


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    num_images=st.integers(1, 200),
    num_classes=st.integers(1, 30),
    scale=st.sampled_from([0.01, 0.3, 1.0, 4.0, 100.0]),
)
def test_temperature_is_that_of_scipy(
    seed: int, num_images: int, num_classes: int, scale: float
) -> None:
    logits, labels = drawn(seed, num_images, num_classes, scale)
    assert fit_temperature(logits, labels) == pytest.approx(reference(logits, labels), rel=1e-5)


def test_temperature_of_many_images_is_the_true_one() -> None:
    logits, labels = drawn(0, 20_000, 5, scale=3.0)
    assert fit_temperature(logits, labels) == pytest.approx(3.0, rel=0.03)


def test_classes_count_equally() -> None:
    logits, labels = drawn(1, 60, 3, scale=2.0)
    of_first_class = labels == 0
    repeated_logits = torch.cat([logits, *[logits[of_first_class]] * 4])
    repeated_labels = torch.cat([labels, *[labels[of_first_class]] * 4])
    # Five times the images of a class change the weights, but not the mean of any class. Only the
    # pull counts less beside more images.
    pull = PULL * len(repeated_labels) / len(labels)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(calibrate_module, "PULL", pull)
        found = fit_temperature(repeated_logits, repeated_labels)
    assert found == pytest.approx(fit_temperature(logits, labels), rel=1e-9)


def test_few_images_are_pulled_towards_one() -> None:
    right = torch.tensor([[9.0, 0.0], [0.0, 9.0]])
    labels = torch.tensor([0, 1])
    few = fit_temperature(right, labels)
    assert 0.99 < few < 1  # without the pull it would be 0
    assert 1 < fit_temperature(right, 1 - labels) < 6  # and here infinite
    assert fit_temperature(right.repeat(1000, 1), labels.repeat(1000)) < 0.95


def spread_of_temperatures(num_images: int) -> float:
    """The std of the logarithm of the temperature of a calibrated model, over 40 held-out sets."""
    fitted = [fit_temperature(*drawn(seed, num_images, 10, scale=1.0)) for seed in range(40)]
    return float(np.std(np.log(fitted)))


def test_few_images_give_a_steady_temperature() -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(calibrate_module, "PULL", 1e-9)
        without_pull = spread_of_temperatures(20)
    assert without_pull > 0.15
    assert spread_of_temperatures(20) < 0.5 * without_pull


def test_many_images_are_hardly_pulled() -> None:
    logits, labels = drawn(0, 2000, 10, scale=2.0)
    found = fit_temperature(logits, labels)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(calibrate_module, "PULL", 1e-9)
        assert fit_temperature(logits, labels) == pytest.approx(found, rel=0.01)
    assert found == pytest.approx(2.0, rel=0.05)


def test_class_that_is_left_out_counts_for_nothing() -> None:
    logits, labels = drawn(2, 50, 4, scale=2.0)
    left_out = torch.full((50, 1), -torch.inf)
    with_class = torch.cat([logits, left_out], dim=1)
    assert fit_temperature(with_class, labels) == fit_temperature(logits, labels)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_logits_that_are_no_numbers_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="logits must be finite"):
        fit_temperature(torch.tensor([[1.0, value]]), torch.tensor([0]))


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = drawn(3, 40, 6, scale=2.0)
    whole = fit_temperature(logits, labels)
    monkeypatch.setattr(calibrate_module, "CHUNK", 30)
    assert fit_temperature(logits, labels) == pytest.approx(whole, rel=1e-12)


def test_threshold_rejects_the_share_and_not_more() -> None:
    certainties = tuple(number / 100 for number in range(100))
    calibration = Calibration(1.0, certainties, 100)
    for percent in (0, 1, 5, 29, 57, 99):
        threshold = calibration.threshold(percent / 100)
        assert sum(value < threshold for value in certainties) == percent
    assert replace(calibration, certainties=(0.5, 0.7, 0.9)).threshold(0.3) == 0.5
    ties = replace(calibration, certainties=(0.5, 0.5, 0.5, 0.9))
    assert ties.threshold(0.5) == 0.5


@pytest.mark.parametrize("share", [-0.1, 1.0, 5.0, float("nan")])
def test_share_outside_0_to_1_is_refused(share: float) -> None:
    with pytest.raises(UserError, match=r"at least 0 and less than 1, got .*; change reject"):
        Calibration(1.0, (0.5,), 1).threshold(share)


def test_certainty_is_1_minus_the_entropy_in_units_of_the_largest() -> None:
    rows = [[0.25] * 4, [1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]]
    assert certainty(torch.tensor(rows)).tolist() == pytest.approx([0, 1, 0.5])
    assert certainty(torch.ones(3, 1)).tolist() == [1, 1, 1]


@pytest.fixture(scope="module")
def held_out() -> Any:
    pixels = np.random.default_rng(0).integers(0, 256, (30, 8, 8), dtype=np.uint8)
    return as_image_set(pixels, labels=np.arange(30) % 5)


@pytest.mark.parametrize("kind", ANSWERS)
def test_probabilities_are_those_of_the_temperature(kind: str, held_out: Any) -> None:
    model = made_model(kind)
    logits = torch.from_numpy(model.predict_logits(held_out))
    uncalibrated = model.predict_proba(held_out)
    assert np.array_equal(uncalibrated, torch.softmax(logits, dim=1).numpy())
    model.calibration = calibrate(model, held_out, QUIET)
    temperature = model.calibration.temperature
    assert temperature == fit_temperature(logits, torch.from_numpy(held_out.labels))
    expected = torch.softmax(logits / temperature, dim=1)
    assert np.array_equal(model.predict_proba(held_out), expected.numpy())
    judged = model.judged(held_out.take(held_out.everything))
    if kind != "ridge":
        assert torch.equal(judged.certainty, certainty(expected))
    certainties = judged.certainty
    assert model.calibration.certainties == tuple(certainties.sort().values.tolist())
    assert model.calibration.num_images == 30


def test_rejected_images_have_no_answer(held_out: Any) -> None:
    model = made_model()
    with pytest.raises(UserError, match=r"this model is not calibrated.*; leave out reject"):
        model.predict(held_out, reject=0.1)
    model.calibration = calibrate(model, held_out, QUIET)
    answers = model.predict(held_out, reject=0.2)
    assert answers.count(None) == 6
    plain = model.predict(held_out)
    assert model.predict(held_out, reject=0.0) == plain
    entropy = scipy.stats.entropy(model.predict_proba(held_out), axis=1)
    for index in np.argsort(-entropy)[6:]:
        assert answers[index] == plain[index]


def test_many_images_are_thinned_out(held_out: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate_module, "MAX_IMAGES", 10)
    monkeypatch.setattr(calibrate_module, "MAX_CERTAINTIES", 4)
    calibration = calibrate(made_model(), held_out, QUIET)
    assert calibration.num_images == 10
    assert len(calibration.certainties) == 4
    chosen = calibrate_module._bounded(held_out, 5)
    assert np.bincount(chosen.labels).tolist() == [2] * 5


def test_no_images_are_refused(held_out: Any) -> None:
    nothing = held_out.select(np.zeros(0, dtype=np.int64))
    with pytest.raises(UserError, match="there are no held-out images to calibrate"):
        calibrate(made_model(), nothing, QUIET)


def test_calibration_is_saved(tmp_path: Path, held_out: Any) -> None:
    model = made_model("corrected")
    model.calibration = calibrate(model, held_out, QUIET)
    model.save(tmp_path / "model")
    loaded = Model.load(tmp_path / "model")
    assert loaded.calibration == model.calibration
    assert np.array_equal(loaded.predict_proba(held_out), model.predict_proba(held_out))


GOOD = {"temperature": 1.5, "certainties": [0.2, 0.9], "num_images": 2}


@pytest.mark.parametrize(
    "damage",
    [
        {"temperature": 0.0},
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"temperature": 1e7},
        {"temperature": "hot"},
        {"certainties": []},
        {"certainties": [0.9, 0.2]},
        {"certainties": [0.2, 1.5]},
        {"certainties": [0.2, float("nan")]},
        {"certainties": [0.5] * 1001, "num_images": 2000},
        {"certainties": 7},
        {"num_images": 1},
        {"num_images": 0},
        {"num_images": None},
    ],
)
def test_damaged_calibration_is_refused(tmp_path: Path, damage: dict[str, Any]) -> None:
    folder = tmp_path / "model"
    made_model().save(folder)
    change_description(folder, lambda content: content.update(calibration=GOOD))
    calibration = Model.load(folder).calibration
    assert calibration == Calibration(1.5, (0.2, 0.9), 2)
    change_description(folder, lambda content: content.update(calibration={**GOOD, **damage}))
    with pytest.raises(UserError, match="is damaged or not a model"):
        Model.load(folder)


@pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")
def test_learner_calibrates_on_its_held_out_exemplars() -> None:
    draws = np.random.default_rng(0)
    images = draws.integers(0, 256, (40, 8, 8), dtype=np.uint8)
    learner = Learner(Learning(recipe="demo", memory=20, epochs=1))
    learner.learn(images[:20], ["cat", "dog"] * 10)
    assert learner.model.calibration is None
    calibration = learner.calibrate()
    assert calibration is not None
    assert calibration == learner.model.calibration
    assert calibration.num_images == len(learner.memory.held_out_images())
    learner.learn(images[20:], ["fox", "owl"] * 10)
    assert learner.model.calibration is None  # it is another model now
    assert learner.calibrate(learner.memory.train_images()) is not None


def test_method_that_holds_nothing_out_stays_uncalibrated() -> None:
    images = np.random.default_rng(0).integers(0, 256, (20, 8, 8), dtype=np.uint8)
    learner = Learner(Learning(method="distill", recipe="demo", memory=20, epochs=1))
    learner.learn(images, ["cat", "dog"] * 10)
    assert learner.calibrate() is None
    assert learner.model.calibration is None
