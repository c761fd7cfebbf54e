"""Stage 2: the bias correction, fitted to its optimum by Newton's method (§5.2 of the paper)."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bic.errors import HeldOutWarning

Array = npt.NDArray[np.float64]
Scores = TypeVar("Scores", Tensor, npt.NDArray[Any])

MAX_ITERATIONS = 100
CHUNK = 2**18  # scores worked on at a time
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
        return self.apply_(scores.clone() if isinstance(scores, Tensor) else scores.copy())

    def apply_(self, scores: Scores) -> Scores:
        """The scores, corrected where they are."""
        scores[..., self.num_old :] *= self.alpha
        scores[..., self.num_old :] += self.beta
        return scores


class HeldOut:
    """What the fit needs of images' raw scores: of the old classes three numbers an image, however many they are.

    `old` is the log-sum-exp of an image's old scores, `best_old` the largest, `own` its own class's score, all float64
    [images]; `new` [images, new classes] stays as it comes. Room is made for all images at once: what is kept between
    batches would otherwise lie scattered among what is not, and hold on to the memory of both.
    """

    def __init__(self, num_images: int, num_old: int, num_new: int, dtype: torch.dtype = torch.float32) -> None:
        self.num_old, self.count = num_old, 0
        self.labels = torch.empty(num_images, dtype=torch.int64)
        self.old, self.best_old, self.own = torch.empty((3, num_images), dtype=torch.float64)
        self.new = torch.empty((num_images, num_new), dtype=dtype)

    def add(self, scores: Tensor, labels: Tensor) -> None:
        """Take scores [images, classes] and labels [images]. Raises ValueError for scores that are not finite."""
        least, most = torch.aminmax(scores, dim=1)
        if not ((least > -1e100) & (most < 1e100)).all():
            raise ValueError("scores must be finite")
        rows = slice(self.count, self.count + len(labels))
        self.labels[rows] = labels
        self.old[rows] = torch.logsumexp(scores[:, : self.num_old].double(), dim=1)
        self.best_old[rows] = scores[:, : self.num_old].amax(dim=1).double()
        self.own[rows] = scores.gather(1, labels[:, None].to(scores.device))[:, 0].double()
        self.new[rows] = scores[:, self.num_old :]
        self.count += len(labels)

    def cut(self) -> Self:
        """Without the room that was not taken."""
        for name in ("labels", "old", "best_old", "own", "new"):
            setattr(self, name, getattr(self, name)[: self.count])
        return self


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
    scores, labels = torch.as_tensor(scores).detach(), torch.as_tensor(labels).long()
    if scores.ndim != 2 or labels.shape != scores.shape[:1]:
        shapes = f"{list(scores.shape)}, {list(labels.shape)}"
        raise ValueError(f"scores must be [n, classes] and labels [n], got {shapes}")
    if len(labels) and not 0 <= labels.min() <= labels.max() < scores.shape[1]:
        raise ValueError(f"labels must lie in 0..{scores.shape[1] - 1}, got {labels.min()}..{labels.max()}")
    if num_old in (0, scores.shape[1]) or not len(labels):
        return Correction(1.0, 0.0, num_old)
    held_out = HeldOut(len(labels), num_old, scores.shape[1] - num_old, scores.dtype)
    rows = max(1, CHUNK // scores.shape[1])
    for start in range(0, len(labels), rows):
        held_out.add(scores[start : start + rows], labels[start : start + rows])
    return fit_held_out([held_out], num_old, penalty=penalty)


def fit_held_out(parts: Sequence[HeldOut], num_old: int, *, penalty: float = 0.0) -> Correction:
    """As `fit_correction`, of images whose scores were reduced a batch at a time, in one process or in several."""
    parts = [part for part in parts if part.count]
    if not parts:
        return Correction(1.0, 0.0, num_old)
    problem = _Problem(parts, num_old, penalty)
    point, curvature = problem.solve(ridge=0.0)
    flat = float(np.linalg.eigvalsh(curvature)[0]) < FLAT * len(problem.weight)
    if flat:
        point, curvature = problem.solve(ridge=RIDGE)
    alpha = float(point[0]) / problem.scale
    fitted = Correction(alpha, float(point[1]) - alpha * problem.centre, num_old)
    margin = np.concatenate([part.best_old for part in parts]) - problem.largest(point)
    error = np.sqrt(np.linalg.inv(curvature)[1, 1])  # of the shift between old and new classes
    if flat or alpha <= 0 or np.mean(np.abs(margin) < error) > UNSETTLED:
        found = f"{len(margin)} images of {num_old + parts[0].new.shape[1]} classes do not settle the bias"
        message = f"the held-out set is too small to trust ({found}); give more memory or a larger held-out share"
        warnings.warn(message, HeldOutWarning, stacklevel=2)
    return fitted


class _Problem:
    """The loss as a function of two unknowns, (slope, shift).

    It needs per image the log-sum-exp of the old scores and the new scores only. The new scores are standardised to z
    = (o − centre) / scale, so that both unknowns of α·o + β = slope·z + shift are of one size whatever the network's
    scores are. That is done as they are used, a block at a time: in double precision only a block is ever held.
    """

    def __init__(self, parts: Sequence[HeldOut], num_old: int, penalty: float) -> None:
        labels = np.concatenate([part.labels for part in parts])
        count, rows = sum(part.new.numel() for part in parts), max(1, CHUNK // parts[0].new.shape[1])
        self.blocks, self.penalty = [block for part in parts for block in torch.split(part.new, rows)], penalty
        self.centre = sum(float(block.double().sum()) for block in self.blocks) / count
        squares = sum(float((block.double() - self.centre).square().sum()) for block in self.blocks)
        self.scale = max((squares / count) ** 0.5, 0.1)
        self.identity = np.array([self.scale, self.centre])
        self.least: Array = self._standardised(np.concatenate([part.new.amin(dim=1) for part in parts]))
        self.most: Array = self._standardised(np.concatenate([part.new.amax(dim=1) for part in parts]))
        self.old, self.own = (np.concatenate([getattr(part, name) for part in parts]) for name in ("old", "own"))
        self.is_new = (labels >= num_old).astype(np.float64)
        self.own = np.where(self.is_new > 0, self._standardised(self.own), self.own)
        # Classes count equally; the weights sum to the number of images.
        counts = np.bincount(labels)
        self.weight = len(labels) / np.count_nonzero(counts) / counts[labels]

    def _standardised(self, scores: npt.NDArray[Any]) -> Array:
        return np.asarray((scores.astype(np.float64) - self.centre) / self.scale)

    def largest(self, point: Array) -> Array:
        """Each image's largest corrected score of a new class."""
        return np.asarray(point[0] * self._end(point[0]) + point[1])

    def _end(self, slope: float) -> Array:
        """Each image's new score that counts most under a slope: its largest, or its least if that turns them round."""
        return self.most if slope > 0 else self.least

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
        size, first, second = self._moments(slope)
        new = self.largest(point) + np.log(size)  # the log-sum-exp of the new scores
        total = np.logaddexp(self.old, new)
        mass = np.exp(new - total)  # of all new classes together
        mean, square = mass * first, mass * second
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

    def _moments(self, slope: float) -> tuple[Array, Array, Array]:
        """Per image Σe, Σez / Σe and Σez² / Σe over the new classes, where e = exp(slope·z), the largest e being 1."""
        sums, ends, start = np.empty((3, len(self.weight))), torch.from_numpy(self._end(slope)), 0
        for block in self.blocks:
            rows = slice(start, start := start + len(block))
            z = (block.double() - self.centre).div_(self.scale)
            e = (z - ends[rows, None]).mul_(slope).exp_()
            sums[0, rows] = e.sum(dim=1)
            sums[1, rows] = e.mul_(z).sum(dim=1)
            sums[2, rows] = e.mul_(z).sum(dim=1)
        return sums[0], sums[1] / sums[0], sums[2] / sums[0]
