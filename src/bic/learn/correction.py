"""Stage 2: α and β, fitted to their optimum by Newton's method (§5.2 of the paper)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bic.errors import HeldOutWarning, warn
from bic.learn.held_out import HeldOutLogits, image_weights
from bic.learn.newton import Array, minimise
from bic.model.answers import Correction

CHUNK = 2**18  # logits processed at a time
FLAT = 1e-6  # curvature per image, for standardised logits, below which there is no optimum
RIDGE = 1e-2  # pull per image towards the identity if the held-out set does not determine a fit
UNSETTLED = 0.1  # largest trusted share of images that the error of the fit may reclassify


def fit_correction(
    logits: Tensor | npt.NDArray[Any],
    labels: Tensor | npt.NDArray[Any],
    num_old: int,
    *,
    penalty: float = 0.0,
) -> Correction:
    """The α, β that minimise the cross-entropy of the corrected logits on held-out images.

    logits [images, classes] are raw, labels [images]. All classes count equally, however many
    images each has. `penalty` adds penalty·β²/2 (the authors' code has 0.1, the paper has none).
    The problem is convex in two unknowns, so damped Newton steps find the optimum in double
    precision. If the images do not determine a fit (separable, a single class, too few), the pair
    stays near the identity and a HeldOutWarning says so.

    Raises ValueError for logits that are not finite and for shapes that do not fit.
    """
    logits = torch.as_tensor(logits).detach()
    labels = torch.as_tensor(labels).long()
    _check_shapes(logits, labels)
    num_classes = logits.shape[1]
    if num_old in (0, num_classes) or not len(labels):
        return Correction(1.0, 0.0, num_old)
    held_out = HeldOutLogits(len(labels), num_old, num_classes - num_old, logits.dtype)
    rows = max(1, CHUNK // num_classes)
    for start in range(0, len(labels), rows):
        held_out.add(logits[start : start + rows], labels[start : start + rows])
    return fit_held_out([held_out], num_old, penalty=penalty)


def _check_shapes(logits: Tensor, labels: Tensor) -> None:
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        shapes = f"{list(logits.shape)}, {list(labels.shape)}"
        raise ValueError(f"logits must be [n, classes] and labels [n], got {shapes}")
    if len(labels) and not 0 <= labels.min() <= labels.max() < logits.shape[1]:
        last = logits.shape[1] - 1
        raise ValueError(f"labels must lie in 0..{last}, got {labels.min()}..{labels.max()}")


def fit_held_out(
    parts: Sequence[HeldOutLogits], num_old: int, *, penalty: float = 0.0, warns: bool = True
) -> Correction:
    """`fit_correction` for logits that were reduced batch by batch, in one or several processes."""
    num_classes = num_old + parts[0].new.shape[1]
    parts = [part for part in parts if part.count]
    if not parts:
        if warns:
            warn_too_small(0, num_classes)
        return Correction(1.0, 0.0, num_old)
    problem = _Problem(parts, num_old, penalty)
    point, hessian = problem.solve(ridge=0.0)
    is_flat = float(np.linalg.eigvalsh(hessian)[0]) < FLAT * len(problem.weight)
    if is_flat:
        point, hessian = problem.solve(ridge=RIDGE)
    alpha = float(point[0]) / problem.scale
    correction = Correction(alpha, float(point[1]) - alpha * problem.centre, num_old)
    margin = np.concatenate([part.best_old for part in parts]) - problem.largest(point)
    shift_error = np.sqrt(np.linalg.inv(hessian)[1, 1])  # standard error of the shift
    unsettled = np.mean(np.abs(margin) < shift_error)
    if warns and (is_flat or alpha <= 0 or unsettled > UNSETTLED):
        warn_too_small(len(margin), num_classes)
    return correction


def warn_too_small(num_images: int, num_classes: int) -> None:
    """Warn that the held-out images do not determine a fit."""
    warn(
        f"the held-out set is too small to trust ({num_images} images of {num_classes} "
        "classes do not determine the bias); use more memory or a larger held-out share",
        HeldOutWarning,
    )


class _Problem:
    """The loss as a function of two unknowns, (slope, shift).

    For each image it needs the log-sum-exp of the old logits, and the new logits. The new logits
    are standardised to z = (o − centre) / scale, so that both unknowns of α·o + β = slope·z +
    shift have the same size for any network. This happens block by block: only one block is held
    in double precision.
    """

    def __init__(self, parts: Sequence[HeldOutLogits], num_old: int, penalty: float) -> None:
        self.penalty = penalty
        rows = max(1, CHUNK // parts[0].new.shape[1])
        self.blocks: list[Tensor] = []
        for part in parts:
            self.blocks += torch.split(part.new, rows)
        count = sum(part.new.numel() for part in parts)
        self.centre = sum(float(block.double().sum()) for block in self.blocks) / count
        squares = 0.0
        for block in self.blocks:
            squares += float((block.double() - self.centre).square().sum())
        self.scale = max((squares / count) ** 0.5, 0.1)
        self.identity = np.array([self.scale, self.centre])
        self.smallest = self._standardised(_concatenated([part.new.amin(dim=1) for part in parts]))
        self.greatest = self._standardised(_concatenated([part.new.amax(dim=1) for part in parts]))
        self.old = _concatenated([part.old for part in parts])
        labels = _concatenated([part.labels for part in parts])
        self.is_new = (labels >= num_old).astype(np.float64)
        own = _concatenated([part.own for part in parts])
        self.own = np.where(self.is_new > 0, self._standardised(own), own)
        self.weight = image_weights(labels, num_old, num_old + parts[0].new.shape[1])

    def _standardised(self, logits: npt.NDArray[Any]) -> Array:
        return np.asarray((logits.astype(np.float64) - self.centre) / self.scale)

    def largest(self, point: Array) -> Array:
        """Each image's largest corrected logit of a new class."""
        return np.asarray(point[0] * self._extreme(point[0]) + point[1])

    def _extreme(self, slope: float) -> Array:
        """Each image's new logit that the slope makes largest: the smallest if slope < 0."""
        return self.greatest if slope > 0 else self.smallest

    def solve(self, *, ridge: float) -> tuple[Array, Array]:
        """(slope, shift) at the optimum, and the Hessian there."""
        num_images = len(self.weight)
        return minimise(lambda point: self.loss(point, ridge), self.identity, num_images=num_images)

    def loss(self, point: Array, ridge: float) -> tuple[float, Array, Array]:
        """Loss, gradient [2] and Hessian [2, 2]. `ridge` pulls towards the identity."""
        slope, shift = point
        size, first, second = self._moments(slope)
        new = self.largest(point) + np.log(size)  # the log-sum-exp of the new logits
        total = np.logaddexp(self.old, new)
        mass = np.exp(new - total)  # probability of all new classes together
        mean = mass * first
        square = mass * second
        own = np.where(self.is_new > 0, slope * self.own + shift, self.own)

        value = self.weight @ (total - own)
        residuals = np.array([mean - self.is_new * self.own, mass - self.is_new])
        gradient = residuals @ self.weight
        both = self.weight @ (mean * (1 - mass))
        hessian = np.array(
            [[self.weight @ (square - mean**2), both], [both, self.weight @ (mass * (1 - mass))]]
        )
        # β = shift − slope·centre/scale, so penalty·β²/2 pulls along this direction.
        direction = np.array([-self.centre / self.scale, 1.0])
        beta = direction @ point
        away = point - self.identity
        value += len(own) * (self.penalty * beta**2 + ridge * (away @ away)) / 2
        gradient += len(own) * (self.penalty * beta * direction + ridge * away)
        curvature = self.penalty * np.outer(direction, direction) + ridge * np.eye(2)
        hessian += len(own) * curvature
        return float(value), gradient, hessian

    def _moments(self, slope: float) -> tuple[Array, Array, Array]:
        """Σe, Σez / Σe and Σez² / Σe over the new classes of each image.

        e is exp(slope·z), scaled so that the largest e is 1.
        """
        sums = np.empty((3, len(self.weight)))
        extremes = torch.from_numpy(self._extreme(slope))
        start = 0
        for block in self.blocks:
            rows = slice(start, start + len(block))
            start += len(block)
            z = (block.double() - self.centre).div_(self.scale)
            e = (z - extremes[rows, None]).mul_(slope).exp_()
            sums[0, rows] = e.sum(dim=1)
            sums[1, rows] = e.mul_(z).sum(dim=1)
            sums[2, rows] = e.mul_(z).sum(dim=1)
        return sums[0], sums[1] / sums[0], sums[2] / sums[0]


def _concatenated(parts: Sequence[Tensor]) -> npt.NDArray[Any]:
    return np.concatenate([part.numpy() for part in parts])
