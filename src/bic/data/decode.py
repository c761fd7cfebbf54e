"""From an encoded image to pixels, by the quickest way that gives the same picture."""

import io
import math
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps
from torch import Tensor

try:
    import simplejpeg
except ImportError:  # the extra `jpeg`; Pillow gives the same pixels in 1.4 times the time
    simplejpeg = None

Pixels = npt.NDArray[np.uint8]  # [height, width, channels]
Place = Callable[[int, int], tuple[int, int, int]]  # height, width → top, left and side of the square to look at

GREY_MODES = {"1", "L", "LA", "I", "I;16", "I;16B", "F"}
# Pillow knows more formats, but some of those run other programs (EPS) or are rarely looked at.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")

# Pillow refuses images of more than twice MAX_IMAGE_PIXELS, and warns of those between: they are read like any other.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)

# A JPEG can be decoded at 1/2, 1/4 or 1/8 of its size in a fraction of the time. If that leaves 1.5 times the size
# wanted, the picture after the resize differs by about one grey level in 255 (43 dB) from that of a whole decode.
MARGIN = 1.5
ROWS_BELOW = 8  # decoded below the last one wanted: colours of fewer pixels than brightness are spread from row to row

_own = threading.local()  # a buffer per thread: memory fresh from the system costs a quarter of a decode


class Cut(NamedTuple):
    """VGG's augmentation: the shorter side scaled to `side`, then a square, `x` and `y` of the way from the corner."""

    side: int
    x: float
    y: float
    mirrored: bool

    def square(self, size: int, height: int, width: int) -> tuple[int, int, int]:
        """Top, left and side, in whole pixels of an image of this height and width, of what is scaled to `size`."""
        length = max(1, round(size * min(height, width) / self.side))
        return int(self.y * (height - length + 1)), int(self.x * (width - length + 1)), length


@dataclass(frozen=True, kw_only=True)
class View:
    """How an encoded image becomes pixels: grey or RGB, shorter side to `resize`, centre `size` (None: all)."""

    channels: int
    size: int | None = None
    resize: int | None = None

    def decode(self, encoded: bytes, cut: Cut | None = None) -> Tensor:
        """Pixels, uint8 [channels, size, size]; a vector saved as .npy comes back as it was.

        The square is cut out first, its corner and side to whole pixels, and scaled then: what a resize before the cut
        gives, moved by half a pixel at most, for a third of the work.
        """
        if encoded.startswith(b"\x93NUMPY"):
            return torch.from_numpy(np.load(io.BytesIO(encoded), allow_pickle=False))
        if self.size is None:
            return as_tensor(upright(encoded, self.channels))[0].clone()
        cut = cut or Cut(self.resize or self.size, 0.5, 0.5, False)
        place = partial(cut.square, self.size)
        pixels = upright(encoded, self.channels, at_least=cut.side, place=place)
        top, left, length = place(*pixels.shape[:2])
        square = as_tensor(pixels[top : top + length, left : left + length])
        if length != self.size:
            square = F.interpolate(square, size=(self.size, self.size), mode="bilinear", antialias=True)
        return (square.flip(3) if cut.mirrored else square if length != self.size else square.clone())[0]


def as_tensor(pixels: Pixels) -> Tensor:
    """[1, channels, height, width] of an array; without the first axis torch would not see that channels come last."""
    return torch.from_numpy(pixels).unsqueeze(0).permute(0, 3, 1, 2)


def upright(encoded: bytes, channels: int, at_least: int | None = None, place: Place | None = None) -> Pixels:
    """The whole image, reduced to a half, a quarter or an eighth if its shorter side stays well above `at_least`.

    With a `place`, rows below it may be anything. What is returned is overwritten by the thread's next call.
    """
    pixels = _plain_jpeg(encoded, channels, at_least, place) if simplejpeg is not None else None
    if pixels is not None:
        return pixels
    return np.atleast_3d(np.array(open_image(encoded, channels=channels, at_least=at_least), dtype=np.uint8))


