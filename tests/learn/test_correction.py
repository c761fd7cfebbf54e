"""The correction against an independent solver, known answers, and inputs that decide nothing."""

from __future__ import annotations

import math
import warnings

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from bic import Correction, HeldOutWarning, fit_correction

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]


def loss_and_gradient(
    pair: Array, logits: Array, labels: Labels, num_old: int, penalty: float = 0.0
) -> tuple[float, Array]:
    """Mean cross-entropy, each class present counting equally, and its gradient over (α, β)."""
    corrected = logits.copy()
    corrected[:, num_old:] = pair[0] * logits[:, num_old:] + pair[1]
    weight = 1 / np.bincount(labels)[labels]
    weight /= weight.sum()
    rows = np.arange(len(labels))
    value = weight @ (logsumexp(corrected, axis=1) - corrected[rows, labels])
    residual = softmax(corrected, axis=1)
    residual[rows, labels] -= 1
    by_alpha = weight @ (residual[:, num_old:] * logits[:, num_old:]).sum(axis=1)
    by_beta = weight @ residual[:, num_old:].sum(axis=1)
    return (
        float(value + penalty * pair[1] ** 2 / 2),
        np.array([by_alpha, by_beta + penalty * pair[1]]),
    )


def scipy_optimum(
    logits: Array, labels: Labels, num_old: int, penalty: float = 0.0
) -> tuple[Array, float]:
    """By a quasi-Newton method from several starts, in logits of unit size."""
    size = float(np.abs(logits).max())

    def objective(point: Array) -> tuple[float, Array]:
        value, gradient = loss_and_gradient(point / [size, 1], logits, labels, num_old, penalty)
        return value, gradient / [size, 1]

    starts = [(size, 0.0), (1.0, 0.0), (0.0, float(logits[:, :num_old].max(axis=1).mean()))]
    found = [
        minimize(objective, start, jac=True, method="BFGS", options={"gtol": 1e-9})
        for start in starts
    ]
    best = min(found, key=lambda one: float(one.fun))
    return best.x / [size, 1], float(best.fun)


def random_problem(seed: int) -> tuple[Array, Labels, int]:
    """Logits of any size, informative or not, biased or not; classes balanced or not."""
    draws = np.random.default_rng(seed)
    num_old, num_new = (int(n) for n in draws.integers(1, 15, 2))
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


def check_optimum(seed: int, penalty: float = 0.0) -> None:
    logits, labels, num_old = random_problem(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeldOutWarning)
        found = fit_correction(logits, labels, num_old, penalty=penalty)
    pair = np.array([found.alpha, found.beta])
    value, gradient = loss_and_gradient(pair, logits, labels, num_old, penalty)
    expected, least = scipy_optimum(logits, labels, num_old, penalty)
    assert found.num_old == num_old
    assert value <= least + 1e-9
    assert np.abs(gradient / [np.abs(logits).max(), 1]).max() < 1e-8
    size = np.abs(logits[:, num_old:]).max()
    assert pair * [size, 1] == pytest.approx(expected * [size, 1], rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("seed", range(50))
def test_optimum_is_that_of_scipy(seed: int) -> None:
    check_optimum(seed)


@pytest.mark.parametrize("seed", range(100, 115))
@pytest.mark.parametrize("penalty", [0.1, 10.0])
def test_optimum_with_penalty_is_that_of_scipy(seed: int, penalty: float) -> None:
    check_optimum(seed, penalty)


def test_penalty_shrinks_beta() -> None:
    logits, labels = biased(alpha=0.7, beta=-1.5)
    betas = [
        abs(fit_correction(logits, labels, 6, penalty=penalty).beta) for penalty in (0, 0.1, 1)
    ]
    assert betas == sorted(betas, reverse=True)
    assert betas[0] > betas[1] + 0.1 > betas[2] + 0.2


def sampled_labels(logits: Array, seed: int) -> Labels:
    """Labels drawn from the softmax of the logits (Gumbel's trick)."""
    noise = np.random.default_rng(seed).gumbel(size=logits.shape)
    return np.asarray((logits + noise).argmax(axis=1), dtype=np.int64)


def biased(alpha: float, beta: float, num_images: int = 60_000) -> tuple[Array, Labels]:
    """Logits of 6 old and 4 new classes that are calibrated once corrected by α, β.

    Images are drawn given their class, so that classes are equally frequent: the softmax of
    log p(image | class) is then the right answer. Classes are Gaussians around unit vectors.
    """
    draws = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), num_images // 10)
    points = 1.5 * np.eye(10)[labels] + draws.normal(size=(len(labels), 10))
    calibrated = 1.5 * points
    logits = calibrated.copy()
    logits[:, 6:] = (calibrated[:, 6:] - beta) / alpha
    return logits, labels.astype(np.int64)


