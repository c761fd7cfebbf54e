"""Network: normalisation, a backbone, and a linear head that grows."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bic.network.backbones import build_backbone


class Normalise(nn.Module):
    """Pixel values (or vector entries) to zero mean and unit deviation per channel."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("deviation", torch.ones(channels))

    def measure(self, images: Tensor) -> None:
        """Take mean and deviation from images [n, channels, ...]."""
        dims = [dim for dim in range(images.ndim) if dim != 1]
        values = images.double()
        self.mean.copy_(values.mean(dims))
        self.deviation.copy_(values.std(dims, correction=0))
        # A constant channel is centred and left alone.
        self.deviation[self.deviation < 1e-6] = 1.0

    def forward(self, images: Tensor) -> Tensor:
        shape = (1, -1) + (1,) * (images.ndim - 2)
        layout = torch.channels_last if images.ndim == 4 else torch.contiguous_format
        values = images.to(torch.float32, memory_format=layout)
        return (values - self.mean.view(shape)) / self.deviation.view(shape)


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


class Network(nn.Module):
    """Images, uint8 or float in pixel values, to raw scores of all classes seen."""

    def __init__(self, backbone: str, *, channels: int, image_size: int | None) -> None:
        super().__init__()
        self.normalise = Normalise(channels)
        self.backbone = build_backbone(backbone, channels=channels, image_size=image_size)
        self.num_features = self._measure_features(channels, image_size)
        self.head = Head(self.num_features)
        if image_size is not None:
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def _measure_features(self, channels: int, image_size: int | None) -> int:
        shape = (2, channels) if image_size is None else (2, channels, image_size, image_size)
        self.backbone.eval()
        with torch.no_grad():
            features = self.backbone(torch.zeros(shape))
        self.backbone.train()
        if features.ndim != 2:
            raise ValueError(f"a backbone maps images to features [batch, dim], got {tuple(features.shape)}")
        return int(features.shape[1])

    @property
    def num_classes(self) -> int:
        return len(self.head.bias)

    def prepare(self, images: Tensor) -> None:
        """Measure what is fixed from the first step's images: normalisation, and whitening."""
        self.normalise.measure(images)
        measure = getattr(self.backbone, "measure", None)
        if measure is not None:
            measure(self.normalise(images))

    def features(self, images: Tensor) -> Tensor:
        features: Tensor = self.backbone(self.normalise(images))
        return features

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(self.features(images))
        return scores
