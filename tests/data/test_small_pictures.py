"""Small copies of pictures: of everything that can be learned."""

import io

from PIL import Image
from support.pictures import ROTATED, jpeg, orientation, picture

from bic.data.small_pictures import small_picture, small_pictures


def size(small: bytes | None) -> tuple[int, int]:
    assert small is not None
    return Image.open(io.BytesIO(small), formats=["WEBP"]).size


def test_pictures_are_upright_and_small() -> None:
    assert size(small_picture(jpeg(picture(1, 400, 200)), 128)) == (128, 64)
    turned = jpeg(picture(1, 400, 200), exif=orientation(ROTATED))
    assert size(small_picture(turned, 128)) == (64, 128)
    assert size(small_picture(jpeg(picture(1, 40, 20)), 128)) == (40, 20)


def test_a_jpeg_that_is_reduced_while_it_is_decoded_can_be_large() -> None:
    large = jpeg(Image.new("L", (8000, 6000)))
    assert size(small_picture(large, 128)) == (128, 96)


def test_what_cannot_be_shown_is_left_out() -> None:
    vector = b"\x93NUMPY"
    assert small_picture(vector, 128) is None
    assert small_picture(b"", 128) is None
    shown = small_pictures([vector, jpeg(picture(1, 40, 20))], 128)
    assert list(map(size, shown)) == [(40, 20)]