def test_calibrated_scores_stay_as_they_are() -> None:
    found = fit_correction(*biased(alpha=1, beta=0), 6)
    assert (found.alpha, found.beta) == pytest.approx((1, 0), abs=0.03)


@pytest.mark.parametrize(("alpha", "beta"), [(0.7, -1.5), (1.4, 0.8), (0.4, -0.5)])
def test_known_bias_is_recovered(alpha: float, beta: float) -> None:
    found = fit_correction(*biased(alpha, beta), 6)
    assert (found.alpha, found.beta) == pytest.approx((alpha, beta), abs=0.03)


@pytest.mark.timeout(15)  # a handful of Newton's steps, each of some ten milliseconds
def test_labels_sampled_from_the_corrected_softmax_give_the_pair_back() -> None:
    calibrated = np.random.default_rng(3).normal(size=(80_000, 5)) * 2
    labels = sampled_labels(calibrated, 4)
    # By symmetry of the logits the five classes are equally frequent.
    logits = calibrated.copy()
    logits[:, 3:] = (calibrated[:, 3:] + 2) / 0.5
    found = fit_correction(logits, labels, 3)
    assert (found.alpha, found.beta) == pytest.approx((0.5, -2), abs=0.04)
    same = fit_correction(calibrated, labels, 3)
    assert (same.alpha, same.beta) == pytest.approx((1, 0), abs=0.04)


def test_softmax_is_applied_once() -> None:
    """Two classes, in closed form; after a second softmax there would be another answer."""
    # 3/4 of the old images have the new score −1 and 3/4 of the new ones +1.
    logits = np.array([[0.0, 1.0]] * 4 + [[0.0, -1.0]] * 4).repeat(50, axis=0)
    labels = np.array([0, 1, 1, 1, 1, 0, 0, 0]).repeat(50)
    # So the log-odds of new against old are log 3 and −log 3 there: α + β = −(−α + β) = log 3.
    found = fit_correction(logits, labels, 1)
    assert (found.alpha, found.beta) == pytest.approx((math.log(3), 0), abs=1e-9)


def test_classes_count_equally_however_many_images_they_have() -> None:
    logits, labels, num_old = random_problem(3)
    extra = np.flatnonzero(labels == labels[0])
    twice = np.concatenate([np.arange(len(labels)), extra, extra])
    plain = fit_correction(logits, labels, num_old)
    repeated = fit_correction(logits[twice], labels[twice], num_old)
    assert repeated.alpha == pytest.approx(plain.alpha, rel=1e-6)
    assert repeated.beta == pytest.approx(plain.beta, rel=1e-6)


def test_constants_added_to_all_scores_of_an_image_change_nothing_but_the_new_ones() -> None:
    """Old and new logits moved together by one constant: α·(o + c) + β must stay α·o + β + c."""
    logits, labels = biased(alpha=0.7, beta=-1.5, num_images=2_000)
    plain = fit_correction(logits, labels, 6)
    moved = fit_correction(logits + 10, labels, 6)
    assert moved.alpha == pytest.approx(plain.alpha, rel=1e-6)
    assert moved.beta == pytest.approx(plain.beta + 10 - 10 * plain.alpha, rel=1e-6)


DRAWS = np.random.default_rng(0)
PLAIN = DRAWS.normal(size=(120, 6))
MIXED = DRAWS.integers(0, 6, 120)
ONE_HOT = np.eye(6)[MIXED]
UNDECIDED: dict[str, tuple[Array, Labels]] = {
    "separable": (10 * ONE_HOT, MIXED),
    "separable by huge logits": (1e4 * ONE_HOT, MIXED),
    "always wrong by huge logits": (-1e4 * ONE_HOT, MIXED),
    "a single old class": (PLAIN, np.full(120, 1)),
    "a single new class": (PLAIN, np.full(120, 4)),
    "only new classes": (PLAIN, MIXED % 3 + 3),
    "only old classes": (PLAIN, MIXED % 3),
    "one old image": (PLAIN[:1], np.array([0])),
    "one new image": (PLAIN[:1], np.array([5])),
    "one old image with huge logits": (1e4 * PLAIN[:1], np.array([0])),
    "one new image with huge logits": (1e4 * PLAIN[:1], np.array([5])),
    "constant new logits": (np.where(np.arange(6) < 3, PLAIN, 2.0), MIXED),
    "constant huge new logits": (np.where(np.arange(6) < 3, PLAIN, -1e4), MIXED),
    "all logits zero": (0 * PLAIN, MIXED),
}


