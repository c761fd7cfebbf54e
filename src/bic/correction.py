"""Stage 2: the bias correction, fitted to its optimum by Newton's method (§5.2 of the paper)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bic.errors import HeldOutWarning

Array = npt.NDArray[np.float64]
Scores = TypeVar("Scores", Tensor, npt.NDArray[Any])

MAX_ITERATIONS = 100
FLAT = 1e-6  # curvature per image, in standardised scores, below which there is no optimum to find
RIDGE = 1e-2  # pull per image towards the identity where the held-out set decides nothing
TRUSTED_ERROR = 1.0  # standard error, in logits, of the shift between old and new classes


@dataclass(frozen=True)
class Correction:
    """q_k = o_k for the `num_old` old classes, α·o_k + β for the new ones (Eq. 4)."""

    alpha: float
    beta: float
    num_old: int

    def apply(self, scores: Scores) -> Scores:
        """Corrected scores; the input [..., classes] is left as it is."""
        corrected = scores.clone() if isinstance(scores, Tensor) else scores.copy()
        corrected[..., self.num_old :] *= self.alpha
        corrected[..., self.num_old :] += self.beta
        return corrected


def fit_correction(
    scores: Tensor | npt.NDArray[Any],
    labels: Tensor | npt.NDArray[Any],
    num_old: int,
    *,
    penalty: float = 0.0,
) -> Correction:
    """The α, β that minimise the cross-entropy of the corrected scores on held-out images.

    scores [images, classes] raw, labels [images]; classes count equally, however many images each
    has. `penalty` adds penalty·β²/2 (the authors' code has 0.1; the paper has none). The problem
    is convex and has two unknowns, so Newton's method with a line search finds the optimum in
    double precision. Where the images decide nothing (separable, a single class, too few) the
    pair is held near the identity and a HeldOutWarning says so.

    Raises ValueError for scores that are not finite or shapes that do not fit.
    """
    scores = np.asarray(torch.as_tensor(scores).cpu(), dtype=np.float64)
    labels = np.asarray(torch.as_tensor(labels).cpu(), dtype=np.int64)
    if scores.ndim != 2 or labels.shape != scores.shape[:1]:
        raise ValueError(f"scores [n, classes] and labels [n], got {scores.shape}, {labels.shape}")
    if not np.isfinite(scores).all():
        raise ValueError("scores must be finite")
    if num_old in (0, scores.shape[1]):
        return Correction(1.0, 0.0, num_old)
    problem = _Problem.of(scores, labels, num_old, penalty)
    optimum, curvature = problem.solve(ridge=0.0)
    flat = problem.flatness(curvature) < FLAT
    if flat:
        optimum, curvature = problem.solve(ridge=RIDGE)
    if flat or problem.shift_error(curvature) > TRUSTED_ERROR:
        warnings.warn(
            f"the held-out set is too small to trust ({len(labels)} images of {scores.shape[1]} "
            "classes do not settle the bias); give more memory or a larger held-out share",
            HeldOutWarning,
            stacklevel=2,
        )
    return Correction(float(optimum[0]), float(optimum[1]), num_old)


@dataclass(frozen=True)
class _Problem:
    """The loss as a function of (α, β).

    It needs per image the log-sum-exp of the old scores and the new scores only. New scores are
    standardised to z = (o − centre) / scale, so that the two unknowns (slope, shift) of
    α·o + β = slope·z + shift are of one size whatever the network's scores are.
    """

    old: Array  # [n] log-sum-exp of the old scores
    new: Array  # [n, m] standardised new scores
    target: Array  # [n] the own class's standardised score, 0 for old classes
    target_constant: Array  # [n] the own class's score for old classes, 0 for new ones
    is_new: Array  # [n] 1 or 0
    weight: Array  # [n] so that classes count equally, summing to n
    centre: float
    scale: float
    penalty: float

    @staticmethod
    def of(scores: Array, labels: npt.NDArray[np.int64], num_old: int, penalty: float) -> _Problem:
        new = scores[:, num_old:]
        centre, scale = float(new.mean()), float(new.std()) or 1.0
        standard = (new - centre) / scale
        own = np.take_along_axis(scores, labels[:, None], axis=1)[:, 0]
        is_new = (labels >= num_old).astype(np.float64)
        counts = np.bincount(labels, minlength=scores.shape[1])
        per_class = len(labels) / np.count_nonzero(counts)
        return _Problem(
            old=_log_sum_exp(scores[:, :num_old]),
            new=standard,
            target=np.where(is_new > 0, (own - centre) / scale, 0.0),
            target_constant=np.where(is_new > 0, 0.0, own),
            is_new=is_new,
            weight=per_class / counts[labels],
            centre=centre,
            scale=scale,
            penalty=penalty,
        )

    def solve(self, *, ridge: float) -> tuple[Array, Array]:
        """(α, β) at the optimum and the curvature (Hessian over slope and shift) there."""
        identity = np.array([self.scale, self.centre])
        point = identity.copy()
        loss, gradient, hessian = self.loss(point, identity, ridge)
        for _ in range(MAX_ITERATIONS):
            step = np.linalg.solve(hessian + 1e-12 * np.trace(hessian) * np.eye(2), gradient)
            decrease = float(gradient @ step)
            if decrease <= 1e-22 * len(self.weight):
                break
            length = 1.0
            while length > 1e-10:
                trial = point - length * step
                trial_loss, trial_gradient, trial_hessian = self.loss(trial, identity, ridge)
                if trial_loss <= loss - 0.25 * length * decrease:
                    break
                length /= 2
            else:
                break  # no further decrease within rounding: this is the optimum
            point, loss, gradient, hessian = trial, trial_loss, trial_gradient, trial_hessian
        alpha = point[0] / self.scale
        return np.array([alpha, point[1] - alpha * self.centre]), hessian

    def loss(self, point: Array, identity: Array, ridge: float) -> tuple[float, Array, Array]:
        """Loss, gradient [2] and Hessian [2, 2] at (slope, shift)."""
        slope, shift = point
        corrected = slope * self.new + shift
        top = np.maximum(self.old, corrected.max(axis=1))
        odds = np.exp(corrected - top[:, None])
        total = odds.sum(axis=1) + np.exp(self.old - top)
        probability = odds / total[:, None]
        mass = probability.sum(axis=1)  # of all new classes together
        mean = (probability * self.new).sum(axis=1)
        square = (probability * self.new**2).sum(axis=1)

        own = np.where(self.is_new > 0, slope * self.target + shift, self.target_constant)
        value = float(self.weight @ (top + np.log(total) - own))
        gradient = np.array(
            [self.weight @ (mean - self.target), self.weight @ (mass - self.is_new)]
        )
        slope_slope = self.weight @ (square - mean**2)
        slope_shift = self.weight @ (mean * (1 - mass))
        shift_shift = self.weight @ (mass * (1 - mass))
        hessian = np.array([[slope_slope, slope_shift], [slope_shift, shift_shift]])

        # β = shift − slope·centre/scale, so penalty·β²/2 has this direction.
        direction = np.array([-self.centre / self.scale, 1.0])
        beta = float(direction @ point)
        images = len(self.weight)
        pull = ridge * (point - identity)
        value += images * (self.penalty * beta**2 / 2 + float(pull @ (point - identity)) / 2)
        gradient += images * (self.penalty * beta * direction + pull)
        hessian += images * (self.penalty * np.outer(direction, direction) + ridge * np.eye(2))
        return value, gradient, hessian

    def flatness(self, curvature: Array) -> float:
        """The smallest curvature per image in any direction."""
        return float(np.linalg.eigvalsh(curvature)[0]) / len(self.weight)

    def shift_error(self, curvature: Array) -> float:
        """Standard error of the shift between old and new classes."""
        return float(np.sqrt(np.linalg.inv(curvature)[1, 1]))


def _log_sum_exp(scores: Array) -> Array:
    top = scores.max(axis=1)
    return np.asarray(top + np.log(np.exp(scores - top[:, None]).sum(axis=1)))
