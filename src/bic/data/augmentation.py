"""The settings of augmentation. Imports no torch: recipes are also read without training."""

from typing import Literal

from pydantic import Field

from bic.settings import Settings


class Augmentation(Settings):
    """How training images are changed before the network sees them."""

    crop_padding: int = Field(0, ge=0, le=1024)  # pixels by which an image may move
    crop_fill: Literal["black", "mirror"] = "black"  # what fills the border that appears
    flip: bool = False  # mirror half of the images
    brightness: float = Field(0.0, ge=0, le=255)  # largest shift, in pixel values
    contrast: float = Field(0.0, ge=0, lt=1)  # largest change of each channel's contrast
    warp: float = Field(0.0, ge=0, le=1)  # share of images that are rotated, scaled and sheared
    colour: float = Field(0.0, ge=0, lt=1)  # largest change of brightness, contrast and saturation
    cutout: int = Field(0, ge=0, le=1024)  # side of a square that is erased in half of the images
    random_resize: tuple[int, int] | None = None  # VGG's: the shorter side is drawn from this range
