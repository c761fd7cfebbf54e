"""Decode an image file: ordinary JPEGs by decode_jpeg.py, everything else with Pillow."""

import io
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from PIL import Image, ImageOps

from bic.data.decode_jpeg import MAX_DECODED_PIXELS, Pixels, Place, decode_plain_jpeg, reduction

GREY_MODES = {"1", "L", "LA", "I", "I;16", "I;16B", "F"}
# Pillow knows more formats, but some of them start other programs (EPS) or are rarely reviewed.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".jfif", ".webp", ".bmp"),
    *(".gif", ".tif", ".tiff", ".ppm", ".pgm"),
)

# Of any file. A JPEG of so many pixels takes 0.8 GB, even if it is reduced while it is decoded.
MAX_PIXELS = 130_000_000
SMALL_PIXELS = 2**20  # a smaller image never waits for others
# MAX_PIXELS is ours. Pillow's own limits come on top of it; its warning is not needed.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


def is_image(name: str) -> bool:
    """Whether a file name looks like that of an image."""
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


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
    with opened_with_pillow(encoded, at_least) as image:
        return np.atleast_3d(np.array(plain_image(image, channels), dtype=np.uint8))


@contextmanager
def opened_with_pillow(encoded: bytes, at_least: int | None = None) -> Iterator[Image.Image]:
    """An image of any supported format, to be decoded inside this context; its first frame.

    Raises ValueError, before anything is decoded, for an image that would need too much memory.
    """
    image: Image.Image = Image.open(io.BytesIO(encoded), formats=FORMATS)
    num_pixels = image.width * image.height
    factor = reduction(*image.size, at_least)
    if factor > 1:
        image.draft(None, (image.width // factor, image.height // factor))  # JPEGs only
    num_decoded = image.width * image.height
    limit = MAX_PIXELS if num_decoded < num_pixels else MAX_DECODED_PIXELS
    if num_pixels > MAX_PIXELS or num_decoded > MAX_DECODED_PIXELS:
        raise ValueError(f"it has {num_pixels:,} pixels, more than {limit:,}")
    # A reduced JPEG still takes a quarter of the memory of a whole image.
    with _room_for(max(num_decoded, num_pixels // 4)):
        yield image


_room = threading.Condition()
_pixels_in_work = 0


@contextmanager
def _room_for(num_pixels: int) -> Iterator[None]:
    """Wait until the large images that other threads decode leave room for this one."""
    global _pixels_in_work
    if num_pixels < SMALL_PIXELS:
        yield
        return
    with _room:
        _room.wait_for(lambda: _pixels_in_work + num_pixels <= MAX_DECODED_PIXELS)
        _pixels_in_work += num_pixels
    try:
        yield
    finally:
        with _room:
            _pixels_in_work -= num_pixels
            _room.notify_all()


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
