"""Decoding: every kind of image becomes plain grey or RGB."""

from __future__ import annotations

import resource

import numpy as np
import pytest
from PIL import Image
from support.pictures import (
    ROTATED,
    encoded,
    huge,
    jpeg,
    kinds,
    orientation,
    picture,
    png,
    truncated,
)

from bic.data import decode_jpeg
from bic.data.decode import decode_image, open_with_pillow


def pixels_of(content: bytes, channels: int) -> list[object]:
    return np.asarray(open_with_pillow(content, channels=channels)).tolist()


def test_sixteen_bit_grey_is_scaled_and_not_clipped() -> None:
    deep = np.array([[0, 257, 32768, 65535]], dtype=np.uint16)
    content = png(Image.fromarray(deep))
    assert pixels_of(content, 1) == [[0, 1, 128, 255]]
    assert pixels_of(content, 3) == [[[0] * 3, [1] * 3, [128] * 3, [255] * 3]]


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (np.array([[10, 20]], dtype=np.uint8), [[10], [20]]),
        (np.array([[257, 514]], dtype=np.uint16), [[1], [2]]),
    ],
)
def test_exif_rotation_is_applied(stored: np.ndarray, shown: list[list[int]]) -> None:
    content = encoded(Image.fromarray(stored), "PNG", exif=orientation(ROTATED))
    assert pixels_of(content, 1) == shown


def test_cmyk_becomes_rgb() -> None:
    content = encoded(Image.new("CMYK", (1, 1), (0, 255, 255, 0)), "TIFF")
    assert pixels_of(content, 3) == [[[255, 0, 0]]]


def test_a_palette_becomes_its_colours() -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([9, 8, 7, 1, 2, 3])
    image.putpixel((1, 0), 1)
    assert pixels_of(png(image), 3) == [[[9, 8, 7], [1, 2, 3]]]


def test_a_transparent_palette_becomes_white_without_a_warning() -> None:
    image = Image.new("P", (3, 1))
    image.putpalette([9, 8, 7, 1, 2, 3, 5, 5, 5])
    image.putdata([0, 1, 2])
    content = encoded(image, "PNG", transparency=bytes([255, 0, 255]))
    assert pixels_of(content, 3) == [[[9, 8, 7], [255] * 3, [5, 5, 5]]]
    half = encoded(image, "PNG", transparency=bytes([255, 51, 102]))
    assert pixels_of(half, 3)[0][1] == [204, 204, 205]  # 1/5 of the colour, 4/5 white


def test_transparent_pixels_become_white_and_grey_stays_exact() -> None:
    image = Image.fromarray(np.array([[[77, 255], [77, 0]]], dtype=np.uint8), "LA")
    assert pixels_of(png(image), 1) == [[77, 255]]
    image = Image.fromarray(np.array([[[1, 2, 3, 255], [1, 2, 3, 0]]], dtype=np.uint8))
    assert pixels_of(png(image), 3) == [[[1, 2, 3], [255, 255, 255]]]


def test_the_first_frame_is_used() -> None:
    frames = [Image.new("L", (2, 2), 40), Image.new("L", (2, 2), 200)]
    content = encoded(frames[0], "TIFF", save_all=True, append_images=frames[1:])
    assert pixels_of(content, 1) == [[40, 40], [40, 40]]


def test_formats_that_start_other_programs_are_refused() -> None:
    content = encoded(Image.new("RGB", (2, 2)), "EPS")
    with pytest.raises(OSError, match="cannot identify"):
        open_with_pillow(content, channels=3)


def test_every_kind_shows_the_same_picture() -> None:
    pixels = {kind: decode_image(content, 3).astype(float) for kind, content in kinds(3).items()}
    for kind in ("plain", "progressive", "turned", "cmyk"):
        assert np.abs(pixels[kind] - pixels["png"]).mean() < 4, kind
    grey = np.asarray(picture(3, 90, 70).convert("L"), dtype=float)
    for channel in range(3):
        assert np.abs(pixels["grey"][..., channel] - grey).mean() < 4


@pytest.mark.parametrize("content", [b"", b"\xff\xd8", b"\xff\xd8 and no JPEG", b"GIF89a"])
def test_files_that_only_start_like_images_are_refused(content: bytes) -> None:
    with pytest.raises(OSError, match=r"cannot identify|truncated|broken"):
        decode_image(content, 3)


@pytest.mark.parametrize("library", ["simplejpeg", "Pillow"])
def test_broken_files_are_refused(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if library == "Pillow":
        monkeypatch.setattr(decode_jpeg, "simplejpeg", None)
    with pytest.raises(OSError, match="truncated"):
        decode_image(truncated(jpeg(picture(1, 300, 200))), 3)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(Image.DecompressionBombError):
        decode_image(huge(), 3)
    used_kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert used_kilobytes < 100_000  # the header promises 7 GB
