"""Decoding of every kind of image, and the sets they are gathered in."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image

from bic.data import Dataset, Preprocessing, join
from bic.data.decode import open_image
from bic.data.images import array_set, encode
from bic.errors import UserError


def file_of(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def pixels_of(encoded: bytes, channels: int) -> list[object]:
    return np.asarray(open_image(encoded, channels=channels)).tolist()


def test_sixteen_bit_grey_is_scaled_not_clipped() -> None:
    deep = np.array([[0, 257, 32768, 65535]], dtype=np.uint16)
    encoded = file_of(Image.fromarray(deep))
    assert pixels_of(encoded, 1) == [[0, 1, 128, 255]]
    assert pixels_of(encoded, 3) == [[[0] * 3, [1] * 3, [128] * 3, [255] * 3]]


def test_exif_rotation_is_applied() -> None:
    image = Image.fromarray(np.array([[10, 20]], dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: rotate by 90° clockwise
    assert pixels_of(file_of(image, exif=exif), 1) == [[10], [20]]


def test_exif_rotation_of_sixteen_bit_grey() -> None:
    image = Image.fromarray(np.array([[257, 514]], dtype=np.uint16))
    exif = Image.Exif()
    exif[0x0112] = 6
    assert pixels_of(file_of(image, exif=exif), 1) == [[1], [2]]


def test_cmyk_becomes_rgb() -> None:
    encoded = file_of(Image.new("CMYK", (1, 1), (0, 255, 255, 0)), "TIFF")
    assert pixels_of(encoded, 3) == [[[255, 0, 0]]]


def test_palette_becomes_its_colours() -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([9, 8, 7, 1, 2, 3])
    image.putpixel((1, 0), 1)
    assert pixels_of(file_of(image), 3) == [[[9, 8, 7], [1, 2, 3]]]


def test_transparent_palette_shows_white_without_a_warning() -> None:
    image = Image.new("P", (3, 1))
    image.putpalette([9, 8, 7, 1, 2, 3, 5, 5, 5])
    image.putdata([0, 1, 2])
    encoded = file_of(image, transparency=bytes([255, 0, 255]))
    assert pixels_of(encoded, 3) == [[[9, 8, 7], [255] * 3, [5, 5, 5]]]
    half = file_of(image, transparency=bytes([255, 51, 102]))
    assert pixels_of(half, 3)[0][1] == [204, 204, 205]  # 1/5 of the colour, 4/5 white


def test_alpha_shows_white_and_grey_stays_exact() -> None:
    image = Image.fromarray(np.array([[[77, 255], [77, 0]]], dtype=np.uint8), "LA")
    assert pixels_of(file_of(image), 1) == [[77, 255]]
    image = Image.fromarray(np.array([[[1, 2, 3, 255], [1, 2, 3, 0]]], dtype=np.uint8))
    assert pixels_of(file_of(image), 3) == [[[1, 2, 3], [255, 255, 255]]]


def test_first_frame_of_several() -> None:
    frames = [Image.new("L", (2, 2), 40), Image.new("L", (2, 2), 200)]
    encoded = file_of(frames[0], "TIFF", save_all=True, append_images=frames[1:])
    assert pixels_of(encoded, 1) == [[40, 40], [40, 40]]


def test_formats_that_run_other_programs_are_refused() -> None:
    encoded = file_of(Image.new("RGB", (2, 2)), "EPS")
    with pytest.raises(OSError, match="cannot identify"):
        open_image(encoded, channels=3)


def test_view_scales_the_shorter_side_and_keeps_the_middle() -> None:
    row = np.repeat(np.array([[0, 100, 200, 50]], dtype=np.uint8), 2, axis=0)
    pixels = Preprocessing(channels=1, size=2).decode(file_of(Image.fromarray(row)))
    assert pixels.tolist() == [[[100, 200], [100, 200]]]
    wide = np.repeat(np.repeat(row, 2, axis=0), 2, axis=1)
    pixels = Preprocessing(channels=1, size=2, resize=4).decode(file_of(Image.fromarray(wide)))
    assert pixels.tolist() == [[[100, 200], [100, 200]]]


@pytest.mark.parametrize("shape", [(1, 3, 2), (3, 2, 2), (5,)])
def test_encode_and_decode_give_the_same_back(shape: tuple[int, ...]) -> None:
    drawn = torch.randint(256, shape, generator=torch.Generator().manual_seed(1))
    pixels = drawn.float() if len(shape) == 1 else drawn.to(torch.uint8)
    assert torch.equal(Preprocessing(channels=shape[0]).decode(encode(pixels)), pixels)


def test_select_join_and_relabel() -> None:
    images = array_set(np.arange(16, dtype=np.uint8).reshape(4, 2, 2), np.array([0, 1, 2, 1]))
    chosen = images.of_classes([2, 1])
    assert chosen.labels.tolist() == [1, 0, 1]
    assert chosen.take(np.array([1])).tolist() == [[[[8, 9], [10, 11]]]]
    both = join([chosen, images.select(np.array([0]))])
    assert both.labels.tolist() == [1, 0, 1, 0]
    assert both.take(np.array([3])).flatten().tolist() == [0, 1, 2, 3]


def test_a_class_named_twice_or_without_images_is_refused() -> None:
    images = array_set(np.zeros((2, 2, 2), dtype=np.uint8), np.array([0, 1]))
    with pytest.raises(UserError, match=r"class 'a' of .* is named twice"):
        Dataset(name="d", classes=("a", "a"), train=images, test=images)
    with pytest.raises(UserError, match="class 'c' of d has no train images"):
        Dataset(name="d", classes=("a", "b", "c"), train=images, test=images)


def test_fingerprint_sees_pixels_labels_and_names() -> None:
    grey, other = (np.full((2, 2, 2), value, dtype=np.uint8) for value in (0, 1))
    one, two = np.array([0, 1]), np.array([1, 0])

    def fingerprint(pixels: np.ndarray, labels: np.ndarray, *classes: str) -> str:
        images = array_set(pixels, labels)
        return Dataset(name="d", classes=classes, train=images, test=images).fingerprint

    prints = [
        fingerprint(grey, one, "a", "b"),
        fingerprint(other, one, "a", "b"),
        fingerprint(grey, two, "a", "b"),
        fingerprint(grey, one, "a", "c"),
    ]
    assert len(set(prints)) == 4
    assert prints[0] == fingerprint(grey, one, "a", "b")
