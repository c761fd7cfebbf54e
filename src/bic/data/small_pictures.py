"""Small copies of pictures, as WebP. Imports no torch."""

import io
from collections.abc import Iterable

from PIL import Image

from bic.data.decode import decode_image


def small_picture(encoded: bytes, max_side: int) -> bytes | None:
    """An image, upright and at most `max_side` pixels a side, as WebP.

    None for what cannot be shown, such as a vector.
    """
    try:
        small = Image.fromarray(decode_image(encoded, 3, at_least=max_side))
    except Exception:  # Pillow's decoders raise almost anything
        return None
    small.thumbnail((max_side, max_side))
    packed = io.BytesIO()
    small.save(packed, "WEBP", quality=75, method=4)
    return packed.getvalue()


def small_pictures(images: Iterable[bytes], max_side: int) -> list[bytes]:
    """Small copies of the images that can be shown."""
    pictures = (small_picture(image, max_side) for image in images)
    return [picture for picture in pictures if picture is not None]
