"""Small copies of pictures, as WebP. Imports no torch."""

import io

from PIL import Image

from bic.data.decode import FORMATS, plain_image

MAX_PIXELS = 2**25  # of a picture that is made small


def small_picture(encoded: bytes, max_side: int) -> bytes:
    """An image, upright and at most `max_side` pixels a side, as WebP.

    Raises ValueError for a picture that is too large, and whatever Pillow's decoders raise.
    """
    with Image.open(io.BytesIO(encoded), formats=FORMATS) as picture:
        if picture.width * picture.height > MAX_PIXELS:
            raise ValueError(f"a picture has more than {MAX_PIXELS:,} pixels")
        picture.draft(None, (max_side, max_side))  # JPEGs only: decoded no larger than needed
        small = plain_image(picture, 3)
    small.thumbnail((max_side, max_side))
    packed = io.BytesIO()
    small.save(packed, "WEBP", quality=75, method=4)
    return packed.getvalue()
