"""Network: normalisation, a backbone, and a linear head that grows."""

import copy
from collections.abc import Callable
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bic.compute.seeding import seeded
from bic.errors import UserError
from bic.model.backbones import Ensemble, Whitening, build_backbone
from bic.model.folding import folded
from bic.model.pretrained import Pretrained
from bic.model.pretrained_backbones import Configs

# That a frozen backbone sees at once on a CPU: ten images of 224 × 224. Larger batches do not fit
# into the CPU's caches and take up to half as much time again.
PIXELS_AT_ONCE = 2**19


class Head(nn.Module):
    """A linear layer that starts without rows and grows one row for every class."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(0, num_features))
        self.bias = nn.Parameter(torch.zeros(0))

    def grow(self, num_new: int) -> None:
        """Add rows, initialised as in torch's Linear. The old rows do not change."""
        bound = self.weight.shape[1] ** -0.5
        for name, old in (("weight", self.weight), ("bias", self.bias)):
            rows = torch.empty(num_new, *old.shape[1:], device=old.device).uniform_(-bound, bound)
            setattr(self, name, nn.Parameter(torch.cat([old.detach(), rows])))

    def make_room(self, num_classes: int) -> None:
        """Rows without values, which are loaded next.

        Growing on the meta device would import parts of torch that take two seconds to import.
        """
        self.weight = nn.Parameter(torch.empty(num_classes, self.weight.shape[1]))
        self.bias = nn.Parameter(torch.empty(num_classes))

    def forward(self, features: Tensor) -> Tensor:
        return F.linear(features, self.weight, self.bias)

    def member_logits(self, features: Tensor, num_members: int) -> Tensor:
        """The logits of each member of an ensemble alone: [num_members × batch, classes]."""
        member_features = (features * num_members).chunk(num_members, dim=1)
        member_weights = self.weight.chunk(num_members, dim=1)
        logits = []
        for part, weight in zip(member_features, member_weights, strict=True):
            logits.append(F.linear(part, weight, self.bias))
        return torch.cat(logits)


