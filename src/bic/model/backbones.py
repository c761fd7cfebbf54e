"""Backbones: modules that map images to features [batch, dim], by name."""

import importlib
import inspect
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bic.errors import UserError, unknown
from bic.model.pretrained import HUGGING_FACE, LITE, is_pretrained
from bic.model.pretrained_backbones import Configs, build_pretrained

MAX_MEMBERS = 64  # of an ensemble

# (channels, image size or None for vectors) → module. On the meta device, where a saved model's
# shapes are checked, values are not initialised: some operations there take a second to import.
Builder = Callable[[int, int | None], nn.Module]


def conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)


class Block(nn.Module):
    """Two 3×3 convolutions and a shortcut: the basic block of He et al. (2015).

    Where the shape changes, the shortcut is a 1×1 convolution. With `parameter_free` it takes
    every second pixel and pads the new channels with zeros (option A, as in CIFAR networks).
    """

    def __init__(self, inputs: int, outputs: int, stride: int, *, parameter_free: bool) -> None:
        super().__init__()
        self.conv1 = conv3x3(inputs, outputs, stride)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = conv3x3(outputs, outputs)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.stride = stride
        self.padding = outputs - inputs
        self.project: nn.Module | None = None
        if not parameter_free and (stride != 1 or inputs != outputs):
            project = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
            self.project = nn.Sequential(project, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        # In place where the overwritten values are not needed: this saves a pass over memory.
        out: Tensor = self.norm2(self.conv2(self.norm1(self.conv1(x)).relu_()))
        if self.project is not None:
            x = self.project(x)
        elif self.padding:
            x = F.pad(
                x[:, :, :: self.stride, :: self.stride],
                (0, 0, 0, 0, self.padding // 2, -(-self.padding // 2)),
            )
        return out.add_(x).relu_()


class ResNet(nn.Module):
    """A stem, stages of basic blocks (each after the first halves the image), average pooling."""

    def __init__(
        self, stem: nn.Module, widths: list[int], blocks: int, *, parameter_free: bool
    ) -> None:
        super().__init__()
        layers = []
        inputs = widths[0]
        for stage, width in enumerate(widths):
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(Block(inputs, width, stride, parameter_free=parameter_free))
                inputs = width
        self.stem = stem
        self.stages = nn.Sequential(*layers)
        for module in self.modules():
            if isinstance(module, nn.Conv2d) and not module.weight.is_meta:
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.stages(self.stem(x))
        return out.mean(dim=(2, 3))


def resnet32(channels: int, image_size: int | None) -> nn.Module:
    """The CIFAR network: three stages of five blocks, 16/32/64 channels."""
    stem = nn.Sequential(conv3x3(channels, 16), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
    return ResNet(stem, [16, 32, 64], 5, parameter_free=True)


def resnet18(channels: int, image_size: int | None) -> nn.Module:
    """The ImageNet network: four stages of two blocks, 64 to 512 channels."""
    first = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
    stem = nn.Sequential(
        first, nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2, padding=1)
    )
    return ResNet(stem, [64, 128, 256, 512], 2, parameter_free=False)


class Whitening(nn.Module):
    """A fixed 2×2 convolution, measured once: whitened patches, and the same with minus signs."""

    weight: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.empty(8 * channels, channels, 2, 2))
        if not self.weight.is_meta:
            identity = torch.eye(4 * channels).view(-1, channels, 2, 2)
            self.weight.copy_(torch.cat([identity, -identity]))

    def measure(self, images: Tensor) -> None:
        """Whiten the 2×2 patches of normalised images [n, channels, height, width]."""
        channels = images.shape[1]
        patches = F.unfold(images[:5000].double(), 2).transpose(1, 2).reshape(-1, 4 * channels)
        patches = patches - patches.mean(dim=0)
        values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
        # The solver may return either sign of an eigenvector: make the largest entry positive.
        vectors = vectors * torch.sign(
            vectors[vectors.abs().argmax(dim=0), torch.arange(len(vectors))]
        )
        rows = (vectors / torch.sqrt(values + 5e-4)).T.reshape(-1, channels, 2, 2)
        self.weight.copy_(torch.cat([rows, -rows]))

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight)


class Fast(nn.Module):
    """Whitened patches, then three groups of two convolutions; global max-pooling.

    The shape is airbench's (Jordan, 2024): little arithmetic in early layers, no shortcuts.
    """

    def __init__(
        self, channels: int, image_size: int | None, widths: tuple[int, ...] = (24, 96, 256)
    ) -> None:
        super().__init__()
        if image_size is None or image_size < 9:
            raise UserError(
                f"this network needs at least 9 pixels a side, got {image_size}",
                "try {backbone=small}",
            )
        self.whitening = Whitening(channels)
        layers: list[nn.Module] = []
        for inputs, width in pairwise((8 * channels, *widths)):
            layers += [conv3x3(inputs, width), nn.MaxPool2d(2), nn.BatchNorm2d(width), nn.GELU()]
            layers += [conv3x3(width, width), nn.BatchNorm2d(width), nn.GELU()]
        self.groups = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.groups(self.whitening(x))
        return out.amax(dim=(2, 3))


