"""Preprocessing: how an encoded image becomes the pixels that a network sees."""

import io
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bic.data.decode import decode_image
from bic.data.decode_jpeg import Pixels

DEFAULT_SIZE = 64  # the side of images from files if no size is given


class Cut(NamedTuple):
    """A crop as in VGG's augmentation: scale the shorter side to `side`, then cut out a square.

    `x` and `y` in 0..1 place the square between the left and right (top and bottom) edge.
    """

    side: int
    x: float
    y: float
    mirrored: bool

    def square(self, size: int, height: int, width: int) -> tuple[int, int, int]:
        """Top, left and side of the square that is scaled to `size`, in this image."""
        length = max(1, round(size * min(height, width) / self.side))
        top = int(self.y * (height - length + 1))
        left = int(self.x * (width - length + 1))
        return top, left, length


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """Convert to grey or RGB, scale the shorter side to `resize`, keep the central square.

    `channels` is 1 or 3. `resize` None means `size`; `size` None keeps the whole image. Vectors
    have their dimension as `channels` and no size.
    """

    channels: int
    size: int | None = None
    resize: int | None = None
    bicubic: bool = False  # scale bicubically, not bilinearly

    def decode(self, encoded: bytes, cut: Cut | None = None) -> Tensor:
        """Pixels, uint8 [channels, size, size]. A vector saved as .npy is returned unchanged.

        `cut` is the crop to use, by default the central square. Raises whatever the decoder raises.
        """
        if encoded.startswith(b"\x93NUMPY"):
            return self._from_npy(encoded)
        if self.size is None:
            return _as_batch(decode_image(encoded, self.channels))[0].clone()
        if cut is None:
            cut = self._central_cut()
        place = partial(cut.square, self.size)
        pixels = decode_image(encoded, self.channels, at_least=cut.side, place=place)
        return self.scale(pixels, cut)

    def _from_npy(self, encoded: bytes) -> Tensor:
        """An array that `encode` saved, because it is no image that PNG can hold."""
        array = np.load(io.BytesIO(encoded), allow_pickle=False)
        is_ours = array.dtype in (np.float32, np.uint8) and array.shape[:1] == (self.channels,)
        if self.size is None:  # a vector, or an image in its own size
            is_ours = is_ours and array.ndim == (1 if array.dtype == np.float32 else 3)
        if not is_ours:
            raise ValueError(f"it is an array {array.dtype} {list(array.shape)}")
        if not np.isfinite(array).all():
            raise ValueError("it holds NaN or infinity")
        return torch.from_numpy(array)

    def scale(self, pixels: Pixels, cut: Cut | None = None) -> Tensor:
        """The square of an image [height, width, channels], scaled to [channels, size, size].

        The square is cut out at whole pixels and then scaled. Scaling first would give the same
        result, except for a shift of at most half a pixel, and take three times the work.
        """
        assert self.size is not None
        if cut is None:
            cut = self._central_cut()
        height, width, _ = pixels.shape
        top, left, length = cut.square(self.size, height, width)
        square = _as_batch(pixels[top : top + length, left : left + length])
        if length != self.size:
            square = self.interpolated(square, (self.size, self.size))
        elif not cut.mirrored:
            square = square.clone()  # the decoder uses its buffer again
        if cut.mirrored:
            square = square.flip(3)
        return square[0]

    def interpolated(self, images: Tensor, size: tuple[int, int]) -> Tensor:
        """Images [n, channels, h, w], uint8, scaled to another height and width."""
        mode = "bicubic" if self.bicubic else "bilinear"
        return F.interpolate(images, size=size, mode=mode, antialias=True)

    def completed(self, images: Tensor) -> Tensor:
        """Square images in memory that are grey or too small, as the network sees them.

        images [n, channels, side, side], uint8. Images that fit and vectors are returned unchanged.
        """
        if images.ndim != 4 or self.size is None:
            return images
        if images.shape[1] < self.channels:
            images = images.expand(-1, self.channels, -1, -1)
            images = images.contiguous(memory_format=torch.channels_last)
        if images.shape[2] < self.size:
            images = self.interpolated(images, (self.size, self.size))
        return images

    def _central_cut(self) -> Cut:
        assert self.size is not None
        return Cut(self.resize or self.size, 0.5, 0.5, False)


def _as_batch(pixels: Pixels) -> Tensor:
    """An array as [1, channels, height, width].

    Without the first axis torch would not recognise the channels-last layout.
    """
    return torch.from_numpy(pixels).unsqueeze(0).permute(0, 3, 1, 2)
