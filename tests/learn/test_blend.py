"""The blend of head and class means: against an independent solver, and where little is known."""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import logsumexp

import bic.learn.blend
from bic import HeldOutWarning
from bic.learn.blend import PRIOR_STD, fit_blend
from bic.learn.correction import fit_correction
from bic.learn.held_out import LogitsAndCosines
from bic.model.answers import Blend, Correction

Array = npt.NDArray[np.float64]


def problem(
    seed: int, num_images: int = 300, num_old: int = 6, num_new: int = 4
) -> tuple[LogitsAndCosines, int]:
    """Logits and cosines that are both informative; the new classes have a bias."""
    draws = np.random.default_rng(seed)
    num_classes = num_old + num_new
    labels = np.arange(num_images) % num_classes
    rows = np.arange(num_images)
    logits = 3 * draws.normal(size=(num_images, num_classes))
    logits[rows, labels] += draws.uniform(1, 6)
    logits[:, num_old:] += draws.normal(2, 1)
    cosines = draws.uniform(-0.2, 0.6, (num_images, num_classes))
    cosines[rows, labels] += draws.uniform(0.1, 0.4)
    part = LogitsAndCosines(labels, torch.from_numpy(logits), torch.from_numpy(cosines))
    return part, num_old


def objective(numbers: Array, part: LogitsAndCosines, num_old: int, penalty: float) -> float:
    """The loss of (a, α, β, γ), written out: cross-entropy, prior and penalty."""
    head, alpha, beta, means = numbers
    logits = part.logits.double().numpy()
    cosines = part.cosines.double().numpy()
    num_images, num_classes = logits.shape
    blended = means * cosines
    blended[:, :num_old] += head * logits[:, :num_old]
    blended[:, num_old:] += alpha * logits[:, num_old:] + beta
    present, counts = np.unique(part.labels, return_counts=True)
    num_old_present = (present < num_old).sum()
    weight = np.empty(num_classes)
    weight[:num_old] = num_old / num_old_present if num_old else 0.0
    weight[num_old:] = (num_classes - num_old) / (len(present) - num_old_present)
    weight[present] /= counts
    weights = weight[part.labels] * num_images / num_classes
    own = blended[np.arange(num_images), part.labels]
    loss = weights @ (logsumexp(blended, axis=1) - own)
    free = (head - 1) * logits[:, :num_old].std() if num_old else (alpha - 1) * logits.std()
    prior = (free**2 + (means * cosines.std()) ** 2) / PRIOR_STD**2
    return float(loss + (prior + num_images * penalty * beta**2) / 2)


