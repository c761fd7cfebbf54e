"""How long a learn will take and how much it will store, from a few timed batches."""

from bic.compute.cost import seconds_per_image
from bic.compute.precision import computing_in
from bic.data.images import ImageSet
from bic.learn.effort import update_cost
from bic.learn.learner import Learner
from bic.learn.learning import Learning
from bic.learn.measured_precision import timed_network
from bic.learn.methods import find_method
from bic.model.network import Network
from bic.model.pretrained import is_pretrained

BYTES_PER_WEIGHT = 4


def expected_cost(
    learner: Learner, images: ImageSet, *, num_classes: int, is_first: bool, epochs_done: int
) -> tuple[float | None, int]:
    """Seconds of training, measured here, and bytes of the version. Seconds are None on a GPU."""
    learning = learner.learning
    recipe = learning.recipe
    known = None
    if not is_first and is_pretrained(recipe.backbone):  # its weights may be here only
        known = learner.model.network
    network, batch = timed_network(learning, images, num_classes, known)
    num_bytes = _num_bytes(learner, images, network, num_classes, is_first=is_first)
    if learner.device != "cpu":
        return None, num_bytes
    if len(batch) < 2:
        return None, num_bytes
    with computing_in(recipe.precision, learner.device):
        seconds = seconds_per_image(network, batch)
    if recipe.frozen:  # the epochs on features take no time beside computing them
        return seconds * len(images) * (1 + recipe.augmentation.flip), num_bytes
    num_exemplars = 0 if is_first else len(learner.memory)
    epochs = (recipe.first_epochs or recipe.epochs) if is_first else recipe.epochs
    num_updates = max(0, epochs - epochs_done) * (len(images) + num_exemplars)
    factor = 1.0 if is_first else update_cost(learner.method)
    return seconds * num_updates * factor, num_bytes


def _num_bytes(
    learner: Learner, images: ImageSet, network: Network, num_classes: int, *, is_first: bool
) -> int:
    """The most that weights and memory will take."""
    learning = learner.learning
    num_weights: int = sum(tensor.numel() for tensor in network.state_dict().values())
    weights = BYTES_PER_WEIGHT * num_weights
    if getattr(learning.method_settings, "previous_share", 0):  # the network before is kept too
        weights *= 2
    random_features = getattr(learning.method_settings, "random_features", None)
    if random_features is not None:  # an exact head is kept with half of a symmetric matrix
        dim = network.num_features + random_features
        weights += BYTES_PER_WEIGHT * (dim * (dim + 1) // 2 + 2 * num_classes * dim)
    if not find_method(learning.method).keeps_exemplars:
        return weights
    return weights + _memory_bytes(learning, images, 0 if is_first else len(learner.memory))


def _memory_bytes(learning: Learning, images: ImageSet, num_kept: int) -> int:
    if learning.memory.bytes is not None:
        return learning.memory.bytes
    assert learning.memory.images is not None
    num_exemplars = min(learning.memory.images, len(images) + num_kept)
    return int(num_exemplars * images.sampled_bytes().mean())
