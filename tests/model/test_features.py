"""Features of many images, and iCaRL's class means, compared with the network's own."""

import numpy as np
import torch
from support.model_folders import GREY, prepared_network

from bic import ImageSet, Progress
from bic.data.images import array_set
from bic.model.features import class_means, extract

QUIET = Progress("quiet")


def images_of_three_classes(count: int) -> ImageSet:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 8, 8), dtype=np.uint8)
    return array_set(pixels, np.arange(count) % 3)


def test_features_are_those_of_the_network_in_evaluation_mode() -> None:
    torch.manual_seed(0)
    network = prepared_network("mlp", GREY, num_classes=3).train()
    images = images_of_three_classes(700)  # two batches
    features, readable = extract(network, images, QUIET)
    mirrored, _ = extract(network, images, QUIET, mirrored=True)
    assert readable.tolist() == list(range(700))
    pixels = images.take(images.everything)
    with torch.no_grad():
        network.eval()
        torch.testing.assert_close(features, network.features(pixels))
        torch.testing.assert_close(mirrored, network.features(pixels.flip(3)))
    assert not features.requires_grad


def test_class_means_are_normalised_means_of_normalised_features() -> None:
    torch.manual_seed(0)
    network = prepared_network("mlp", GREY, num_classes=3)
    images = images_of_three_classes(12)
    features, _ = extract(network, images, QUIET)
    mirrored, _ = extract(network, images, QUIET, mirrored=True)
    for with_mirrored in (False, True):
        means = class_means(network, images, QUIET, mirrored=with_mirrored)
        for label in range(3):
            rows = features[label::3]
            if with_mirrored:
                rows = torch.cat([rows, mirrored[label::3]])
            mean = (rows / rows.norm(dim=1, keepdim=True)).mean(dim=0)
            torch.testing.assert_close(means[label], mean / mean.norm())
