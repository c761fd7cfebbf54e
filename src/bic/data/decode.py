"""Decode an image file: ordinary JPEGs by decode_jpeg.py, everything else with Pillow."""

import io
import warnings

import numpy as np
from PIL import Image, ImageOps

from bic.data.decode_jpeg import Pixels, Place, decode_plain_jpeg, reduction

GREY_MODES = {"1", "L", "LA", "I", "I;16", "I;16B", "F"}
# Pillow knows more formats, but some of them start other programs (EPS) or are rarely reviewed.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")

# Pillow refuses images of more than 2 × MAX_IMAGE_PIXELS. Images between one and two times that
# number are read without its warning.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


def decode_image(
    encoded: bytes, channels: int, at_least: int | None = None, place: Place | None = None
) -> Pixels:
    """The upright image [height, width, channels], grey or RGB.

    A JPEG is reduced to a half, a quarter or an eighth while it is decoded, if its shorter side
    stays well above `at_least`. With `place`, the rows below that square are undefined. The
    thread's next call may overwrite the returned array.
    """
    pixels = decode_plain_jpeg(encoded, channels, at_least, place)
    if pixels is not None:
        return pixels
    image = open_with_pillow(encoded, channels=channels, at_least=at_least)
    return np.atleast_3d(np.array(image, dtype=np.uint8))


def open_with_pillow(encoded: bytes, *, channels: int, at_least: int | None = None) -> Image.Image:
    """The first frame of any supported format, as `plain_image` returns it."""
    image: Image.Image = Image.open(io.BytesIO(encoded), formats=FORMATS)
    factor = reduction(*image.size, at_least)
    if factor > 1:
        image.draft(None, (image.width // factor, image.height // factor))  # JPEGs only
    return plain_image(image, channels)


def plain_image(image: Image.Image, channels: int) -> Image.Image:
    """The image upright, in mode L (1 channel) or RGB (3 channels). May change `image` itself.

    Transparent parts become white. 16-bit grey is scaled to 8 bits.
    """
    ImageOps.exif_transpose(image, in_place=True)
    if image.mode.startswith("I"):
        deep = np.clip(np.asarray(image), 0, 65535).astype(np.uint32)
        image = Image.fromarray(((deep + 128) // 257).astype(np.uint8))
    if "A" in image.getbands() or "transparency" in image.info:
        page = Image.new("RGBA", image.size, "white")
        page.alpha_composite(image.convert("RGBA"))
        image = page
    return image.convert("L" if channels == 1 else "RGB")
