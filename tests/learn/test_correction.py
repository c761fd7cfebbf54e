"""The correction against an independent solver, known answers, and inputs that decide nothing."""

from __future__ import annotations

import math
import warnings

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from bic import Correction, HeldOutWarning, fit_correction

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]


def loss_and_gradient(
    alpha_beta: Array, logits: Array, labels: Labels, num_old: int, penalty: float = 0.0
) -> tuple[float, Array]:
    """Mean cross-entropy and its gradient [2]. All classes that are present count equally."""
    alpha, beta = alpha_beta
    corrected = logits.copy()
    corrected[:, num_old:] = alpha * logits[:, num_old:] + beta
    weight = 1 / np.bincount(labels)[labels]
    weight /= weight.sum()
    rows = np.arange(len(labels))
    loss = weight @ (logsumexp(corrected, axis=1) - corrected[rows, labels])
    residual = softmax(corrected, axis=1)
    residual[rows, labels] -= 1
    by_alpha = weight @ (residual[:, num_old:] * logits[:, num_old:]).sum(axis=1)
    by_beta = weight @ residual[:, num_old:].sum(axis=1)
    gradient = np.array([by_alpha, by_beta + penalty * beta])
    return float(loss + penalty * beta**2 / 2), gradient


def scipy_optimum(
    logits: Array, labels: Labels, num_old: int, penalty: float = 0.0
) -> tuple[Array, float]:
    """(α, β) and the loss there, by a quasi-Newton method from several starting points."""
    size = float(np.abs(logits).max())
    unit = np.array([size, 1.0])  # brings the logits to size 1

    def objective(point: Array) -> tuple[float, Array]:
        loss, gradient = loss_and_gradient(point / unit, logits, labels, num_old, penalty)
        return loss, gradient / unit

    mean_of_best_old = float(logits[:, :num_old].max(axis=1).mean())
    solutions = [
        minimize(objective, start, jac=True, method="BFGS", options={"gtol": 1e-9})
        for start in [(size, 0.0), (1.0, 0.0), (0.0, mean_of_best_old)]
    ]
    best = min(solutions, key=lambda solution: float(solution.fun))
    return best.x / unit, float(best.fun)


def random_problem(seed: int) -> tuple[Array, Labels, int]:
    """Logits of any size, informative or not, biased or not, with balanced classes or not."""
    draws = np.random.default_rng(seed)
    num_old, num_new = (int(count) for count in draws.integers(1, 15, 2))
    num_classes = num_old + num_new
    num_images = int(draws.integers(10 * num_classes, 600))
    scale = 10 ** draws.uniform(-2, 2)
    shares = draws.dirichlet(np.full(num_classes, 3)) if seed % 2 else None
    labels = draws.choice(num_classes, num_images, p=shares)
    labels[:num_classes] = np.arange(num_classes)
    logits = draws.normal(size=(num_images, num_classes))
    logits[np.arange(num_images), labels] += draws.uniform(0, 1.5)
    logits[:, num_old:] += draws.normal()
    return scale * logits, labels.astype(np.int64), num_old


def fit_without_warning(
    logits: Array, labels: Labels, num_old: int, penalty: float = 0.0
) -> Correction:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeldOutWarning)
        return fit_correction(logits, labels, num_old, penalty=penalty)


def as_array(correction: Correction) -> Array:
    return np.array([correction.alpha, correction.beta])


# The optimum