class Strokes(Fast):
    """Two fifths of the arithmetic of `fast`, and one more convolution before the pooling.

    For images of 25 to 32 pixels a side this convolution covers the whole last 3×3 map. So the
    network sees where in the image a stroke is, which pooling alone would lose.
    """

    def __init__(self, channels: int, image_size: int | None) -> None:
        super().__init__(channels, image_size, widths=(16, 64, 128))
        assert image_size is not None
        side = (image_size - 1) // 8
        self.groups.extend(
            [nn.Conv2d(128, 128, min(side, 3), bias=False), nn.BatchNorm2d(128), nn.GELU()]
        )


def small(channels: int, image_size: int | None) -> nn.Module:
    """For images of about 8 pixels a side, such as scikit-learn's digits."""
    widths = pairwise((channels, 16, 32, 64))
    layers = [
        (conv3x3(inputs, width), nn.BatchNorm2d(width), nn.ReLU()) for inputs, width in widths
    ]
    return nn.Sequential(
        *layers[0], *layers[1], nn.MaxPool2d(2), *layers[2], nn.AdaptiveMaxPool2d(2), nn.Flatten()
    )


def mlp(channels: int, image_size: int | None) -> nn.Module:
    """For vectors, or small images seen as vectors."""
    widths = pairwise((channels * (image_size or 1) ** 2, 256, 128))
    layers = [
        (nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU()) for inputs, width in widths
    ]
    return nn.Sequential(nn.Flatten(), *layers[0], *layers[1])


class Ensemble(nn.Module):
    """Several backbones with the same number of features, concatenated and divided by their number.

    So a linear head on these features returns the mean of the members' logits.
    """

    def __init__(self, members: list[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([member(x) for member in self.members], dim=1) / len(self.members)


BACKBONES: dict[str, Builder] = {
    "resnet32": resnet32,
    "resnet18": resnet18,
    "fast": Fast,
    "wide": partial(Fast, widths=(64, 128, 256)),  # twice the arithmetic of fast
    "strokes": Strokes,  # two fifths of the arithmetic of fast
    "small": small,
    "mlp": mlp,
}


def is_imported(name: str) -> bool:
    """Whether building this backbone imports code by name, as in `module:function`."""
    members = name.split("+")
    return any(":" in member and not member.startswith(HUGGING_FACE) for member in members)


def refuse_import(name: str) -> None:
    """Raise UserError for a backbone whose building imports code."""
    if is_imported(name):
        raise UserError(f"the backbone {name} would be imported and run", "pass {trust}")


def build_backbone(
    name: str,
    *,
    channels: int,
    image_size: int | None,
    trust: bool = True,
    weights: bool = True,
    configs: Configs | None = None,
) -> nn.Module:
    """A backbone by name, by `module:function`, or an ensemble as in `fast+fast`.

    The function is called with (channels, image_size). It is imported only with `trust`. A
    pretrained backbone gets its weights unless `weights` is false; see `build_pretrained`.
    """
    if "+" in name:
        names = name.split("+")
        if len(names) > MAX_MEMBERS:
            raise UserError(
                f"an ensemble has at most {MAX_MEMBERS} members, got {len(names):,}", "use fewer"
            )
        if not all(names):
            raise UserError(
                f"{name} lacks a backbone on one side of its +",
                "name one on each side, as in fast+fast",
            )
        members = []
        for member in names:
            members.append(
                build_backbone(
                    member,
                    channels=channels,
                    image_size=image_size,
                    trust=trust,
                    weights=weights,
                    configs=configs,
                )
            )
        return Ensemble(members)
    if is_imported(name):
        if not trust:
            refuse_import(name)
        return _import_backbone(name, channels, image_size)
    if name not in BACKBONES and not is_pretrained(name):
        raise unknown("backbone", name, [*BACKBONES, *LITE, "hf:NAME", "module:function"])
    if image_size is None and name != "mlp":
        raise UserError(f"the {name} network takes square images", "use {backbone=mlp} for vectors")
    if image_size is not None and is_pretrained(name):
        return build_pretrained(name, channels, image_size, weights=weights, configs=configs or {})
    return BACKBONES[name](channels, image_size)


def _import_backbone(name: str, channels: int, image_size: int | None) -> nn.Module:
    module, _, function = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        build = getattr(importlib.import_module(module), function)
        if inspect.isbuiltin(build):  # such as os.kill: no network, and calling it may do harm
            raise TypeError("it is a part of Python, not a function that builds a network")
        backbone = build(channels, image_size)
        if not isinstance(backbone, nn.Module):
            raise TypeError(f"it returns {type(backbone).__name__}, not an nn.Module")
    except Exception as error:
        raise UserError(
            f"backbone {name} cannot be built ({error})", "fix the function or the spelling"
        ) from error
    finally:
        sys.path.pop(0)
    return backbone
