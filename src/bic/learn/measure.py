"""Measure normalisation and whitening of a new network, on images of its first step."""

import numpy as np

from bic.data.decode_pool import decode_all
from bic.data.images import ImageSet
from bic.model.network import Network

# At most so many are measured, and fewer of more than 32 pixels a side: measuring takes about
# 200 bytes for each pixel.
MEASURED_IMAGES = 5000
MEASURED_PIXELS = MEASURED_IMAGES * 32**2


def prepare(network: Network, images: ImageSet, draws: np.random.Generator) -> None:
    """Prepare the network on images that are drawn. None is decoded for a pretrained backbone."""
    if not network.measures_images:
        network.prepare(None)
        return
    side = images.preprocessing.size or 1
    count = min(MEASURED_IMAGES, max(1, MEASURED_PIXELS // side**2))
    drawn = draws.permutation(len(images))[:count]
    pixels, _ = images.take_readable(np.sort(drawn), decode=decode_all)
    network.prepare(pixels)