def check_optimum(seed: int, penalty: float = 0.0) -> None:
    logits, labels, num_old = random_problem(seed)
    correction = fit_without_warning(logits, labels, num_old, penalty)
    fitted = as_array(correction)
    loss, gradient = loss_and_gradient(fitted, logits, labels, num_old, penalty)
    expected, least = scipy_optimum(logits, labels, num_old, penalty)
    assert correction.num_old == num_old
    assert loss <= least + 1e-9
    assert np.abs(gradient / [np.abs(logits).max(), 1]).max() < 1e-8
    unit = np.array([np.abs(logits[:, num_old:]).max(), 1.0])
    assert fitted * unit == pytest.approx(expected * unit, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("seed", range(50))
def test_the_optimum_is_that_of_scipy(seed: int) -> None:
    check_optimum(seed)


@pytest.mark.parametrize("seed", range(100, 115))
@pytest.mark.parametrize("penalty", [0.1, 10.0])
def test_the_optimum_with_a_penalty_is_that_of_scipy(seed: int, penalty: float) -> None:
    check_optimum(seed, penalty)


@pytest.mark.parametrize("bias", [-4.0, 1.0, 4.0])
@pytest.mark.parametrize("size", [30.0, 100.0, 1e3, 1e4])
def test_the_optimum_for_huge_logits_is_found(size: float, bias: float) -> None:
    """At the identity, where the fit starts, the loss has almost no curvature."""
    draws = np.random.default_rng(7)
    labels = draws.integers(0, 6, 400)
    logits = draws.normal(size=(400, 6)) + np.eye(6)[labels] + bias * np.array([0, 0, 0, 1, 1, 1])
    correction = fit_without_warning(size * logits, labels, 3)
    loss, gradient = loss_and_gradient(as_array(correction), size * logits, labels, 3)
    _, least = scipy_optimum(size * logits, labels, 3)
    assert loss <= least * (1 + 1e-6)
    assert np.abs(gradient / [size, 1]).max() < 1e-6


# Known answers


def biased(alpha: float, beta: float, num_images: int = 60_000) -> tuple[Array, Labels]:
    """Logits of 6 old and 4 new classes that are calibrated once α and β correct them.

    Classes are Gaussians around unit vectors and equally frequent, so the softmax of
    log p(image | class) is the right answer.
    """
    draws = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), num_images // 10)
    points = 1.5 * np.eye(10)[labels] + draws.normal(size=(len(labels), 10))
    calibrated = 1.5 * points
    logits = calibrated.copy()
    logits[:, 6:] = (calibrated[:, 6:] - beta) / alpha
    return logits, labels.astype(np.int64)


def test_calibrated_logits_are_not_changed() -> None:
    correction = fit_correction(*biased(alpha=1, beta=0), 6)
    assert (correction.alpha, correction.beta) == pytest.approx((1, 0), abs=0.03)


@pytest.mark.parametrize(("alpha", "beta"), [(0.7, -1.5), (1.4, 0.8), (0.4, -0.5)])
def test_a_known_bias_is_recovered(alpha: float, beta: float) -> None:
    correction = fit_correction(*biased(alpha, beta), 6)
    assert (correction.alpha, correction.beta) == pytest.approx((alpha, beta), abs=0.03)


def test_the_penalty_shrinks_beta() -> None:
    logits, labels = biased(alpha=0.7, beta=-1.5)
    betas = []
    for penalty in (0, 0.1, 1):
        betas.append(abs(fit_correction(logits, labels, 6, penalty=penalty).beta))
    assert betas == sorted(betas, reverse=True)
    assert betas[0] > betas[1] + 0.1 > betas[2] + 0.2


def sampled_labels(logits: Array, seed: int) -> Labels:
    """Labels drawn from the softmax of the logits (Gumbel's trick)."""
    noise = np.random.default_rng(seed).gumbel(size=logits.shape)
    return np.asarray((logits + noise).argmax(axis=1), dtype=np.int64)


@pytest.mark.timeout(15)  # a few Newton iterations of about ten milliseconds each
def test_labels_sampled_from_the_corrected_softmax_give_alpha_and_beta_back() -> None:
    calibrated = np.random.default_rng(3).normal(size=(80_000, 5)) * 2
    labels = sampled_labels(calibrated, 4)
    # By symmetry of the logits the five classes are equally frequent.
    logits = calibrated.copy()
    logits[:, 3:] = (calibrated[:, 3:] + 2) / 0.5
    correction = fit_correction(logits, labels, 3)
    assert (correction.alpha, correction.beta) == pytest.approx((0.5, -2), abs=0.04)
    identity = fit_correction(calibrated, labels, 3)
    assert (identity.alpha, identity.beta) == pytest.approx((1, 0), abs=0.04)


