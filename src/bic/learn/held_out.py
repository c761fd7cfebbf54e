"""The logits of held-out images, reduced to what stage 2 needs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bic.compute.distributed import gathered_objects, world
from bic.data.batches import plain_batches
from bic.data.images import ImageSet, Labels
from bic.model.answers import PreviousNetwork, cosines
from bic.model.network import Network
from bic.progress import Progress


class HeldOutLogits:
    """What the fit of the correction needs from raw logits.

    The old classes of an image are reduced to three numbers, however many classes there are:
    `old` is the log-sum-exp of its old-class logits, `best_old` the largest of them, and `own`
    the logit of its own class, all float64 [images]. `new` [images, new classes] is kept. All
    arrays are preallocated, so that memory does not fragment.
    """

    def __init__(
        self, num_images: int, num_old: int, num_new: int, dtype: torch.dtype = torch.float32
    ) -> None:
        self.num_old = num_old
        self.count = 0
        self.labels = torch.empty(num_images, dtype=torch.int64)
        self.old, self.best_old, self.own = torch.empty((3, num_images), dtype=torch.float64)
        self.new = torch.empty((num_images, num_new), dtype=dtype)

    def add(self, logits: Tensor, labels: Tensor) -> None:
        """Add logits [images, classes] and labels [images].

        Raises ValueError for logits that are not finite.
        """
        smallest, largest = torch.aminmax(logits, dim=1)
        if not ((smallest > -1e100) & (largest < 1e100)).all():
            raise ValueError("logits must be finite")
        rows = slice(self.count, self.count + len(labels))
        old_logits = logits[:, : self.num_old]
        self.labels[rows] = labels
        self.old[rows] = torch.logsumexp(old_logits.double(), dim=1)
        self.best_old[rows] = old_logits.amax(dim=1).double()
        self.own[rows] = logits.gather(1, labels[:, None].to(logits.device))[:, 0].double()
        self.new[rows] = logits[:, self.num_old :]
        self.count += len(labels)

    def trimmed(self) -> "HeldOutLogits":
        """This object without the rows that were not filled."""
        for name in ("labels", "old", "best_old", "own", "new"):
            setattr(self, name, getattr(self, name)[: self.count])
        return self


@dataclass
class LogitsAndCosines:
    """What the fit of a blend needs from held-out images: logits and cosines [images, classes]."""

    labels: Labels
    logits: Tensor
    cosines: Tensor


def image_weights(labels: Labels, num_old: int, num_classes: int) -> npt.NDArray[np.float64]:
    """The weight of each held-out image in a fit; the weights sum to the number of images.

    The old classes together count n and the new classes together m, even if only some of them have
    held-out images. Within the old classes and within the new ones, all classes count equally.
    """
    counts = np.bincount(labels, minlength=num_classes)
    is_present = counts > 0
    weights = np.empty(num_classes)
    for group in (slice(0, num_old), slice(num_old, num_classes)):
        size = len(counts[group])
        num_present = max(1, int(np.count_nonzero(is_present[group])))
        weights[group] = len(labels) / num_classes * (size / num_present)
    return np.asarray(weights[labels] / counts[labels])


@torch.no_grad()
def held_out_logits(
    network: Network,
    images: ImageSet,
    num_old: int,
    progress: Progress,
    previous: PreviousNetwork | None = None,
    *,
    active: Sequence[int] | None = None,
) -> list[HeldOutLogits]:
    """The reduced logits of held-out images, one part per process.

    Everything is frozen and in evaluation mode, without augmentation. With a previous network, the
    logits are blended. `active` has the positions of the classes that count, in ascending order;
    None: all. `num_old` of these are old, and labels become positions among them.
    """
    network.eval()
    num_images = len(world().share(images.everything))
    columns = torch.arange(network.num_classes) if active is None else torch.tensor(active)
    held_out = HeldOutLogits(num_images, num_old, len(columns) - num_old)
    with progress.task("computing held-out logits", len(images)) as task:
        for pixels, indices in plain_batches(images, num_outputs=network.num_classes):
            pixels = pixels.to(network.device)
            logits = network(pixels)
            if previous is not None:
                logits = previous.blend(logits, pixels)
            labels = torch.from_numpy(images.labels[indices])
            if len(columns) < network.num_classes:
                logits = logits[:, columns.to(logits.device)]
                labels = torch.searchsorted(columns, labels)
            held_out.add(logits, labels)
            task.advance(len(indices))
    return gathered_objects(held_out.trimmed())


@torch.no_grad()
def logits_and_cosines(
    network: Network,
    images: ImageSet,
    means: Tensor,
    progress: Progress,
    previous: PreviousNetwork | None = None,
    *,
    active: Sequence[int],
) -> list[LogitsAndCosines]:
    """The logits of held-out images and their cosines to class means, one part per process.

    Only the classes at the positions `active` are kept; labels are positions among them.
    """
    network.eval()
    columns = torch.tensor(active)
    shape = (len(world().share(images.everything)), len(active))
    part = LogitsAndCosines(np.empty(shape[0], np.int64), torch.empty(shape), torch.empty(shape))
    count = 0
    with progress.task("comparing with class means", len(images)) as task:
        for pixels, indices in plain_batches(images, num_outputs=2 * network.num_classes):
            pixels = pixels.to(network.device)
            features = network.features(pixels)
            logits = network.head_logits(features)
            if previous is not None:
                logits = previous.blend(logits, pixels)
            rows = slice(count, count + len(indices))
            count += len(indices)
            part.labels[rows] = np.searchsorted(columns.numpy(), images.labels[indices])
            part.logits[rows] = logits[:, columns.to(logits.device)]
            part.cosines[rows] = cosines(features, means)[:, columns.to(logits.device)]
            task.advance(len(indices))
    filled = LogitsAndCosines(part.labels[:count], part.logits[:count], part.cosines[:count])
    return gathered_objects(filled)