def fit(part: LogitsAndCosines, num_old: int, penalty: float = 0.0) -> Blend:
    """The fit of a blend, whether or not there are enough images to trust it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeldOutWarning)
        return fit_blend([part], num_old, penalty=penalty)


def numbers_of(blend: Blend) -> Array:
    correction = blend.correction
    return np.array([blend.head, correction.alpha, correction.beta, blend.means])


@pytest.mark.parametrize("num_missing", [0, 4])
@pytest.mark.parametrize("penalty", [0.0, 0.1])
@pytest.mark.parametrize("seed", range(8))
def test_the_optimum_is_that_of_scipy(seed: int, penalty: float, num_missing: int) -> None:
    """Old classes together count as many as they are, even if some of them hold no image out."""
    part, num_old = problem(seed)
    rows = part.labels >= num_missing
    part = LogitsAndCosines(part.labels[rows], part.logits[rows], part.cosines[rows])
    fitted = numbers_of(fit(part, num_old, penalty))
    found = minimize(
        objective,
        [1.0, 1.0, 0.0, 0.0],
        args=(part, num_old, penalty),
        method="Nelder-Mead",
        options={"xatol": 1e-7, "fatol": 1e-10, "maxiter": 10_000, "maxfev": 10_000},
    )
    assert objective(fitted, part, num_old, penalty) <= found.fun + 1e-8
    assert fitted == pytest.approx(found.x, rel=1e-3, abs=1e-3)


def test_parts_of_several_processes_give_the_fit_of_all_images() -> None:
    part, num_old = problem(3, num_images=2000)
    halves = []
    for rows in (slice(0, 130), slice(130, None)):
        halves.append(LogitsAndCosines(part.labels[rows], part.logits[rows], part.cosines[rows]))
    whole = numbers_of(fit_blend([part], num_old))
    assert numbers_of(fit_blend(halves, num_old)) == pytest.approx(whole, rel=1e-9)


def test_with_a_strong_prior_the_fit_is_the_correction_of_the_paper(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bic.learn.blend, "PRIOR_STD", 1e-8)
    part, num_old = problem(1, num_images=4000)
    blend = fit(part, num_old)
    correction = fit_correction(part.logits, part.labels, num_old)
    assert numbers_of(blend) == pytest.approx([1.0, correction.alpha, correction.beta, 0.0])


def test_means_that_are_always_right_are_trusted_more_than_a_random_head() -> None:
    draws = np.random.default_rng(0)
    labels = np.arange(1000) % 10
    cosines = draws.normal(0, 0.2, (1000, 10)) + 0.5 * np.eye(10)[labels]
    part = LogitsAndCosines(
        labels, torch.from_numpy(draws.normal(size=(1000, 10))), torch.from_numpy(cosines)
    )
    blend = fit(part, 5)
    assert abs(blend.head) < 0.1
    assert abs(blend.correction.alpha) < 0.1
    assert blend.means == pytest.approx(0.5 / 0.2**2, rel=0.1)  # the likelihood's own weight


def test_few_images_keep_the_form_of_the_paper() -> None:
    """The fewer images there are, the nearer are a to 1 and γ to 0."""
    distances = []
    for num_images in (10, 100, 1000):
        part, num_old = problem(5, num_images=num_images)
        blend = fit(part, num_old)
        head_moves = (blend.head - 1) * float(part.logits[:, :num_old].std())
        means_move = blend.means * float(part.cosines.std())
        distances.append(head_moves**2 + means_move**2)
    assert distances == sorted(distances)


def test_the_first_step_has_no_bias_to_correct() -> None:
    part, _ = problem(2)
    blend = fit_blend([part], 0)
    assert blend.head == 1.0
    assert blend.correction.beta == 0.0
    assert blend.correction.num_old == 0
    found = minimize(
        lambda two: objective(np.array([1.0, two[0], 0.0, two[1]]), part, 0, 0.0),
        [1.0, 0.0],
        method="Nelder-Mead",
        options={"xatol": 1e-7, "fatol": 1e-10},
    )
    assert [blend.correction.alpha, blend.means] == pytest.approx(found.x, rel=1e-3)


def test_without_images_the_answer_is_the_raw_head() -> None:
    empty = LogitsAndCosines(np.zeros(0, np.int64), torch.zeros(0, 3), torch.zeros(0, 3))
    with pytest.warns(HeldOutWarning, match="0 images of 3 classes"):
        assert fit_blend([empty], 2) == Blend(1.0, 0.0, Correction(1.0, 0.0, 2))
    assert fit_blend([empty], 0) == Blend(1.0, 0.0, Correction(1.0, 0.0, 0))  # no bias: no warning


def test_too_few_images_are_warned_about() -> None:
    part, num_old = problem(0, num_images=10)
    with pytest.warns(HeldOutWarning, match="10 images of 10 classes"):
        fit_blend([part], num_old)


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    num_images=st.integers(1, 7),
    num_old=st.integers(0, 4),
    num_new=st.integers(1, 3),
    size=st.floats(0.1, 1000),
    are_identical=st.booleans(),
)
def test_a_few_images_give_a_finite_blend(
    seed: int, num_images: int, num_old: int, num_new: int, size: float, are_identical: bool
) -> None:
    draws = np.random.default_rng(seed)
    shape = (num_images, num_old + num_new)
    logits = torch.from_numpy((size * draws.normal(size=shape)).round())
    if are_identical:
        logits[:] = logits[0].clone()
    cosines = torch.from_numpy(draws.uniform(-1, 1, shape))
    part = LogitsAndCosines(draws.integers(0, shape[1], num_images), logits, cosines)
    assert np.isfinite(numbers_of(fit(part, num_old))).all()


def test_enough_images_are_not_warned_about() -> None:
    part, num_old = problem(0, num_images=4000)
    fit_blend([part], num_old)  # a warning would be an error here


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("field", ["logits", "cosines"])
def test_values_that_are_not_finite_are_refused(field: str, bad: float) -> None:
    part, num_old = problem(0)
    getattr(part, field)[3, 2] = bad
    with pytest.raises(ValueError, match="must be finite"):
        fit_blend([part], num_old)


@pytest.mark.parametrize("size", [1e-30, 1e6])
def test_features_that_are_all_equal_still_give_finite_numbers(size: float) -> None:
    part, num_old = problem(0)
    part.cosines = torch.full_like(part.cosines, 0.7)
    part.logits = part.logits * size
    assert np.isfinite(numbers_of(fit(part, num_old))).all()


def test_a_fit_from_some_of_the_classes_agrees_with_the_fit_from_all() -> None:
    """α and β from a tenth of the old classes lie within a few standard errors of the others."""
    draws = np.random.default_rng(0)
    num_old, num_new, per_class = 200, 20, 5
    labels = np.repeat(np.arange(num_old + num_new), per_class)
    logits = draws.normal(size=(len(labels), num_old + num_new)) + 4 * np.eye(220)[labels]
    logits[:, num_old:] = 1.25 * logits[:, num_old:] + 1
    whole = fit_correction(logits, labels, num_old)
    fits = []
    for _ in range(30):
        chosen = draws.permutation(num_old)[:20]
        rows = np.isin(labels, chosen) | (labels >= num_old)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HeldOutWarning)
            fits.append(fit_correction(logits[rows], labels[rows], num_old))
    for name in ("alpha", "beta"):
        values = np.array([getattr(fit, name) for fit in fits])
        mean_error = values.std(ddof=1) / len(values) ** 0.5
        assert abs(values.mean() - getattr(whole, name)) < 4 * mean_error