class Network(nn.Module):
    """Images (uint8 or float pixel values) or vectors → raw logits of all classes seen.

    `num_features` is measured by a forward pass unless it is given. `trust` allows a backbone of
    the form `module:function` to be imported. `weights` gives a pretrained backbone its weights,
    and `configs` are those of a saved model; see `build_pretrained`.

    The backbone of a `frozen` network is never trained. Features of such a network can be computed
    once and passed in place of the images.
    """

    mean: Tensor
    std: Tensor
    frozen: bool

    def __init__(
        self,
        backbone: str,
        *,
        channels: int,
        image_size: int | None,
        num_features: int | None = None,
        trust: bool = True,
        weights: bool = True,
        configs: Configs | None = None,
    ) -> None:
        super().__init__()
        self.frozen = False
        self._folded: list[nn.Module] = []  # a frozen backbone for inference; not in a state dict
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("std", torch.ones(channels))
        self.backbone = build_backbone(
            backbone,
            channels=channels,
            image_size=image_size,
            trust=trust,
            weights=weights,
            configs=configs,
        )
        if num_features is None:
            num_features = self.measure_features(backbone, channels, image_size)
        self.num_features = num_features
        self.head = Head(self.num_features)
        if image_size is not None:
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def measure_features(self, backbone: str, channels: int, image_size: int | None) -> int:
        """The number of features, by a forward pass. `backbone` names it in errors."""
        sides = () if image_size is None else (image_size, image_size)
        images = torch.zeros(2, channels, *sides)
        counts = []
        try:
            with torch.no_grad():
                for member in self._members():
                    _, num_features = member.eval()(images).shape
                    counts.append(num_features)
        except Exception as error:
            raise UserError(
                f"backbone {backbone} does not map images {list(images.shape)} to features "
                f"[2, number] ({error})",
                "fix it, or choose another {backbone}",
            ) from error
        if len(set(counts)) > 1:
            listed = ", ".join(map(str, counts))
            raise UserError(
                f"the members of the ensemble {backbone} have {listed} features",
                "choose members with the same number of features",
            )
        return sum(counts)

    @property
    def num_members(self) -> int:
        """Members of the ensemble. They train independently but share the bias of the head."""
        return len(self._members())

    def _members(self) -> list[nn.Module]:
        if isinstance(self.backbone, Ensemble):
            return list(self.backbone.members)
        return [self.backbone]

    @property
    def num_classes(self) -> int:
        return len(self.head.bias)

    @property
    def device(self) -> torch.device:
        return self.head.weight.device

    @property
    def measures_images(self) -> bool:
        """Whether `prepare` needs images. A pretrained backbone knows what its images are like."""
        return self._pretrained is None

    @property
    def _pretrained(self) -> Pretrained | None:
        known = getattr(self._members()[0], "pretrained", None)
        return known if isinstance(known, Pretrained) else None

    def prepare(self, images: Tensor | None) -> None:
        """Measure normalisation and whitening on images of the first step. Both stay fixed.

        For a pretrained backbone nothing is measured, and no images are needed.
        """
        known = self._pretrained
        if known is not None:
            self.mean.copy_(torch.tensor(known.mean))
            self.std.copy_(torch.tensor(known.std))
            return
        assert images is not None
        values = images.double()
        dims = [dim for dim in range(images.ndim) if dim != 1]
        self.mean.copy_(values.mean(dims))
        self.std.copy_(values.std(dims, correction=0))
        self.std[self.std < 1e-6] = 1.0  # a constant channel is centred and not scaled
        for module in self.backbone.modules():
            if isinstance(module, Whitening):
                module.measure(self.normalised(images))

    def freeze(self) -> Self:
        """The network itself, whose backbone is not trained from now on."""
        self.frozen = True
        self.backbone.requires_grad_(False)
        self.backbone.eval()
        return self

    def copied(self) -> "Network":
        """A copy to train. Copies share a frozen backbone: it never changes."""
        shared: list[object] = [self.backbone, self._folded] if self.frozen else []
        return copy.deepcopy(self, {id(part): part for part in shared})

    def with_empty_head(self) -> "Network":
        """A copy of the network that knows no classes."""
        network = self.copied()
        network.head = Head(self.num_features).to(self.device)
        return network

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.frozen:
            self.backbone.eval()  # batch norm does not change either
        return self

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        self._folded.clear()  # it would stay on the old device
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def load_state_dict(self, *arguments: Any, **options: Any) -> Any:
        self._folded.clear()
        return super().load_state_dict(*arguments, **options)

    def normalised(self, images: Tensor) -> Tensor:
        """The backbone's input."""
        layout = torch.channels_last if images.ndim == 4 else torch.contiguous_format
        shape = (1, -1) + (1,) * (images.ndim - 2)
        values = images.to(torch.float32, memory_format=layout, copy=True)
        return values.sub_(self.mean.view(shape)).div_(self.std.view(shape))

    def features(self, images: Tensor) -> Tensor:
        """Features [batch, num_features], float32 even if the backbone computes in bfloat16.

        A frozen network also takes features that were computed before, and returns them unchanged.
        """
        if not self.frozen:
            trained: Tensor = self.backbone(self.normalised(images))
            return trained.float()
        if images.ndim == 2:
            return images
        if torch.compiler.is_compiling():  # for an export: the plain graph, with any batch size
            frozen: Tensor = self.backbone(self.normalised(images))
            return frozen.float()
        return self._frozen_features(images)

    def fold(self) -> nn.Module:
        """The frozen backbone for inference. Threads that share a network call this before."""
        if not self._folded:
            self._folded.append(folded(self.backbone))
        return self._folded[0]

    @torch.no_grad()
    def _frozen_features(self, images: Tensor) -> Tensor:
        """The features of pixels, by a backbone for inference."""
        backbone = self.fold()
        num_images = len(images)
        if self.device.type == "cpu":
            num_images = max(1, PIXELS_AT_ONCE // images[0, 0].numel())
        parts = []
        for start in range(0, len(images), num_images):
            part = images[start : start + num_images]
            parts.append(backbone(self.normalised(part)).float())
        return torch.cat(parts)

    def head_logits(self, features: Tensor) -> Tensor:
        """Logits [batch, classes]; of an ensemble in training [num_members × batch, classes]."""
        with torch.autocast(features.device.type, enabled=False):  # logits stay float32
            if self.training and self.num_members > 1:
                return self.head.member_logits(features, self.num_members)
            logits: Tensor = self.head(features)
            return logits

    def forward(self, images: Tensor) -> Tensor:
        return self.head_logits(self.features(images))


def compiled_forward(network: Network) -> Callable[[Tensor], Tensor]:
    """The network's forward pass with a compiled backbone. The head is not compiled: it grows."""
    if network.frozen:
        return network  # its features are computed once
    backbone = torch.compile(network.backbone, dynamic=True)

    def forward(images: Tensor) -> Tensor:
        return network.head_logits(backbone(network.normalised(images)).float())

    return forward


def fresh_network(
    backbone: str, *, channels: int, image_size: int | None, num_classes: int, frozen: bool = False
) -> Network:
    """An untrained network, to check that it can be built or to time it."""
    with seeded("check"):
        network = Network(backbone, channels=channels, image_size=image_size)
        network.head.grow(num_classes)
    return network.freeze() if frozen else network
