"""Model: what predicts. A network, its class names, and what turns its scores into answers."""

from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy.typing as npt
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
class Previous:
    """The network of the step before, corrected, and its share in the scores of the classes that it knows."""

    network: Network
    correction: Correction | None
    share: float

    def blended(self, raw: Tensor, images: Tensor) -> Tensor:
        """Raw scores, those of its classes nearer to what this network says of the images; their mean stays."""
        theirs = self.network.eval()(images)
        theirs = theirs if self.correction is None else self.correction.apply(theirs)
        known, others = raw.tensor_split([theirs.shape[1]], dim=1)
        theirs = theirs - theirs.mean(dim=1, keepdim=True) + known.mean(dim=1, keepdim=True)
        return torch.cat([torch.lerp(known, theirs, self.share), others], dim=1)


@dataclass
class Model:
    """A trained classifier.

    At most one of `correction`, `class_means` [classes, dim] and `own_head` (weight [classes, dim], bias [classes]) is
    set; it decides the answer where the raw scores alone do not. Where a `previous` network has a share in the answer,
    `correction` is of the blended scores and `own_correction` of the network's own.
    """

    network: Network
    backbone: str
    view: View
    classes: tuple[str, ...] = ()
    heads: tuple[int, ...] = ()  # classes learned in each step
    correction: Correction | None = None
    class_means: Tensor | None = None
    own_head: tuple[Tensor, Tensor] | None = None
    previous: Previous | None = None
    own_correction: Correction | None = None

    @classmethod
    def fresh(cls, backbone: str, view: View) -> Self:
        """An untrained model that knows no class."""
        return cls(Network(backbone, channels=view.channels, image_size=view.size), backbone, view)

    @torch.no_grad()
    def scores(self, images: Tensor | npt.NDArray[Any]) -> tuple[Tensor, Tensor]:
        """Raw and final scores [batch, classes] of pixels [batch, channels, size, size]."""
        self.network.eval()
        images = torch.as_tensor(images, device=self.network.head.weight.device)
        features = self.network.features(images)
        raw: Tensor = self.network.head(features)
        if self.correction is not None:
            return raw, self.correction.apply(raw if self.previous is None else self.previous.blended(raw, images))
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
        if self.previous is not None:
            named |= {f"previous.{name}": value for name, value in self.previous.network.state_dict().items()}
        return named

    def description(self) -> dict[str, Any]:
        """Everything else, for saving."""
        found = {
            "classes": list(self.classes),
            "classes_per_step": list(self.heads),
            "correction": _as_dict(self.correction),
            "backbone": self.backbone,
            "preprocessing": asdict(self.view),
        }
        if self.previous is not None:
            found["own_correction"] = _as_dict(self.own_correction)
            found["previous"] = {"share": self.previous.share, "correction": _as_dict(self.previous.correction)}
        return found

    @classmethod
    def load(cls, description: dict[str, Any], tensors: Tensors) -> Self:
        """The model that `description()` and `tensors()` were taken from."""
        model = cls.fresh(description["backbone"], View(**description["preprocessing"]))
        model.classes = tuple(description["classes"])
        model.heads = tuple(description["classes_per_step"])
        model.network.head.grow(len(model.classes))
        model.network.load_state_dict(unprefixed(tensors, "network."))
        model.correction = _correction(description["correction"])
        if (previous := description.get("previous")) is not None:
            network = Network(model.backbone, channels=model.view.channels, image_size=model.view.size)
            network.head.grow(sum(model.heads[:-1]))
            network.load_state_dict(unprefixed(tensors, "previous."))
            model.previous = Previous(network, _correction(previous["correction"]), previous["share"])
            model.own_correction = _correction(description["own_correction"])
        # Cloned, because a tensor inside a file's buffer need not be aligned.
        if "class_means" in tensors:
            model.class_means = tensors["class_means"].clone()
        if "own_head.weight" in tensors:
            model.own_head = tensors["own_head.weight"].clone(), tensors["own_head.bias"].clone()
        return model


def _as_dict(correction: Correction | None) -> dict[str, Any] | None:
    return None if correction is None else asdict(correction)


def _correction(description: dict[str, Any] | None) -> Correction | None:
    return None if description is None else Correction(**description)


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
def held_out_scores(
    network: Network, images: ImageSet, num_old: int, progress: Progress, previous: Previous | None = None
) -> list[HeldOut]:
    """What stage 2 needs of held-out images, by process: everything frozen, in evaluation mode, not augmented."""
    network.eval()
    held_out = HeldOut(len(world().share(images.everything)), num_old, network.num_classes - num_old)
    with progress.task("scoring held-out images", len(images)) as task:
        for pixels, indices in plain_batches(images, num_outputs=network.num_classes):
            pixels = pixels.to(network.head.weight.device)
            scores = network(pixels)
            scores = scores if previous is None else previous.blended(scores, pixels)
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
