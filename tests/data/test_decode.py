"""Decoding: every kind of image becomes plain grey or RGB."""

from __future__ import annotations

import resource
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
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
from torch import Tensor

from bic.data import decode as decode_module
from bic.data import decode_jpeg
from bic.data.decode import decode_image, is_image, opened_with_pillow, plain_image
from bic.data.decode_files import Problem, fill_rows
from bic.data.preprocessing import Preprocessing


def pixels_of(content: bytes, channels: int) -> list[object]:
    with opened_with_pillow(content) as image:
        return np.asarray(plain_image(image, channels)).tolist()


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


@pytest.mark.parametrize("format_name", ["TIFF", "GIF", "PNG", "WEBP", "MPO"])
def test_the_first_frame_is_used(format_name: str) -> None:
    frames = [Image.new("L", (2, 2), 40), Image.new("L", (2, 2), 200)]
    content = encoded(frames[0], format_name, save_all=True, append_images=frames[1:])
    assert pixels_of(content, 1) == [[40, 40], [40, 40]]


def test_formats_that_start_other_programs_are_refused() -> None:
    content = encoded(Image.new("RGB", (2, 2)), "EPS")
    with pytest.raises(OSError, match="cannot identify"):
        decode_image(content, 3)


def test_every_kind_shows_the_same_picture() -> None:
    pixels = {kind: decode_image(content, 3).astype(float) for kind, content in kinds(3).items()}
    for kind in ("plain", "progressive", "turned", "cmyk"):
        assert np.abs(pixels[kind] - pixels["png"]).mean() < 4, kind
    grey = np.asarray(picture(3, 90, 70).convert("L"), dtype=float)
    for channel in range(3):
        assert np.abs(pixels["grey"][..., channel] - grey).mean() < 4


STORED = np.array([[0, 80, 160], [40, 120, 200]], dtype=np.uint8)
# How a viewer must show what is stored, by EXIF orientation.
SHOWN = {
    1: STORED,
    2: STORED[:, ::-1],
    3: STORED[::-1, ::-1],
    4: STORED[::-1],
    5: STORED.T,
    6: np.rot90(STORED, -1),
    7: STORED[::-1, ::-1].T,
    8: np.rot90(STORED),
}
XMP = (
    b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description '
    b'xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="%d"/></x:xmpmeta>'
)


@pytest.mark.parametrize("library", ["simplejpeg", "Pillow"])
@pytest.mark.parametrize("number", SHOWN)
def test_every_orientation_is_turned_upright(
    number: int, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if library == "Pillow":
        monkeypatch.setattr(decode_jpeg, "simplejpeg", None)
    stored = Image.fromarray(STORED.repeat(16, axis=0).repeat(16, axis=1))
    shown = SHOWN[number].repeat(16, axis=0).repeat(16, axis=1).astype(int)
    exif = orientation(number)
    contents = {
        "JPEG": jpeg(stored, exif=exif),
        "XMP": jpeg(stored, xmp=XMP % number),
        "PNG": encoded(stored, "PNG", exif=exif),
        "WEBP": encoded(stored, "WEBP", exif=exif, lossless=True),
        "TIFF": encoded(stored, "TIFF", exif=exif),
    }
    for kind, content in contents.items():
        found = decode_image(content, 1)[..., 0].astype(int)
        assert found.shape == shown.shape, kind
        assert np.abs(found - shown).max() < 8, kind


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


def empty_png(side: int) -> bytes:
    """A PNG of side × side white pixels, in few bytes."""
    return png(Image.new("1", (side, side), 1))


def test_images_over_the_limit_are_refused_before_they_are_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decode_module, "MAX_DECODED_PIXELS", 100 * 100)
    monkeypatch.setattr(decode_module, "MAX_PIXELS", 500 * 500)
    assert decode_image(empty_png(100), 1).shape == (100, 100, 1)
    with pytest.raises(ValueError, match="it has 10,201 pixels, more than 10,000"):
        decode_image(empty_png(101), 1)
    monkeypatch.setattr(decode_jpeg, "MAX_PIXELS_HERE", 0)  # all JPEGs are left to Pillow
    photo = jpeg(picture(1, 500, 500))
    assert decode_image(photo, 3, at_least=32).shape == (63, 63, 3)  # decoded at an eighth
    with pytest.raises(ValueError, match="it has 250,000 pixels, more than 10,000"):
        decode_image(photo, 3)
    with pytest.raises(ValueError, match="it has 251,001 pixels, more than 250,000"):
        decode_image(jpeg(picture(1, 501, 501)), 3, at_least=32)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_a_bomb_of_13000_pixels_a_side_takes_no_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    content = empty_png(13_000)
    made = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match="it has 169,000,000 pixels, more than 40,000,000"):
        decode_image(content, 3)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - max(made, before) < 20_000


def test_threads_share_the_room_for_large_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_module, "SMALL_PIXELS", 0)
    monkeypatch.setattr(decode_module, "MAX_DECODED_PIXELS", 100 * 100)
    at_work = []
    plain = decode_module.plain_image

    def measured(image: Image.Image, channels: int) -> Image.Image:
        at_work.append(decode_module._pixels_in_work)
        time.sleep(0.01)
        return plain(image, channels)

    monkeypatch.setattr(decode_module, "plain_image", measured)
    contents = [empty_png(60)] * 6
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda content: decode_image(content, 1), contents))
    assert len(at_work) == 6
    assert max(at_work) == 7200  # two at a time, and never three
    assert decode_module._pixels_in_work == 0


def test_names_of_images() -> None:
    for name in ("a.PNG", "b.jpeg", "c.tif", "d.gif", "e.webp"):
        assert is_image(name)
    for name in ("a.txt", ".a.png", "png", "a.heic"):
        assert not is_image(name)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(data=st.data())
def test_damaged_files_give_pixels_or_an_exception(data: st.DataObject) -> None:
    image = picture(5, 24, 18)
    format_name = data.draw(st.sampled_from(["JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM"]))
    content = bytearray(encoded(image, format_name))
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    length = data.draw(st.integers(0, len(content)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pixels, problems = decode_rows(bytes(content[:length]))
    if problems:
        assert problems[0].reason
    else:
        assert pixels.shape == (1, 3, 16, 16)


def decode_rows(content: bytes) -> tuple[Tensor, dict[int, Problem]]:
    pixels = torch.empty((1, 3, 16, 16), dtype=torch.uint8)
    return pixels, fill_rows(pixels, [content], Preprocessing(channels=3, size=16), None)
