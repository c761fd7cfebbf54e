"""The precision that is fastest for the network of a recipe on this machine."""

from torch import Tensor

from bic.compute.precision import ROUNDS, quickest_precision
from bic.data.images import ImageSet
from bic.learn.learning import Learning
from bic.model.network import Network, fresh_network
from bic.progress import Progress

FROZEN_IMAGES = 8  # that are timed: a frozen network sees each image only once or twice


def timed_network(
    learning: Learning, images: ImageSet, num_classes: int, known: Network | None = None
) -> tuple[Network, Tensor]:
    """A network for these images and a batch of them, to time an update with.

    It is untrained, or a `known` one that has learned before.
    """
    recipe = learning.recipe
    network = known or fresh_network(
        recipe.backbone,
        channels=images.preprocessing.channels,
        image_size=images.preprocessing.size,
        num_classes=num_classes,
        frozen=recipe.frozen,
    )
    num_images = FROZEN_IMAGES if recipe.frozen else recipe.batch_size
    batch, _ = images.take_readable(images.everything[:num_images])
    return network.train(), batch


def measured_precision(
    learning: Learning, images: ImageSet, num_classes: int, progress: Progress, device: str
) -> str:
    """`bfloat16` if it is faster than float32 here, else `float32`."""
    network, batch = timed_network(learning, images, num_classes)
    rounds = 1 if learning.recipe.frozen else ROUNDS
    return quickest_precision(network, batch, progress, device, rounds=rounds)
