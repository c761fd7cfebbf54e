"""Measure normalisation and whitening of a new network, on images of its first step."""

import numpy as np

from bic.data.decode_pool import decode_all
from bic.data.images import ImageSet
from bic.model.network import Network

MEASURED_IMAGES = 5000


def prepare(network: Network, images: ImageSet, draws: np.random.Generator) -> None:
    """Prepare the network on images that are drawn. None is decoded for a pretrained backbone."""
    if not network.measures_images:
        network.prepare(None)
        return
    drawn = draws.permutation(len(images))[:MEASURED_IMAGES]
    pixels, _ = images.take_readable(np.sort(drawn), decode=decode_all)
    network.prepare(pixels)
