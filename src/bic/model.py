"""Model: what predicts. A network, its class names, and what turns its scores into answers."""

from dataclasses import asdict, dataclass
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from bic.correction import Correction, HeldOut
from bic.data.decode import View
from bic.data.images import ImageSet, Indices
from bic.data.loader import plain_batches
from bic.distributed import gathered, gathered_objects, world
from bic.network import Network
from bic.progress import Progress
from bic.train import Tensors, unprefixed


@dataclass
class Model:
    """A trained classifier.

    At most one of `correction`, `class_means` [classes, dim] and `own_head` (weight [classes, dim], bias [classes]) is
    set; it decides the answer where the raw scores alone do not.
    """

    network: Network
    backbone: str
    view: View
    classes: tuple[str, ...] = ()
    heads: tuple[int, ...] = ()  # classes learned in each step
    correction: Correction | None = None
    class_means: Tensor | None = None
    own_head: tuple[Tensor, Tensor] | None = None

    @classmethod
    def fresh(cls, backbone: str, view: View) -> Self:
        """An untrained model that knows no class."""
        return cls(Network(backbone, channels=view.channels, image_size=view.size), backbone, view)

    @torch.no_grad()
    def scores(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Raw and final scores [batch, classes] of pixels [batch, channels, size, size]."""
        self.network.eval()
        features = self.network.features(images.to(self.network.head.weight.device))
        raw: Tensor = self.network.head(features)
        if self.correction is not None:
            return raw, self.correction.apply(raw)
        if self.class_means is not None:
            return raw, -torch.cdist(F.normalize(features, dim=1), self.class_means).square()
        return raw, raw if self.own_head is None else F.linear(features, *self.own_head)

    def tensors(self) -> Tensors:
        """Everything numeric, for saving."""
        named = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        if self.class_means is not None:
            named["class_means"] = self.class_means
        if self.own_head is not None:
            named["own_head.weight"], named["own_head.bias"] = self.own_head
        return named

    def description(self) -> dict[str, Any]:
        """Everything else, for saving."""
        return {
            "classes": list(self.classes),
            "classes_per_step": list(self.heads),
            "correction": None if self.correction is None else asdict(self.correction),
            "backbone": self.backbone,
            "preprocessing": asdict(self.view),
        }

    @classmethod
    def load(cls, description: dict[str, Any], tensors: Tensors) -> Self:
        """The model that `description()` and `tensors()` were taken from."""
        model = cls.fresh(description["backbone"], View(**description["preprocessing"]))
        model.classes = tuple(description["classes"])
        model.heads = tuple(description["classes_per_step"])
        model.network.head.grow(len(model.classes))
        model.network.load_state_dict(unprefixed(tensors, "network."))
        if description["correction"] is not None:
            model.correction = Correction(**description["correction"])
        # Cloned, because a tensor inside a file's buffer need not be aligned.
        if "class_means" in tensors:
            model.class_means = tensors["class_means"].clone()
        if "own_head.weight" in tensors:
            model.own_head = tensors["own_head.weight"].clone(), tensors["own_head.bias"].clone()
        return model


@torch.no_grad()
def extract(
    network: Network, images: ImageSet, progress: Progress, *, mirrored: bool = False
) -> tuple[Tensor, Indices]:
    """Features [n, dim] of the images in evaluation mode, and the indices of those images: all that can be read."""
    network.eval()
    room, count = len(world().share(images.everything)), 0
    features, readable = torch.empty(room, network.num_features), torch.empty(room, dtype=torch.int64)
    with progress.task("computing features", len(images)) as task:
        for pixels, indices in plain_batches(images):
            pixels = (pixels.flip(3) if mirrored else pixels).to(network.head.weight.device)
            rows = slice(count, count := count + len(indices))
            features[rows], readable[rows] = network.features(pixels), torch.from_numpy(indices)
            task.advance(len(indices))
    return gathered(features[:count]), gathered(readable[:count]).numpy()


@torch.no_grad()
def held_out_scores(network: Network, images: ImageSet, num_old: int, progress: Progress) -> list[HeldOut]:
    """What stage 2 needs of held-out images, by process: everything frozen, in evaluation mode, not augmented."""
    network.eval()
    held_out = HeldOut(len(world().share(images.everything)), num_old, network.num_classes - num_old)
    with progress.task("scoring held-out images", len(images)) as task:
        for pixels, indices in plain_batches(images, num_outputs=network.num_classes):
            scores = network(pixels.to(network.head.weight.device))
            held_out.add(scores, torch.from_numpy(images.labels[indices]))
            task.advance(len(indices))
    return gathered_objects(held_out.cut())


def class_means(network: Network, exemplars: ImageSet, progress: Progress, *, mirrored: bool) -> Tensor:
    """iCaRL's class means: the renormalised average of the exemplars' normalised features.

    `mirrored` averages in the mirror images' features too.
    """
    labels = torch.from_numpy(exemplars.labels)
    means = torch.zeros(int(labels.max()) + 1, network.num_features, dtype=torch.float64)
    for flip in (False, True) if mirrored else (False,):
        features, readable = extract(network, exemplars, progress, mirrored=flip)
        means.index_add_(0, labels[torch.from_numpy(readable)], F.normalize(features.double(), dim=1))
    return F.normalize(means, dim=1).float().to(network.head.weight.device)
