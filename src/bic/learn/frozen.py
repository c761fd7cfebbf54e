"""Learning on a frozen backbone: its network, and the features of images and exemplars."""

from bic.compute.seeding import seeded
from bic.data.images import ImageSet
from bic.errors import UserError
from bic.learn.learning import Learning
from bic.learn.measure import prepare
from bic.learn.memory import Memory
from bic.model.frozen_features import FeatureCache, with_features
from bic.model.model import Model
from bic.model.network import Network
from bic.progress import Progress
from bic.randomness import generator


def frozen_network(learning: Learning, images: ImageSet, device: str) -> Network:
    """The network of a new model, before its first step. Its head has no rows."""
    preprocessing = images.preprocessing
    with seeded(learning.seed, "weights", 1):
        model = Model.fresh(learning.recipe.backbone, preprocessing)
        prepare(model.network, images, generator(learning.seed, "measure", 1))
    return model.to(device).network.freeze()


def featured(
    learning: Learning,
    network: Network,
    images: ImageSet,
    progress: Progress,
    *,
    cache: FeatureCache | None = None,
    for_training: bool = True,
) -> ImageSet:
    """The readable images with their features; those of mirrored images only for training.

    Raises UserError if no image can be read.
    """
    if images.features is not None:
        return images
    readable = with_features(
        network,
        images,
        progress,
        mirrored=for_training and learning.recipe.augmentation.flip,
        precision=learning.precision,
        cache=cache,
    )
    if len(images) and not len(readable):
        raise UserError(f"none of the {len(images):,} images can be read", "fix some")
    return readable


def complete_features(
    learning: Learning, network: Network, memory: Memory, progress: Progress
) -> None:
    """Compute the features of exemplars that lack them, as in a memory of an older version."""
    exemplars = memory.all_images()
    if len(exemplars):
        memory.features.add(featured(learning, network, exemplars, progress))
