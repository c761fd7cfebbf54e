"""The exact head: ridge regression on fixed features, solved from moments. It forgets nothing.

With μ_c the mean of class c, μ the mean of all μ_c, C classes and S the scatter within classes of
N images, A = S/N + Σ_c (μ_c − μ)(μ_c − μ)ᵀ / C is the covariance of images if all classes had the
same number of them. The head is w_c = (A + λ·tr(A)/dim · I)⁻¹ (μ_c − μ) / C. If all classes do have
the same number of images, this is ridge regression on one-hot targets (as in RanPAC, McDonnell et
al., 2023). Otherwise classes with many images have no advantage over classes with few.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from bic.learn.moments import Moments
from bic.model.calibrate import fit_temperature

# Penalties λ that are tried: from 10⁻⁴ to 10, two for each power of ten.
PENALTIES = tuple(10 ** (exponent / 2) for exponent in range(-8, 3))
DEFAULT_PENALTY = 1.0  # without held-out images. It suits tens of images per class.
# Regression returns 1 for the right class and 0 for the others. Logits are this many times larger
# before they are calibrated.
SCALE = 10.0


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
        self.matrix = moments.scatter / moments.counts.sum().clamp(min=1.0)
        self.matrix.addmm_(self.targets.T, self.targets, alpha=1 / len(active))
        self.size = max(float(self.matrix.diagonal().mean()), 1e-30)

    def solved(self, penalty: float, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
        """The weights [active, dim] and biases [active] of the regression, times SCALE."""
        matrix = self.matrix.to(dtype, copy=True)
        matrix.diagonal().add_(penalty * self.size)
        factor = torch.linalg.cholesky(matrix)
        targets = (self.targets.T / len(self.active)).to(dtype)
        weight = torch.cholesky_solve(targets, factor).T * SCALE
        bias = SCALE / len(self.active) - weight @ self.mean.to(dtype)
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
        positions = torch.searchsorted(self.active, labels.contiguous())

        scales: dict[float, float] = {}

        def loss(candidate: float) -> float:
            # Single precision is enough to compare penalties.
            weight, bias = self.solved(candidate, torch.float32)
            logits = F.linear(features, weight, bias)
            scales[candidate] = 1 / fit_temperature(logits, positions)
            return float(_balanced_cross_entropy(scales[candidate] * logits, positions))

        best = best_of(PENALTIES if penalty is None else (penalty,), loss)
        return self.head(best, scales[best])


def best_of(values: Sequence[float], loss: Callable[[float], float]) -> float:
    """The value with the smallest loss, if the loss falls and then rises along the values.

    The loss is computed for every third value, and then for neighbours of the best one.

    >>> best_of([1, 2, 3, 4, 5, 6, 7, 8], lambda value: (value - 6) ** 2)
    6
    """
    first = min(1, len(values) - 1)
    losses = {place: loss(values[place]) for place in range(first, len(values), 3)}
    best = -1
    while best != min(losses, key=losses.__getitem__):
        best = min(losses, key=losses.__getitem__)
        for place in (best - 1, best + 1):
            if 0 <= place < len(values) and place not in losses:
                losses[place] = loss(values[place])
    return values[best]


def _balanced_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean over classes of the mean cross-entropy of their images."""
    counts = torch.bincount(labels, minlength=logits.shape[1])
    present = int((counts > 0).sum())
    losses = F.cross_entropy(logits, labels, reduction="none")
    return (losses / counts[labels]).sum() / present
