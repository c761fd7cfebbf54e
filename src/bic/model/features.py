"""Features of many images, and class means computed from features."""

import torch
import torch.nn.functional as F
from torch import Tensor

from bic.compute.distributed import gathered, world
from bic.data.batches import plain_batches
from bic.data.images import ImageSet, Indices
from bic.model.network import Network
from bic.progress import Progress


@torch.no_grad()
def extract(
    network: Network, images: ImageSet, progress: Progress, *, mirrored: bool = False
) -> tuple[Tensor, Indices]:
    """Features [n, num_features] of the readable images in evaluation mode, and their indices."""
    network.eval()
    num_images = len(world().share(images.everything))
    features = torch.empty(num_images, network.num_features)
    readable = torch.empty(num_images, dtype=torch.int64)
    count = 0
    with progress.task("computing features", len(images)) as task:
        for pixels, indices in plain_batches(images):
            if mirrored:
                pixels = _mirrored(images, pixels, indices)
            rows = slice(count, count + len(indices))
            features[rows] = network.features(pixels.to(network.device))
            readable[rows] = torch.from_numpy(indices)
            count += len(indices)
            task.advance(len(indices))
    return gathered(features[:count]), gathered(readable[:count]).numpy()


def _mirrored(images: ImageSet, pixels: Tensor, indices: Indices) -> Tensor:
    """The mirrored images of a batch, or their features."""
    if images.features is None:
        return pixels.flip(3)
    assert images.features.mirrored is not None
    return images.features.mirrored[torch.from_numpy(indices)].float()


def class_means(
    network: Network, exemplars: ImageSet, progress: Progress, *, mirrored: bool
) -> Tensor:
    """iCaRL's class means: the renormalised mean of the exemplars' normalised features.

    `mirrored` adds the features of the mirrored exemplars to the mean. A class without exemplars,
    which is a retired one, gets zeros.
    """
    labels = torch.from_numpy(exemplars.labels)
    means = torch.zeros(network.num_classes, network.num_features, dtype=torch.float64)
    for flip in (False, True) if mirrored else (False,):
        features, readable = extract(network, exemplars, progress, mirrored=flip)
        normalised = F.normalize(features.double(), dim=1)
        means.index_add_(0, labels[torch.from_numpy(readable)], normalised)
    return F.normalize(means, dim=1).float().to(network.device)
