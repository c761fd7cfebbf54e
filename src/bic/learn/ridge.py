"""The exact head: ridge regression on fixed features, solved from moments. It forgets nothing.

With μ_c the mean of class c, μ the mean of all μ_c, C classes and S the scatter within classes of
N images, A = S/N + Σ_c (μ_c − μ)(μ_c − μ)ᵀ / C is the covariance of images if all classes had the
same number of them. The head is w_c = (A + λ·tr(A)/dim · I)⁻¹ (μ_c − μ) / C. If all classes do have
the same number of images, this is ridge regression on one-hot targets (as in RanPAC, McDonnell et
al., 2023). Otherwise classes with many images have no advantage over classes with few.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from bic import files
from bic.errors import UserError
from bic.learn.moments import Moments
from bic.model.calibrate import fit_temperature

# Penalties λ that are tried: from 10⁻⁴ to 10, two for each power of ten.
PENALTIES = tuple(10 ** (exponent / 2) for exponent in range(-8, 3))
DEFAULT_PENALTY = 1.0  # without held-out images. It suits tens of images per class.
# Regression returns 1 for the right class and 0 for the others. Logits are this many times larger
# before they are calibrated.
SCALE = 10.0
BLOCK = 512  # rows of a matrix that are computed at once
TOLERANCE = 1e-9  # of the scale of the logits, relative


@dataclass(frozen=True)
class ExactHead:
    """Logits are h·weightᵀ + bias. weight [classes, dim], bias [classes], both float32."""

    weight: Tensor
    bias: Tensor
    penalty: float


class Regression:
    """The regression problem of the classes `active`. The other classes get rows of zeros."""

    def __init__(self, moments: Moments, active: Sequence[int]) -> None:
        self.active = torch.tensor(active)
        self.num_classes = len(moments.counts)
        means = moments.means[self.active]
        self.mean = means.mean(dim=0)
        self.targets = means - self.mean
        # Only the lower half is computed and used: the matrix is symmetric.
        self.matrix = moments.scatter / moments.counts.sum().clamp(min=1.0)
        for start in range(0, moments.dim, BLOCK):
            rows = slice(start, start + BLOCK)
            columns = slice(0, start + BLOCK)
            products = self.targets[:, rows].T, self.targets[:, columns]
            self.matrix[rows, columns].addmm_(*products, alpha=1 / len(active))
        self.size = max(float(self.matrix.diagonal().mean()), 1e-30)

    def solved(self, penalty: float) -> tuple[Tensor, Tensor]:
        """The weights [active, dim] and biases [active] of the regression, times SCALE."""
        matrix = self.matrix.clone()
        matrix.diagonal().add_(penalty * self.size)
        factor = _cholesky(matrix)
        targets = self.targets.T * (SCALE / len(self.active))
        weight = torch.cholesky_solve(targets, factor).T
        bias = SCALE / len(self.active) - weight @ self.mean
        return weight, bias

    def head(self, penalty: float, scale: float = 1.0) -> ExactHead:
        """The head of this penalty, its logits multiplied by `scale`."""
        weight, bias = self.solved(penalty)
        rows = torch.zeros(self.num_classes, weight.shape[1])
        rows[self.active] = (weight * scale).float()
        biases = torch.zeros(self.num_classes)
        biases[self.active] = (bias * scale).float()
        return ExactHead(rows, biases, penalty)

    def chosen_head(self, features: Tensor, labels: Tensor, penalty: float | None) -> ExactHead:
        """The head whose calibrated cross-entropy on held-out images is the smallest.

        features [images, dim]; labels [images] are positions among all classes. A given `penalty`
        is used as it is, and only the scale of the logits is fitted.
        """
        return self.head(*self._chosen(features, labels, penalty))

    def _chosen(
        self, features: Tensor, labels: Tensor, penalty: float | None
    ) -> tuple[float, float]:
        """The penalty, and the scale of its logits."""
        positions = torch.searchsorted(self.active, labels.contiguous())
        trial = _Trial(self, features)
        scales: dict[float, float] = {}

        def loss(candidate: float) -> float:
            logits = trial.logits(candidate)
            scales[candidate] = 1 / fit_temperature(logits, positions, tolerance=TOLERANCE)
            return float(_balanced_cross_entropy(scales[candidate] * logits, positions))

        if penalty is None:
            penalty = best_of(PENALTIES, loss)
        else:
            loss(penalty)
        return penalty, scales[penalty]


class _Trial:
    """The logits of held-out images for any penalty, in single precision.

    This is enough to compare penalties. The system is solved for the classes or for the images,
    whichever are fewer.
    """

    def __init__(self, regression: Regression, features: Tensor) -> None:
        self.size = regression.size
        self.matrix = regression.matrix.float()
        self.diagonal = self.matrix.diagonal().clone()
        self.targets = regression.targets.float()
        self.images = features - regression.mean.float()

    def logits(self, penalty: float) -> Tensor:
        """Logits [images, active classes], as the head of this penalty gives them."""
        torch.add(self.diagonal, penalty * self.size, out=self.matrix.diagonal())
        factor = _cholesky(self.matrix)
        if len(self.images) < len(self.targets):
            products = torch.cholesky_solve(self.images.T, factor).T @ self.targets.T
        else:
            products = self.images @ torch.cholesky_solve(self.targets.T, factor)
        return products.add_(1.0).mul_(SCALE / len(self.targets))


def _cholesky(matrix: Tensor) -> Tensor:
    """The lower factor. Raises UserError for a matrix that no images can have."""
    factor: Tensor
    factor, failure = torch.linalg.cholesky_ex(matrix)
    if failure:
        problem = "the head cannot be solved, because its moments are not those of images"
        raise UserError(problem, files.AGAIN)
    return factor


def best_of(values: Sequence[float], loss: Callable[[float], float]) -> float:
    """The value with the smallest loss, if the loss falls and then rises along the values.

    Fibonacci search (Kiefer, 1953): of all searches, the one with the fewest values in the worst
    case. Of eleven values it tries five.

    >>> best_of([1, 2, 3, 4, 5, 6, 7, 8], lambda value: (value - 6) ** 2)
    6
    """
    known: dict[int, float] = {}

    def loss_at(place: int) -> float:
        if place >= len(values):
            return math.inf
        if place not in known:
            known[place] = loss(values[place])
        return known[place]

    short, long = 1, 1  # neighbouring Fibonacci numbers
    while short + long <= len(values):
        short, long = long, short + long
    before = -1  # the smallest loss is at one of the next short + long - 1 places
    while short + long > 2:
        if loss_at(before + short) > loss_at(before + long):
            before += short
        short, long = long - short, short
    return values[before + 1]


def _balanced_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean over classes of the mean cross-entropy of their images."""
    counts = torch.bincount(labels, minlength=logits.shape[1])
    present = int((counts > 0).sum())
    losses = F.cross_entropy(logits, labels, reduction="none")
    return (losses / counts[labels]).sum() / present