def test_softmax_is_applied_once() -> None:
    """Two classes, solved by hand. A second softmax would give another answer."""
    # 3/4 of the old images have the new logit −1, and 3/4 of the new images have +1.
    logits = np.array([[0.0, 1.0]] * 4 + [[0.0, -1.0]] * 4).repeat(50, axis=0)
    labels = np.array([0, 1, 1, 1, 1, 0, 0, 0]).repeat(50)
    # So the log-odds of new against old are log 3 and −log 3: α + β = −(−α + β) = log 3.
    correction = fit_correction(logits, labels, 1)
    assert (correction.alpha, correction.beta) == pytest.approx((math.log(3), 0), abs=1e-9)


def test_classes_count_equally_however_many_images_they_have() -> None:
    logits, labels, num_old = random_problem(3)
    extra = np.flatnonzero(labels == labels[0])
    rows = np.concatenate([np.arange(len(labels)), extra, extra])
    plain = fit_correction(logits, labels, num_old)
    repeated = fit_correction(logits[rows], labels[rows], num_old)
    assert repeated.alpha == pytest.approx(plain.alpha, rel=1e-6)
    assert repeated.beta == pytest.approx(plain.beta, rel=1e-6)


def test_a_constant_added_to_all_logits_changes_only_beta() -> None:
    """α·(o + c) + β must be α·o + β + c, as the old logits move by c too."""
    logits, labels = biased(alpha=0.7, beta=-1.5, num_images=2_000)
    plain = fit_correction(logits, labels, 6)
    moved = fit_correction(logits + 10, labels, 6)
    assert moved.alpha == pytest.approx(plain.alpha, rel=1e-6)
    assert moved.beta == pytest.approx(plain.beta + 10 - 10 * plain.alpha, rel=1e-6)


def test_tensors_and_arrays_give_the_same_correction() -> None:
    logits, labels, num_old = random_problem(3)
    from_arrays = fit_correction(logits, labels, num_old)
    from_tensors = fit_correction(torch.from_numpy(logits), torch.from_numpy(labels), num_old)
    assert from_tensors == from_arrays


@pytest.mark.parametrize("images_per_class", [10, 20, 50])
def test_held_out_sets_of_the_papers_size_do_not_warn(images_per_class: int) -> None:
    """20 old and 20 new classes, with the logits of a network that is right in 60 % of cases.

    Warnings are errors here, so a warning fails the test.
    """
    draws = np.random.default_rng(images_per_class)
    labels = np.repeat(np.arange(40), images_per_class)
    logits = 3 * (draws.normal(size=(len(labels), 40)) + 2.5 * np.eye(40)[labels])
    logits[:, 20:] += 3
    assert 0.3 < (logits.argmax(axis=1) == labels).mean() < 0.9
    assert -6 < fit_correction(logits, labels, 20).beta < 0


# Inputs that decide nothing

DRAWS = np.random.default_rng(0)
LOGITS = DRAWS.normal(size=(120, 6))
LABELS = DRAWS.integers(0, 6, 120)
ONE_HOT = np.eye(6)[LABELS]
UNDECIDED: dict[str, tuple[Array, Labels]] = {
    "separable": (10 * ONE_HOT, LABELS),
    "separable by huge logits": (1e4 * ONE_HOT, LABELS),
    "always wrong by huge logits": (-1e4 * ONE_HOT, LABELS),
    "a single old class": (LOGITS, np.full(120, 1)),
    "a single new class": (LOGITS, np.full(120, 4)),
    "only new classes": (LOGITS, LABELS % 3 + 3),
    "only old classes": (LOGITS, LABELS % 3),
    "one old image": (LOGITS[:1], np.array([0])),
    "one new image": (LOGITS[:1], np.array([5])),
    "one old image with huge logits": (1e4 * LOGITS[:1], np.array([0])),
    "one new image with huge logits": (1e4 * LOGITS[:1], np.array([5])),
    "constant new logits": (np.where(np.arange(6) < 3, LOGITS, 2.0), LABELS),
    "constant huge new logits": (np.where(np.arange(6) < 3, LOGITS, -1e4), LABELS),
    "all logits zero": (0 * LOGITS, LABELS),
}


