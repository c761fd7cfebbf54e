"""How exemplars are chosen: by herding, or at random."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bic.data.images import ImageSet, Indices
from bic.learn.memory import by_class
from bic.model.features import extract
from bic.model.network import Network
from bic.progress import Progress


def rank_by_herding(
    network: Network, images: ImageSet, limit: int, progress: Progress
) -> dict[int, Indices]:
    """The best `limit` images of each class by herding, best first."""
    features, readable = extract(network, images, progress)
    ranked = {}
    for label, members in by_class(images.labels[readable]).items():
        ranked[label] = readable[members[herd(features[members], limit)]]
    return ranked


def rank_at_random(
    images: ImageSet, limit: int, draws: np.random.Generator
) -> dict[int, Indices]:
    """`limit` random images of each class."""
    ranked = {}
    for label, members in by_class(images.labels).items():
        ranked[label] = draws.permutation(members)[:limit]
    return ranked


def herd(features: Tensor, count: int) -> Indices:
    """iCaRL's herding: rank images so that the mean feature of every prefix is near the class mean.

    features [n, dim]; they are L2-normalised here. Returns `count` indices, best first.
    """
    features = F.normalize(features.double(), dim=1)
    mean = features.mean(dim=0)
    # ‖k·mean − Σ chosen − f‖² is smallest where f·(k·mean − Σ chosen) is largest, since ‖f‖ = 1.
    target = mean.clone()
    is_taken = torch.zeros(len(features), dtype=torch.bool)
    chosen = np.empty(min(count, len(features)), dtype=np.int64)
    for rank in range(len(chosen)):
        best = int((features @ target).masked_fill(is_taken, -torch.inf).argmax())
        chosen[rank] = best
        is_taken[best] = True
        target += mean - features[best]
    return chosen
