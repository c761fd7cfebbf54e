"""Network: normalisation, a backbone, and a linear head that grows."""

from contextlib import AbstractContextManager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bic.errors import UserError
from bic.network.backbones import SideBySide, Whitening, build_backbone


class Head(nn.Module):
    """A linear layer that starts without rows and grows one for every class."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(0, num_features))
        self.bias = nn.Parameter(torch.zeros(0))

    def grow(self, num_new: int) -> None:
        """Add rows, drawn as in torch's Linear; the old rows stay as they are."""
        bound = self.weight.shape[1] ** -0.5
        for name, old in (("weight", self.weight), ("bias", self.bias)):
            rows = torch.empty(num_new, *old.shape[1:], device=old.device).uniform_(-bound, bound)
            setattr(self, name, nn.Parameter(torch.cat([old.detach(), rows])))

    def forward(self, features: Tensor) -> Tensor:
        return F.linear(features, self.weight, self.bias)

    def apart(self, features: Tensor, count: int) -> Tensor:
        """What each of `count` backbones side by side would score by itself: [count × batch, classes]."""
        parts = zip((features * count).chunk(count, dim=1), self.weight.chunk(count, dim=1), strict=True)
        return torch.cat([F.linear(own, weight, self.bias) for own, weight in parts])


def computing_in(precision: str, device: torch.device | str) -> AbstractContextManager[None]:
    """While this lasts backbones make their products in `precision`. Weights, scores and losses stay in float32."""
    return torch.autocast(torch.device(device).type, torch.bfloat16, enabled=precision == "bfloat16")


class Network(nn.Module):
    """Images, uint8 or float in pixel values (or vectors), to raw scores of all classes seen."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, backbone: str, *, channels: int, image_size: int | None) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("deviation", torch.ones(channels))
        self.backbone = build_backbone(backbone, channels=channels, image_size=image_size)
        sides = () if image_size is None else (image_size, image_size)
        try:
            with torch.no_grad():
                parts = [part.eval()(torch.zeros(2, channels, *sides)) for part in self._parts()]
            dims = [dim for _, dim in (features.shape for features in parts)]
        except Exception as error:
            raise UserError(f"{backbone} must map images [2, {channels}, *{sides}] to [2, dim]: {error}") from error
        if len(set(dims)) > 1:
            found = f"those of {backbone} have {', '.join(map(str, dims))}"
            raise UserError(f"backbones side by side need equally many features, and {found}; choose others")
        self.num_features = sum(dims)
        self.head = Head(self.num_features)
        if image_size is not None:
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @property
    def num_members(self) -> int:
        """Backbones side by side, each trained as if it were alone but for the head's bias, which they share."""
        return len(self._parts())

    def _parts(self) -> list[nn.Module]:
        return list(self.backbone.members) if isinstance(self.backbone, SideBySide) else [self.backbone]

    @property
    def num_classes(self) -> int:
        return len(self.head.bias)

    def prepare(self, images: Tensor) -> None:
        """Measure what is fixed from the first step's images: normalisation, and whitening."""
        values = images.double()
        dims = [dim for dim in range(images.ndim) if dim != 1]
        self.mean.copy_(values.mean(dims))
        self.deviation.copy_(values.std(dims, correction=0))
        self.deviation[self.deviation < 1e-6] = 1.0  # a constant channel is centred and left alone
        for module in self.backbone.modules():
            if isinstance(module, Whitening):
                module.measure(self.normalised(images))

    def normalised(self, images: Tensor) -> Tensor:
        """What the backbone sees."""
        layout = torch.channels_last if images.ndim == 4 else torch.contiguous_format
        shape = (1, -1) + (1,) * (images.ndim - 2)
        values = images.to(torch.float32, memory_format=layout, copy=True)
        return values.sub_(self.mean.view(shape)).div_(self.deviation.view(shape))

    def features(self, images: Tensor) -> Tensor:
        features: Tensor = self.backbone(self.normalised(images))
        return features.float()  # from bfloat16, if that is what the backbone computes in

    def scored(self, features: Tensor) -> Tensor:
        """The features' scores [batch, classes]; in training those of each backbone [num_members × batch, classes]."""
        apart = self.training and self.num_members > 1
        with torch.autocast(features.device.type, enabled=False):  # scores keep all their digits
            scores: Tensor = self.head.apart(features, self.num_members) if apart else self.head(features)
        return scores

    def forward(self, images: Tensor) -> Tensor:
        return self.scored(self.features(images))
