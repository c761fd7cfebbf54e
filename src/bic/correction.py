"""Stage 2: the bias correction, fitted to its optimum by Newton's method (§5.2 of the paper)."""

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
UNSETTLED = 0.1  # share of images whose answer may hang on the fit's own error


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
    scores: Tensor | npt.NDArray[Any], labels: Tensor | npt.NDArray[Any], num_old: int, *, penalty: float = 0.0
) -> Correction:
    """The α, β that minimise the cross-entropy of the corrected scores on held-out images.

    scores [images, classes] raw, labels [images]; classes count equally, however many images each has. `penalty` adds
    penalty·β²/2 (the authors' code has 0.1; the paper has none). The problem is convex and has two unknowns, so damped
    Newton steps find the optimum in double precision. Where the images decide nothing (separable, a single class, too
    few) the pair is held near the identity and a HeldOutWarning says so.

    Raises ValueError for scores that are not finite or shapes that do not fit.
    """
    scores = np.asarray(torch.as_tensor(scores).cpu(), dtype=np.float64)
    labels = np.asarray(torch.as_tensor(labels).cpu(), dtype=np.int64)
    if scores.ndim != 2 or labels.shape != scores.shape[:1] or not (np.abs(scores) < 1e100).all():
        raise ValueError(f"finite scores [n, classes] and labels [n], got {scores.shape}, {labels.shape}")
    if len(labels) and not 0 <= labels.min() <= labels.max() < scores.shape[1]:
        raise ValueError(f"labels must lie in 0..{scores.shape[1] - 1}, got {labels.min()}..{labels.max()}")
    if num_old in (0, scores.shape[1]) or not len(labels):
        return Correction(1.0, 0.0, num_old)
    problem = _Problem(scores, labels, num_old, penalty)
    point, curvature = problem.solve(ridge=0.0)
    flat = float(np.linalg.eigvalsh(curvature)[0]) < FLAT * len(labels)
    if flat:
        point, curvature = problem.solve(ridge=RIDGE)
    alpha = float(point[0]) / problem.scale
    fitted = Correction(alpha, float(point[1]) - alpha * problem.centre, num_old)
    corrected = fitted.apply(scores)
    margin = corrected[:, :num_old].max(axis=1) - corrected[:, num_old:].max(axis=1)
    error = np.sqrt(np.linalg.inv(curvature)[1, 1])  # of the shift between old and new classes
    if flat or alpha <= 0 or np.mean(np.abs(margin) < error) > UNSETTLED:
        found = f"{len(labels)} images of {scores.shape[1]} classes do not settle the bias"
        message = f"the held-out set is too small to trust ({found}); give more memory or a larger held-out share"
        warnings.warn(message, HeldOutWarning, stacklevel=2)
    return fitted


class _Problem:
    """The loss as a function of two unknowns, (slope, shift).

    It needs per image the log-sum-exp of the old scores and the new scores only. The new scores are standardised to z
    = (o − centre) / scale, so that both unknowns of α·o + β = slope·z + shift are of one size whatever the network's
    scores are.
    """

    def __init__(self, scores: Array, labels: npt.NDArray[np.int64], num_old: int, penalty: float) -> None:
        new, counts = scores[:, num_old:], np.bincount(labels)
        self.penalty, self.centre, self.scale = penalty, float(new.mean()), max(float(new.std()), 0.1)
        self.identity = np.array([self.scale, self.centre])
        self.old = np.logaddexp.reduce(scores[:, :num_old], axis=1)
        self.new = (new - self.centre) / self.scale
        self.is_new = (labels >= num_old).astype(np.float64)
        self.own = scores[np.arange(len(labels)), labels]  # the own class's score, standardised if new
        self.own = np.where(self.is_new > 0, (self.own - self.centre) / self.scale, self.own)
        # Classes count equally; the weights sum to the number of images.
        self.weight = len(labels) / np.count_nonzero(counts) / counts[labels]

    def solve(self, *, ridge: float) -> tuple[Array, Array]:
        """(slope, shift) at the optimum and the curvature (the Hessian) there."""
        point = self.identity
        loss, gradient, hessian = self.loss(point, ridge)
        damping = 1.0  # where there is no curvature it bounds the step; it fades with the gradient
        for _ in range(MAX_ITERATIONS):
            size = float(np.linalg.norm(gradient))
            if size <= 1e-14 * len(self.weight):
                break
            step = np.linalg.solve(hessian + damping * size * np.eye(2), gradient)
            decrease = float(gradient @ step)
            trial = self.loss(point - step, ridge)
            last = decrease <= 1e-13 * abs(loss)  # within rounding the loss no longer tells; its gradient does
            if trial[0] <= loss - 0.25 * decrease or (last and np.linalg.norm(trial[1]) < size):
                point, (loss, gradient, hessian) = point - step, trial
                damping = max(damping / 10, 1e-9)
            elif last:
                break
            else:
                damping *= 10
        return point, hessian

    def loss(self, point: Array, ridge: float) -> tuple[float, Array, Array]:
        """Loss, gradient [2] and Hessian [2, 2]; `ridge` pulls towards the identity."""
        slope, shift = point
        corrected = slope * self.new + shift
        total = np.logaddexp(self.old, np.logaddexp.reduce(corrected, axis=1))
        probability = np.exp(corrected - total[:, None])
        mass = probability.sum(axis=1)  # of all new classes together
        mean = (probability * self.new).sum(axis=1)
        square = (probability * self.new**2).sum(axis=1)
        own = np.where(self.is_new > 0, slope * self.own + shift, self.own)

        value = self.weight @ (total - own)
        gradient = np.array([mean - self.is_new * self.own, mass - self.is_new]) @ self.weight
        both = self.weight @ (mean * (1 - mass))
        hessian = np.array([[self.weight @ (square - mean**2), both], [both, self.weight @ (mass * (1 - mass))]])
        # β = shift − slope·centre/scale, so penalty·β²/2 pulls along this direction; the ridge towards the identity.
        direction, away = np.array([-self.centre / self.scale, 1.0]), point - self.identity
        beta = direction @ point
        value += len(own) * (self.penalty * beta**2 + ridge * (away @ away)) / 2
        gradient += len(own) * (self.penalty * beta * direction + ridge * away)
        hessian += len(own) * (self.penalty * np.outer(direction, direction) + ridge * np.eye(2))
        return float(value), gradient, hessian