def open_image(encoded: bytes, *, channels: int, at_least: int | None = None) -> Image.Image:
    """Decode the first frame, upright; whatever its mode, it becomes plain grey or RGB.

    What is transparent shows white, as on a page; 16-bit grey is scaled to 8 bits.
    """
    image: Image.Image = Image.open(io.BytesIO(encoded), formats=FORMATS)
    if (factor := reduction(*image.size, at_least)) > 1:
        image.draft(None, (image.width // factor, image.height // factor))  # does nothing if it is no JPEG
    ImageOps.exif_transpose(image, in_place=True)
    if image.mode.startswith("I"):
        deep = np.clip(np.asarray(image), 0, 65535).astype(np.uint32)
        image = Image.fromarray(((deep + 128) // 257).astype(np.uint8))
    if "A" in image.getbands() or "transparency" in image.info:
        page = Image.new("RGBA", image.size, "white")
        page.alpha_composite(image.convert("RGBA"))
        image = page
    return image.convert("L" if channels == 1 else "RGB")


def reduction(width: int, height: int, at_least: int | None) -> int:
    """The largest factor by which a JPEG may be reduced as it is decoded."""
    if at_least is None:
        return 1
    return next((factor for factor in (8, 4, 2) if min(width, height) >= MARGIN * factor * at_least), 1)


def _plain_jpeg(encoded: bytes, channels: int, at_least: int | None, place: Place | None) -> Pixels | None:
    """What simplejpeg makes of an ordinary JPEG [height, width, channels]; None for what is left to Pillow.

    That is everything unusual (CMYK, turned by EXIF, too large), and all that is broken: Pillow says why.
    """
    if not encoded.startswith(b"\xff\xd8"):
        return None
    exif, height_at = _header(encoded)
    if exif:
        return None
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(encoded)
        if colours not in (("Gray",) if channels == 1 else ("Gray", "YCbCr", "RGB")):
            return None
        if width * height > (Image.MAX_IMAGE_PIXELS or 0):
            return None
        factor = reduction(width, height, at_least)
        shape = (-(-height // factor), -(-width // factor), channels)
        if (needed := math.prod(shape)) > len(getattr(_own, "buffer", b"")):
            _own.buffer = bytearray(needed)
        rows, source = shape[0], encoded
        if place is not None and height_at is not None:
            top, _, side = place(*shape[:2])
            if top + side + ROWS_BELOW < rows:  # promise the decoder an image that ends there
                rows = top + side + ROWS_BELOW
                source = encoded[:height_at] + (rows * factor).to_bytes(2, "big") + encoded[height_at + 2 :]
        how = {"min_height": rows, "min_width": shape[1]} if factor > 1 else {}
        colour = "GRAY" if channels == 1 else "RGB"
        simplejpeg.decode_jpeg(source, colour, buffer=_own.buffer, strict=source is encoded, **how)
        return np.frombuffer(_own.buffer, np.uint8, needed).reshape(shape)
    except ValueError:
        return None


def _header(encoded: bytes) -> tuple[bool, int | None]:
    """Whether a JPEG has an EXIF block, or is not as it should be; and where its height stands.

    None for the height unless the rows come one after another, down to the end of a file that is whole: then those at
    the top can be decoded without the others.
    """
    place, exif, height_at, components = 2, False, None, b""
    while encoded[place : place + 1] == b"\xff":
        kind = encoded[place + 1 : place + 2]
        if kind == b"\xda":  # the pixels begin
            in_rows = encoded[place + 4 : place + 5] == components and encoded.endswith(b"\xff\xd9")
            return exif, height_at if in_rows else None
        if kind in (b"\xc0", b"\xc1"):  # not progressive
            height_at, components = place + 5, encoded[place + 9 : place + 10]
        exif = exif or (kind == b"\xe1" and encoded[place + 4 : place + 8] == b"Exif")
        place += 2 + int.from_bytes(encoded[place + 2 : place + 4], "big")
    return True, None
