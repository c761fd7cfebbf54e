"""Fit a model's calibration on held-out images (temperature scaling, Guo et al., 2017)."""

import numpy as np
import torch
from torch import Tensor

from bic.compute.distributed import gathered, world
from bic.data.batches import plain_batches
from bic.data.images import ImageSet
from bic.errors import UserError
from bic.model.calibration import MAX_CERTAINTIES, MAX_TEMPERATURE, MIN_TEMPERATURE, Calibration
from bic.model.model import Model
from bic.progress import Progress

MAX_IMAGES = 10_000  # one number is fitted: more images would not change it
MAX_LOGITS = 2**24  # logits that are stored; with many classes fewer images are used
FEWEST_IMAGES = 500  # that are used however many classes there are
CHUNK = 2**20  # logits in double precision at a time
# The pull towards a temperature of 1 is that of a prior under which the logarithm of the
# temperature has a standard deviation of 1/5: PULL is 1 / (1/5)². On models of CIFAR-100 classes
# with 20 to 160 held-out images, the cross-entropy on other images is lowest near this value.
PULL = 25.0
MAX_ITERATIONS = 200


def calibrate(model: Model, held_out: ImageSet, progress: Progress) -> Calibration:
    """The temperature and the certainties of a model, measured on held-out images.

    The labels of `held_out` are positions in `model.classes`. The images must not have been trained
    on. The model does not change: set `model.calibration` to use the result. Raises UserError if
    there are no images that can be read.
    """
    images = _bounded(held_out, len(model.classes))
    features, logits, labels = _computed(model, images, progress)
    if not len(labels):
        raise UserError(
            "there are no held-out images to calibrate the model on",
            "use a method and a memory that hold images out",
        )
    temperature = fit_temperature(logits, labels)
    device = model.network.device
    probabilities = torch.softmax(logits / temperature, dim=1).to(device)
    certainties = model.answer.certainty(features.to(device), probabilities).cpu().sort().values
    kept = np.linspace(0, len(certainties) - 1, min(len(certainties), MAX_CERTAINTIES))
    chosen = certainties[torch.from_numpy(kept.round().astype(np.int64))]
    return Calibration(temperature, tuple(chosen.tolist()), len(labels))


def _bounded(images: ImageSet, num_classes: int) -> ImageSet:
    """At most so many images that their logits fit in memory, evenly spaced over all classes."""
    limit = min(MAX_IMAGES, max(FEWEST_IMAGES, MAX_LOGITS // max(1, num_classes)))
    return evenly_spaced(images, limit)


def evenly_spaced(images: ImageSet, limit: int) -> ImageSet:
    """At most `limit` images, evenly spaced over all classes."""
    if len(images) <= limit:
        return images
    by_class = np.argsort(images.labels, kind="stable")
    spaced = np.linspace(0, len(images) - 1, limit).round().astype(np.int64)
    return images.select(by_class[spaced])


def _computed(model: Model, images: ImageSet, progress: Progress) -> tuple[Tensor, Tensor, Tensor]:
    """Features and final logits [readable images, …] and labels, of all processes."""
    num_classes = len(model.classes)
    num_images = len(world().share(images.everything))
    features = torch.empty(num_images, model.network.num_features)
    logits = torch.empty(num_images, num_classes)
    labels = torch.empty(num_images, dtype=torch.int64)
    count = 0
    with progress.task("calibrating", len(images)) as task:
        for pixels, indices in plain_batches(images, num_outputs=num_classes):
            rows = slice(count, count + len(indices))
            outputs = model.outputs(pixels)
            features[rows] = outputs.features
            logits[rows] = model.raw_and_final(outputs)[1]
            labels[rows] = torch.from_numpy(images.labels[indices])
            count += len(indices)
            task.advance(len(indices))
    return gathered(features[:count]), gathered(logits[:count]), gathered(labels[:count])


def fit_temperature(logits: Tensor, labels: Tensor, *, tolerance: float = 1e-15) -> float:
    """The temperature that minimises the cross-entropy of softmax(logits / temperature).

    logits [images, classes] are final, labels [images]. A logit may be -inf, that of a class that
    is never predicted. All classes count equally, however many images each has. With s =
    1/temperature, PULL · (s − 1 − log s) is added to the sum over images. It pulls few images
    towards 1 and leaves many alone. The sum is convex in s, so Newton's method finds its minimum;
    where a step would leave the interval that holds the minimum, it is replaced by a bisection.
    The search ends with a step that is smaller than `tolerance`, relative to s.

    Raises ValueError for logits that are not numbers.
    """
    problem = _Problem(logits, labels)
    low = 1 / MAX_TEMPERATURE
    high = 1 / MIN_TEMPERATURE
    slope = 1.0
    for _ in range(MAX_ITERATIONS):
        gradient, curvature = problem.derivatives(slope)
        if gradient > 0:
            high = slope
        else:
            low = slope
        following = slope - gradient / curvature
        if not low < following < high:
            following = (low * high) ** 0.5
        if abs(following - slope) <= tolerance * slope:
            break
        slope = following
    return 1 / slope


class _Problem:
    """The derivatives of the loss with respect to s = 1/temperature."""

    def __init__(self, logits: Tensor, labels: Tensor) -> None:
        own = logits.gather(1, labels[:, None])
        if logits.isnan().any() or logits.isposinf().any() or own.isinf().any():
            raise ValueError("logits must be finite, except those of classes that are left out")
        # All classes count equally; the weights sum to the number of images.
        counts = torch.bincount(labels)
        num_present = int((counts > 0).sum())
        self.weight = len(labels) / num_present / counts[labels].double()
        rows = max(1, CHUNK // logits.shape[1])
        self.blocks = torch.split(logits, rows)
        self.own = own[:, 0].double()
        self.largest = logits.amax(dim=1).double()

    def derivatives(self, slope: float) -> tuple[float, float]:
        """The first and the second derivative at s = `slope`."""
        means = []
        variances = []
        start = 0
        for block in self.blocks:
            largest = self.largest[start : start + len(block), None]
            start += len(block)
            below = block.double() - largest  # at most 0, and -inf where a class is left out
            probability = torch.softmax(slope * below, dim=1)
            below = below.masked_fill_(below.isneginf(), 0.0)  # its probability is 0
            mean = (probability * below).sum(dim=1, keepdim=True)
            variances.append((probability * (below - mean).square()).sum(dim=1))
            means.append(mean[:, 0])
        mean_logit = torch.cat(means) + self.largest
        gradient = float(self.weight @ (mean_logit - self.own)) + PULL * (1 - 1 / slope)
        curvature = float(self.weight @ torch.cat(variances)) + PULL / slope**2
        return gradient, curvature
