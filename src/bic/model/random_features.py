"""Random features: a fixed, random layer that lets a linear head separate more (RanPAC, 2023)."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RandomFeatures(nn.Module):
    """h = [f, relu(W f) / √count] for features f of length 1, with W fixed by the seed.

    W has standard normal entries. It is made again from the seed when a model is loaded, so it
    takes no space in a file.
    """

    matrix: Tensor

    def __init__(self, num_features: int, count: int, seed: int) -> None:
        super().__init__()
        self.count = count
        self.seed = seed
        # NumPy promises that the numbers of this generator never change.
        draws = np.random.RandomState(seed).standard_normal((count, num_features))
        matrix = torch.from_numpy(draws.astype(np.float32)) / max(1, count) ** 0.5
        self.register_buffer("matrix", matrix, persistent=False)

    @property
    def dim(self) -> int:
        """The length of h."""
        return sum(self.matrix.shape)

    def forward(self, features: Tensor) -> Tensor:
        """h [batch, dim] of features [batch, num_features]."""
        unit = F.normalize(features, dim=1)
        return torch.cat([unit, F.linear(unit, self.matrix).relu_()], dim=1)