@pytest.mark.parametrize("case", UNDECIDED)
def test_images_that_decide_nothing_give_a_bounded_pair_and_a_warning(case: str) -> None:
    logits, labels = UNDECIDED[case]
    with pytest.warns(HeldOutWarning, match="held-out set"):
        found = fit_correction(logits, labels.astype(np.int64), 3)
    assert math.isfinite(found.alpha)
    assert math.isfinite(found.beta)
    size = 1 + np.abs(logits).max()
    assert abs(found.alpha) < 20
    assert abs(found.beta) < 20 * size
    # It may not be worse than leaving the logits alone.
    pair = np.array([found.alpha, found.beta])
    before, _ = loss_and_gradient(np.array([1.0, 0.0]), logits, labels, 3)
    after, _ = loss_and_gradient(pair, logits, labels, 3)
    assert after <= before + 1e-9


@pytest.mark.parametrize("bias", [-4.0, 1.0, 4.0])
@pytest.mark.parametrize("size", [30.0, 100.0, 1e3, 1e4])
def test_huge_scores_have_their_optimum_found(size: float, bias: float) -> None:
    """The identity lies where the loss has no curvature left, and Newton's step no length."""
    draws = np.random.default_rng(7)
    labels = draws.integers(0, 6, 400)
    logits = draws.normal(size=(400, 6)) + np.eye(6)[labels] + bias * np.array([0, 0, 0, 1, 1, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeldOutWarning)
        found = fit_correction(size * logits, labels, 3)
    pair = np.array([found.alpha, found.beta])
    value, gradient = loss_and_gradient(pair, size * logits, labels, 3)
    _, least = scipy_optimum(size * logits, labels, 3)
    assert value <= least * (1 + 1e-6)
    assert np.abs(gradient / [size, 1]).max() < 1e-6


@pytest.mark.parametrize("per_class", [10, 20, 50])
def test_held_out_sets_of_the_papers_size_do_not_warn(per_class: int) -> None:
    """20 old and 20 new classes with the logits of a network that is right about 60 % of the time.

    Warnings are errors here, so a warning fails the test.
    """
    draws = np.random.default_rng(per_class)
    labels = np.repeat(np.arange(40), per_class)
    logits = 3 * (draws.normal(size=(len(labels), 40)) + 2.5 * np.eye(40)[labels])
    logits[:, 20:] += 3
    assert 0.3 < (logits.argmax(axis=1) == labels).mean() < 0.9
    found = fit_correction(logits, labels, 20)
    assert -6 < found.beta < 0


@pytest.mark.parametrize("num_old", [0, 4])
def test_nothing_old_or_nothing_new_is_left_alone(num_old: int) -> None:
    found = fit_correction(PLAIN[:, :4], MIXED % 4, num_old)
    assert found == Correction(1.0, 0.0, num_old)


def test_tensors_and_arrays_give_the_same_pair() -> None:
    logits, labels, num_old = random_problem(3)
    from_arrays = fit_correction(logits, labels, num_old)
    from_tensors = fit_correction(torch.from_numpy(logits), torch.from_numpy(labels), num_old)
    assert from_tensors == from_arrays


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_scores_that_are_not_finite_are_refused(bad: float) -> None:
    logits = PLAIN.copy()
    logits[7, 2] = bad
    with pytest.raises(ValueError, match="finite"):
        fit_correction(logits, MIXED, 3)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="labels"):
        fit_correction(PLAIN, MIXED[:-1], 3)
    with pytest.raises(ValueError, match="labels"):
        fit_correction(PLAIN[0], MIXED[:6], 3)


def test_apply_changes_the_new_columns_of_a_copy() -> None:
    logits = np.array([[1.0, 2.0, 3.0], [-1.0, 0.0, 4.0]])
    expected = [[1.0, 0.0, 0.5], [-1.0, -1.0, 1.0]]  # 0.5·o − 1
    pair = Correction(alpha=0.5, beta=-1.0, num_old=1)
    assert pair.apply(logits).tolist() == expected
    assert logits.tolist() == [[1.0, 2.0, 3.0], [-1.0, 0.0, 4.0]]
    tensor = torch.from_numpy(logits).float()
    applied = pair.apply(tensor)
    assert isinstance(applied, torch.Tensor)
    assert applied.dtype == torch.float32
    assert applied.tolist() == expected
    assert tensor.tolist() == logits.tolist()
    assert pair.apply(tensor[0]).tolist() == expected[0]
