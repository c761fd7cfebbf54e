"""What a pretrained backbone asks of its input, and the errors that such backbones share."""

from dataclasses import dataclass

from torch import nn

from bic.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """How the images looked that a backbone was trained on.

    `mean` and `std` are those of the pixels (0 to 255) of each channel. `size` is the side that the
    backbone was made for; it is used unless another one is asked for.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int
    bicubic: bool = False  # images are scaled bicubically, not bilinearly


def pretrained_of(backbone: nn.Module) -> Pretrained | None:
    """What a backbone with pretrained weights asks for; None for one that is trained afresh."""
    found = getattr(backbone, "pretrained", None)
    return found if isinstance(found, Pretrained) else None


def missing_extra(what: str, extra: str) -> UserError:
    """The error for a package that an extra of bic installs."""
    return UserError(f"{what} are not installed", f"run pip install 'bic[{extra}]'")
