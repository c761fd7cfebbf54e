"""Moments: what an exact head keeps of the images it has learned from. No image is needed again."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass
class Moments:
    """Counts [classes], class means [classes, dim] and the scatter within classes [dim, dim].

    The scatter is Σ (h − mean of its class)(h − mean of its class)ᵀ over all images. All numbers
    are float64. Images can be added in any order and in any number of steps: only rounding differs.
    """

    counts: Tensor
    means: Tensor
    scatter: Tensor

    @classmethod
    def empty(cls, dim: int) -> "Moments":
        double = torch.float64
        return cls(
            torch.zeros(0, dtype=double),
            torch.zeros(0, dim, dtype=double),
            torch.zeros(dim, dim, dtype=double),
        )

    @property
    def dim(self) -> int:
        return len(self.scatter)

    def grow(self, num_classes: int) -> None:
        """Make room for new classes: afterwards there are `num_classes`."""
        num_new = num_classes - len(self.counts)
        self.counts = torch.cat([self.counts, self.counts.new_zeros(num_new)])
        self.means = torch.cat([self.means, self.means.new_zeros(num_new, self.dim)])

    def add(self, features: Tensor, labels: Tensor) -> None:
        """Add features [images, dim] of the classes `labels` [images]."""
        unique, inverse = np.unique(labels.numpy(), return_inverse=True)
        present = torch.from_numpy(unique)
        positions = torch.from_numpy(inverse)
        features = features.double()
        counts = torch.bincount(positions, minlength=len(present)).double()
        sums = torch.zeros(len(present), self.dim, dtype=torch.float64)
        means = sums.index_add_(0, positions, features) / counts[:, None]
        centred = features - means[positions]
        self.scatter.addmm_(centred.T, centred)
        # The scatter of two groups around their common mean (Chan et al., 1979).
        known = self.counts[present]
        total = known + counts
        shift = means - self.means[present]
        between = shift * (known * counts / total).sqrt()[:, None]
        self.scatter.addmm_(between.T, between)
        self.means[present] += shift * (counts / total)[:, None]
        self.counts[present] = total

    def packed(self, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
        """The tensors to save. The scatter is symmetric: only its lower half is kept."""
        rows = [row[: place + 1] for place, row in enumerate(self.scatter.to(dtype))]
        return {"counts": self.counts, "means": self.means.to(dtype), "scatter": torch.cat(rows)}

    @classmethod
    def unpacked(cls, tensors: dict[str, Tensor], dim: int, num_classes: int) -> "Moments":
        """What `packed` returned. Raises ValueError for tensors that do not fit."""
        shapes = {
            "counts": (num_classes,),
            "means": (num_classes, dim),
            "scatter": (dim * (dim + 1) // 2,),
        }
        if set(tensors) != set(shapes):
            raise ValueError("it holds other tensors than counts, means and scatter")
        for name, shape in shapes.items():
            found = tensors[name]
            if tuple(found.shape) != shape or not found.is_floating_point():
                raise ValueError(f"{name} has the shape {list(found.shape)}, not {list(shape)}")
        if not (tensors["counts"] >= 0).all():
            raise ValueError("a class has a negative number of images")
        scatter = torch.zeros(dim, dim, dtype=torch.float64)
        parts = torch.split(tensors["scatter"], list(range(1, dim + 1)))
        for row, part in zip(scatter, parts, strict=True):
            row[: len(part)] = part
        scatter += scatter.tril(-1).T
        return cls(tensors["counts"].double(), tensors["means"].double(), scatter)