@pytest.mark.parametrize("case", UNDECIDED)
def test_images_that_decide_nothing_give_a_bounded_correction_and_a_warning(case: str) -> None:
    logits, labels = UNDECIDED[case]
    with pytest.warns(HeldOutWarning, match="held-out set") as warned:
        correction = fit_correction(logits, labels.astype(np.int64), 3)
    assert warned[0].filename == __file__
    assert math.isfinite(correction.alpha)
    assert math.isfinite(correction.beta)
    size = 1 + np.abs(logits).max()
    assert abs(correction.alpha) < 20
    assert abs(correction.beta) < 20 * size
    # It must not be worse than no correction.
    before, _ = loss_and_gradient(np.array([1.0, 0.0]), logits, labels, 3)
    after, _ = loss_and_gradient(as_array(correction), logits, labels, 3)
    assert after <= before + 1e-9


def test_identical_images_of_two_classes_are_fitted() -> None:
    """Their Hessian has no inverse, and the damping is lost in its rounding."""
    logits = np.array([[365.0, 632.0, -228.0]] * 2)
    with pytest.warns(HeldOutWarning, match="held-out set"):
        correction = fit_correction(logits, np.array([0, 1]), 1)
    assert np.isfinite(as_array(correction)).all()


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    num_images=st.integers(1, 7),
    num_old=st.integers(1, 4),
    num_new=st.integers(1, 3),
    size=st.floats(0.1, 1000),
    are_identical=st.booleans(),
    penalty=st.sampled_from([0.0, 0.1]),
)
def test_a_few_images_give_a_finite_correction(
    seed: int,
    num_images: int,
    num_old: int,
    num_new: int,
    size: float,
    are_identical: bool,
    penalty: float,
) -> None:
    draws = np.random.default_rng(seed)
    logits = (size * draws.normal(size=(num_images, num_old + num_new))).round()
    if are_identical:
        logits[:] = logits[0]
    labels = draws.integers(0, num_old + num_new, num_images)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeldOutWarning)
        correction = fit_correction(logits, labels, num_old, penalty=penalty)
    assert np.isfinite(as_array(correction)).all()


@pytest.mark.parametrize("num_old", [0, 4])
def test_without_old_or_without_new_classes_the_correction_is_the_identity(num_old: int) -> None:
    correction = fit_correction(LOGITS[:, :4], LABELS % 4, num_old)
    assert correction == Correction(1.0, 0.0, num_old)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite_are_refused(number: float) -> None:
    logits = LOGITS.copy()
    logits[7, 2] = number
    with pytest.raises(ValueError, match="finite"):
        fit_correction(logits, LABELS, 3)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="labels"):
        fit_correction(LOGITS, LABELS[:-1], 3)
    with pytest.raises(ValueError, match="labels"):
        fit_correction(LOGITS[0], LABELS[:6], 3)


def test_labels_that_are_no_classes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"labels must lie in 0\.\.5, got 1\.\.6"):
        fit_correction(LOGITS, np.maximum(LABELS, 1) + (LABELS == 5), 3)


# Applying it


def test_apply_changes_the_new_columns_of_a_copy() -> None:
    logits = np.array([[1.0, 2.0, 3.0], [-1.0, 0.0, 4.0]])
    expected = [[1.0, 0.0, 0.5], [-1.0, -1.0, 1.0]]  # 0.5·o − 1
    correction = Correction(alpha=0.5, beta=-1.0, num_old=1)
    assert correction.apply(logits).tolist() == expected
    assert logits.tolist() == [[1.0, 2.0, 3.0], [-1.0, 0.0, 4.0]]
    tensor = torch.from_numpy(logits).float()
    applied = correction.apply(tensor)
    assert isinstance(applied, torch.Tensor)
    assert applied.dtype == torch.float32
    assert applied.tolist() == expected
    assert tensor.tolist() == logits.tolist()
    assert correction.apply(tensor[0]).tolist() == expected[0]
