"""Newton's method for a few unknowns, against arithmetic and an independent solver."""

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from bic.learn.newton import minimise

Array = npt.NDArray[np.float64]


def test_a_quadratic_is_solved() -> None:
    """½ (x − 1)² + 2 (y + 3)²: the optimum is (1, −3), the Hessian diag(1, 4)."""

    def loss(point: Array) -> tuple[float, Array, Array]:
        away = point - [1.0, -3.0]
        curvature = np.array([1.0, 4.0])
        return float(curvature @ away**2 / 2), curvature * away, np.diag(curvature)

    point, hessian = minimise(loss, np.zeros(2), num_images=1)
    assert point == pytest.approx([1.0, -3.0], abs=1e-12)
    assert hessian.tolist() == [[1.0, 0.0], [0.0, 4.0]]


@pytest.mark.parametrize("seed", range(20))
def test_logistic_problems_of_one_to_six_unknowns_agree_with_scipy(seed: int) -> None:
    draws = np.random.default_rng(seed)
    num_unknowns = 1 + seed % 6
    rows = 10 ** draws.uniform(-2, 2) * draws.normal(size=(200, 5, num_unknowns))
    labels = draws.integers(0, 5, 200)
    own = rows[np.arange(200), labels]

    def loss(point: Array) -> tuple[float, Array, Array]:
        logits = rows @ point
        p = softmax(logits, axis=1)
        means = np.einsum("nk,nki->ni", p, rows)
        second = np.einsum("nk,nki,nkj->ij", p, rows, rows)
        value = (logsumexp(logits, axis=1) - own @ point).sum()
        return float(value), (means - own).sum(axis=0), second - means.T @ means

    start = draws.normal(size=num_unknowns)
    point, hessian = minimise(loss, start, num_images=200)
    scale = float(np.abs(rows).max())
    expected = minimize(
        lambda scaled: loss(scaled / scale)[0], start * scale, method="BFGS", options={"gtol": 1e-8}
    )
    assert loss(point)[0] <= expected.fun + 1e-9
    assert np.abs(loss(point)[1]).max() < 1e-8 * scale
    assert np.array_equal(hessian, loss(point)[2])


def test_a_hessian_in_whose_rounding_the_damping_is_lost_is_damped_more() -> None:
    """½ (10¹⁰·(x + y) − 1)²: every solution with x + y = 10⁻¹⁰ is an optimum."""
    direction = np.array([1e10, 1e10])

    def loss(point: Array) -> tuple[float, Array, Array]:
        away = float(direction @ point) - 1.0
        return away**2 / 2, away * direction, np.outer(direction, direction)

    point, _ = minimise(loss, np.zeros(2), num_images=1)
    assert point.sum() == pytest.approx(1e-10, rel=1e-6)
