"""How much to trust the head and the class means: a Blend, fitted on held-out images."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from bic.learn.correction import CHUNK, FLAT, RIDGE, UNSETTLED, warn_too_small
from bic.learn.held_out import LogitsAndCosines, image_weights
from bic.learn.newton import Array, minimise
from bic.model.answers import Blend, Correction

# The paper's form, a = 1 and γ = 0, is the prior. This is its standard deviation in units of the
# final logits: with many held-out images it has no effect, with few it keeps the paper's form.
PRIOR_STD = 1.0

HEAD, ALPHA, SHIFT, MEANS = range(4)  # the unknowns


def fit_blend(parts: Sequence[LogitsAndCosines], num_old: int, *, penalty: float = 0.0) -> Blend:
    """The a, α, β, γ that minimise the cross-entropy of the blended logits on held-out images.

    Old classes together count n, new ones m. `penalty` adds penalty·β²/2. Without old classes there
    is no bias: a and β do not exist, and α, the weight of the head, has the prior of a. The problem
    is convex, so Newton's method finds the optimum. A HeldOutWarning says if there are too few
    images to trust the fit.

    Raises ValueError for logits or cosines that are not finite.
    """
    num_classes = parts[0].logits.shape[1]
    parts = [part for part in parts if len(part.labels)]
    if not parts:
        if num_old:
            warn_too_small(0, num_classes)
        return Blend(1.0, 0.0, Correction(1.0, 0.0, num_old))
    problem = _Problem(parts, num_old, penalty)
    point, hessian = problem.solve(ridge=0.0)
    smallest_curvature = float(np.linalg.eigvalsh(hessian)[0])
    is_flat = smallest_curvature < FLAT * problem.num_images
    if is_flat:
        point, hessian = problem.solve(ridge=RIDGE)
    blend = problem.blend(point)
    if num_old:
        unsettled = problem.unsettled(point, hessian)
        if is_flat or blend.correction.alpha <= 0 or unsettled > UNSETTLED:
            warn_too_small(problem.num_images, problem.num_classes)
    return blend


class _Problem:
    """The loss as a function of (head, alpha, shift, means), for standardised logits and cosines.

    Old logits, new logits and cosines are each centred and scaled, so that all unknowns have the
    same size for any network. Blocks of images are converted to double precision one at a time.
    """

    def __init__(self, parts: Sequence[LogitsAndCosines], num_old: int, penalty: float) -> None:
        self.parts = parts
        self.num_old = num_old
        self.num_classes = parts[0].logits.shape[1]
        self.num_images = sum(len(part.labels) for part in parts)
        self.penalty = penalty
        self.old_centre, self.old_scale = _moments([part.logits[:, :num_old] for part in parts])
        self.new_centre, self.new_scale = _moments([part.logits[:, num_old:] for part in parts])
        self.cosine_centre, self.cosine_scale = _moments([part.cosines for part in parts], 1e-6)
        labels = np.concatenate([part.labels for part in parts])
        self.weights = image_weights(labels, num_old, self.num_classes)
        self.free = [HEAD, ALPHA, SHIFT, MEANS] if num_old else [ALPHA, MEANS]
        # Uncorrected logits, and no class means.
        shift = self.new_centre - self.old_centre if num_old else 0.0
        self.identity = np.array([self.old_scale, self.new_scale, shift, 0.0])
        # Weights of the prior: on a and γ, or on α and γ if there are no old classes.
        self.prior = np.zeros(4)
        self.prior[[HEAD if num_old else ALPHA, MEANS]] = PRIOR_STD**-2
        # β = shift − α·new_centre + a·old_centre
        self.beta_direction = np.array(
            [self.old_centre / self.old_scale, -self.new_centre / self.new_scale, 1.0, 0.0]
        )

    def blend(self, point: Array) -> Blend:
        """The blend at a point."""
        head = float(point[HEAD]) / self.old_scale if self.num_old else 1.0
        alpha = float(point[ALPHA]) / self.new_scale
        beta = float(self.beta_direction @ point) if self.num_old else 0.0
        means = float(point[MEANS]) / self.cosine_scale
        return Blend(head, means, Correction(alpha, beta, self.num_old))

    def solve(self, *, ridge: float) -> tuple[Array, Array]:
        """The optimum, and the Hessian of the free unknowns there."""
        free = np.ix_(self.free, self.free)

        def loss(free_point: Array) -> tuple[float, Array, Array]:
            value, gradient, hessian = self.loss(self._full(free_point), ridge)
            return value, gradient[self.free], hessian[free]

        start = self.identity[self.free]
        best, hessian = minimise(loss, start, num_images=self.num_images)
        return self._full(best), hessian

    def _full(self, free_point: Array) -> Array:
        point = self.identity.copy()
        point[self.free] = free_point
        return point

    def loss(self, point: Array, ridge: float) -> tuple[float, Array, Array]:
        """Loss, gradient [4] and Hessian [4, 4]. `ridge` pulls towards the identity."""
        value = 0.0
        gradient = np.zeros(4)
        hessian = np.zeros((4, 4))
        for block in self._blocks():
            block_value, block_gradient, block_hessian = block.loss(point, self.num_old)
            value += block_value
            gradient += block_gradient
            hessian += block_hessian
        away = point - self.identity
        pull = self.prior + ridge * self.num_images
        value += pull @ away**2 / 2
        gradient += pull * away
        hessian += np.diag(pull)
        if self.num_old:
            weight = self.penalty * self.num_images
            beta = self.beta_direction @ point
            value += weight * beta**2 / 2
            gradient += weight * beta * self.beta_direction
            hessian += weight * np.outer(self.beta_direction, self.beta_direction)
        return float(value), gradient, hessian

    def unsettled(self, point: Array, hessian: Array) -> float:
        """The share of images that the standard error of the fit may reclassify.

        They are the images whose best old and best new class differ by less than the standard error
        of this difference.
        """
        covariance = np.linalg.inv(hessian)
        count = 0
        for block in self._blocks():
            margin, direction = block.margins(point, self.num_old)
            error = np.sqrt(np.einsum("ni,ij,nj->n", direction, covariance, direction))
            count += int(np.count_nonzero(np.abs(margin) < error))
        return count / self.num_images

    def _blocks(self) -> Iterator["_Block"]:
        """All images, some at a time, in double precision and standardised."""
        rows = max(1, CHUNK // self.num_classes)
        done = 0
        for part in self.parts:
            for start in range(0, len(part.labels), rows):
                chosen = slice(start, start + rows)
                logits = part.logits[chosen].to(torch.float64, copy=True)
                logits[:, : self.num_old].sub_(self.old_centre).div_(self.old_scale)
                logits[:, self.num_old :].sub_(self.new_centre).div_(self.new_scale)
                cosines = part.cosines[chosen].to(torch.float64, copy=True)
                cosines.sub_(self.cosine_centre).div_(self.cosine_scale)
                labels = torch.from_numpy(part.labels[chosen])
                weights = torch.from_numpy(self.weights[done : done + len(labels)])
                done += len(labels)
                yield _Block(logits, cosines, labels, weights)


class _Block:
    """Some images: standardised logits and cosines [images, classes], labels and weights."""

    def __init__(self, logits: Tensor, cosines: Tensor, labels: Tensor, weights: Tensor) -> None:
        self.logits = logits
        self.cosines = cosines
        self.labels = labels
        self.weights = weights

    def blended(self, point: Array, num_old: int) -> Tensor:
        head, alpha, shift, means = point.tolist()
        blended: Tensor = self.cosines * means
        blended[:, :num_old].add_(self.logits[:, :num_old], alpha=head)
        blended[:, num_old:].add_(self.logits[:, num_old:], alpha=alpha).add_(shift)
        return blended

    def loss(self, point: Array, num_old: int) -> tuple[float, Array, Array]:
        """The sums over these images of loss, gradient [4] and Hessian [4, 4].

        A blended logit is linear in the unknowns. Its coefficients x are (z, 0, 0, c) for an old
        class and (0, z, 1, c) for a new one. So the gradient is E[x] − x of the own class, and the
        Hessian is the covariance of x, both under the softmax of the blended logits.
        """
        blended = self.blended(point, num_old)
        total = torch.logsumexp(blended, dim=1)
        own = blended.gather(1, self.labels[:, None])[:, 0]
        value = float(self.weights @ (total - own))
        p = blended.sub_(total[:, None]).exp_()

        first = torch.zeros(len(p), 4, dtype=torch.float64)
        second = torch.zeros(len(p), 4, 4, dtype=torch.float64)
        p_cosines = p * self.cosines
        first[:, MEANS] = p_cosines.sum(dim=1)
        second[:, MEANS, MEANS] = (p_cosines * self.cosines).sum(dim=1)
        first[:, SHIFT] = p[:, num_old:].sum(dim=1)
        second[:, SHIFT, SHIFT] = first[:, SHIFT]
        second[:, SHIFT, MEANS] = p_cosines[:, num_old:].sum(dim=1)
        for unknown, group in ((HEAD, slice(0, num_old)), (ALPHA, slice(num_old, None))):
            logits = self.logits[:, group]
            p_logits = p[:, group] * logits
            first[:, unknown] = p_logits.sum(dim=1)
            second[:, unknown, unknown] = (p_logits * logits).sum(dim=1)
            second[:, unknown, MEANS] = (p_logits * self.cosines[:, group]).sum(dim=1)
        second[:, ALPHA, SHIFT] = first[:, ALPHA]
        second = second + second.triu(1).transpose(1, 2)  # both triangles

        residual = first - self.coefficients(self.labels, num_old)
        covariance = second - first[:, :, None] * first[:, None, :]
        gradient = self.weights @ residual
        hessian = torch.tensordot(self.weights, covariance, dims=1)
        return value, gradient.numpy(), hessian.numpy()

    def coefficients(self, classes: Tensor, num_old: int) -> Tensor:
        """The coefficients x [images, 4] of the blended logit of one class for each image."""
        logits = self.logits.gather(1, classes[:, None])[:, 0]
        cosines = self.cosines.gather(1, classes[:, None])[:, 0]
        is_new = (classes >= num_old).double()
        return torch.stack([logits * (1.0 - is_new), logits * is_new, is_new, cosines], dim=1)

    def margins(self, point: Array, num_old: int) -> tuple[Array, Array]:
        """Best new minus best old blended logit [images], and its coefficients [images, 4]."""
        blended = self.blended(point, num_old)
        best_old, old = blended[:, :num_old].max(dim=1)
        best_new, new = blended[:, num_old:].max(dim=1)
        direction = self.coefficients(new + num_old, num_old) - self.coefficients(old, num_old)
        return (best_new - best_old).numpy(), direction.numpy()


def _moments(arrays: Sequence[Tensor], smallest: float = 0.1) -> tuple[float, float]:
    """Mean and standard deviation of all values; the latter is at least `smallest`.

    Raises ValueError for values that are not finite.
    """
    count = sum(array.numel() for array in arrays)
    if not count:
        return 0.0, 1.0
    centre = sum(float(array.sum(dtype=torch.float64)) for array in arrays) / count
    squares = 0.0
    for array in arrays:
        for rows in torch.split(array, max(1, CHUNK // array.shape[1])):
            squares += float((rows.double() - centre).square().sum())
    if not np.isfinite(squares):
        raise ValueError("logits and cosines must be finite")
    return centre, max((squares / count) ** 0.5, smallest)
