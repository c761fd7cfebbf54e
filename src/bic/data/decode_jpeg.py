"""Decode ordinary JPEGs with simplejpeg, no larger than needed and into memory that is reused.

Without simplejpeg (the extra `jpeg`) Pillow decodes them to the same pixels in 1.4 times the time.
"""

import math
import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

try:
    import simplejpeg
except ImportError:
    simplejpeg = None

Pixels = npt.NDArray[np.uint8]  # [height, width, channels]
# (height, width) of an image → top, left and side of the square that is used
Place = Callable[[int, int], tuple[int, int, int]]

# A JPEG can be decoded at 1/2, 1/4 or 1/8 of its size in a fraction of the time. If the result is
# 1.5 times as large as needed, the resized picture differs from that of a full decode by about one
# grey level in 255 (43 dB).
MARGIN = 1.5
# Larger images are refused: the greediest format (WebP with transparency) takes 24 bytes per pixel
# while it is decoded, so that this is 1 GB.
MAX_DECODED_PIXELS = 40_000_000
# Larger JPEGs are left to Pillow, which decodes large images one at a time.
MAX_PIXELS_HERE = 2**24
# Rows decoded below the square: the decoder blends subsampled colours of neighbouring rows.
ROWS_BELOW = 8

# One buffer per thread: allocating new memory takes a quarter of the time of a decode.
_thread = threading.local()


class Header(NamedTuple):
    """What the markers of a JPEG say.

    `is_tagged`: it has EXIF data or an XMP orientation, so that the picture may have to be turned.
    `height_at` is the offset of the image height, or None if the rows at the top cannot be decoded
    without the others: the file is progressive, not interleaved or truncated.
    """

    is_tagged: bool
    height_at: int | None


def reduction(width: int, height: int, at_least: int | None) -> int:
    """The largest factor by which a JPEG may be reduced while it is decoded: 1, 2, 4 or 8."""
    if at_least is None:
        return 1
    for factor in (8, 4, 2):
        if min(width, height) >= MARGIN * factor * at_least:
            return factor
    return 1


def decode_plain_jpeg(
    encoded: bytes, channels: int, at_least: int | None, place: Place | None
) -> Pixels | None:
    """Pixels of an ordinary JPEG [height, width, channels], or None if Pillow must decode the file.

    Pillow gets other formats, everything unusual (CMYK, rotated by EXIF, very large) and broken
    files, because its error messages say what is wrong. The pixels are valid until the thread's
    next call.
    """
    if simplejpeg is None or not encoded.startswith(b"\xff\xd8"):
        return None
    header = read_header(encoded)
    if header is None or header.is_tagged:
        return None
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(encoded)
        usual_colours = ("Gray",) if channels == 1 else ("Gray", "YCbCr", "RGB")
        if colours not in usual_colours or width * height > MAX_PIXELS_HERE:
            return None
        factor = reduction(width, height, at_least)
        shape = (-(-height // factor), -(-width // factor), channels)
        num_rows = shape[0]
        source = encoded
        if place is not None and header.height_at is not None:
            top, _, side = place(*shape[:2])
            if top + side + ROWS_BELOW < num_rows:
                num_rows = top + side + ROWS_BELOW
                source = with_height(encoded, header.height_at, num_rows * factor)
        limits = {"min_height": num_rows, "min_width": shape[1]} if factor > 1 else {}
        colour = "GRAY" if channels == 1 else "RGB"
        num_bytes = math.prod(shape)
        buffer = _buffer(num_bytes)
        # A shortened file has data left over after its last row, which is an error if strict.
        simplejpeg.decode_jpeg(source, colour, buffer=buffer, strict=source is encoded, **limits)
        return np.frombuffer(buffer, np.uint8, num_bytes).reshape(shape)
    except ValueError:
        return None


def with_height(encoded: bytes, height_at: int, height: int) -> bytes:
    """The JPEG with another height in its header: the decoder stops after that row."""
    return encoded[:height_at] + height.to_bytes(2, "big") + encoded[height_at + 2 :]


def read_header(encoded: bytes) -> Header | None:
    """The header of a JPEG, or None if it is malformed."""
    offset = 2
    is_tagged = False
    height_at = None
    num_components = b""
    while encoded[offset : offset + 1] == b"\xff":
        marker = encoded[offset + 1 : offset + 2]
        if marker == b"\xda":  # start of scan: the pixels follow
            in_one_scan = encoded[offset + 4 : offset + 5] == num_components
            complete = encoded.endswith(b"\xff\xd9")
            return Header(is_tagged, height_at if in_one_scan and complete else None)
        if marker in (b"\xc0", b"\xc1"):  # start of frame, not progressive
            height_at = offset + 5
            num_components = encoded[offset + 9 : offset + 10]
        end = offset + 2 + int.from_bytes(encoded[offset + 2 : offset + 4], "big")
        if marker == b"\xe1":  # EXIF or XMP
            is_exif = encoded[offset + 4 : offset + 8] == b"Exif"
            is_tagged |= is_exif or b"tiff:Orientation" in encoded[offset + 4 : end]
        offset = end
    return None


def _buffer(num_bytes: int) -> bytearray:
    """The thread's buffer, of at least `num_bytes`."""
    buffer: bytearray | None = getattr(_thread, "buffer", None)
    if buffer is None or len(buffer) < num_bytes:
        buffer = bytearray(num_bytes)
        _thread.buffer = buffer
    return buffer
