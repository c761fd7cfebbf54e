"""Preprocessing: which part of an image is used, and how it is scaled."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image
from support.pictures import kinds, picture, png

from bic import UserError
from bic.data.decode_files import decode_files
from bic.data.images import encode
from bic.data.preprocessing import Cut, Preprocessing


def test_the_shorter_side_is_scaled_and_the_middle_is_kept() -> None:
    row = np.repeat(np.array([[0, 100, 200, 50]], dtype=np.uint8), 2, axis=0)
    pixels = Preprocessing(channels=1, size=2).decode(png(Image.fromarray(row)))
    assert pixels.tolist() == [[[100, 200], [100, 200]]]
    wide = np.repeat(np.repeat(row, 2, axis=0), 2, axis=1)
    pixels = Preprocessing(channels=1, size=2, resize=4).decode(png(Image.fromarray(wide)))
    assert pixels.tolist() == [[[100, 200], [100, 200]]]


def test_the_centre_is_used_without_a_cut() -> None:
    pixels = np.zeros((60, 100), dtype=np.uint8)
    pixels[20:40, 40:60] = 200
    content = png(Image.fromarray(pixels))
    assert Preprocessing(channels=1, size=20, resize=60).decode(content).eq(200).all()


@pytest.mark.parametrize(("x", "left"), [(0.0, 0), (0.999, 32), (20.5 / 65, 10)])
def test_a_cut_is_that_of_a_resized_image(x: float, left: int) -> None:
    image = picture(5, 512, 512)
    preprocessing = Preprocessing(channels=3, size=224)
    pixels = preprocessing.decode(png(image), Cut(256, x, 0.0, False))
    scaled = image.resize((256, 256), Image.Resampling.BILINEAR)
    expected = np.asarray(scaled.crop((left, 0, left + 224, 224))).transpose(2, 0, 1)
    # At its border, the square cut out of the resized image is blended with pixels outside.
    inside = np.s_[:, 2:-2, 2:-2]
    assert np.abs(pixels.numpy().astype(int) - expected)[inside].max() <= 1
    mirrored = preprocessing.decode(png(image), Cut(256, x, 0.0, True))
    assert torch.equal(mirrored, pixels.flip(2))


@pytest.mark.parametrize("shape", [(1, 3, 2), (3, 2, 2), (5,)])
def test_encoding_is_lossless(shape: tuple[int, ...]) -> None:
    drawn = torch.randint(256, shape, generator=torch.Generator().manual_seed(1))
    pixels = drawn.float() if len(shape) == 1 else drawn.to(torch.uint8)
    assert torch.equal(Preprocessing(channels=shape[0]).decode(encode(pixels)), pixels)


def test_the_next_decode_does_not_overwrite_the_last() -> None:
    preprocessing = Preprocessing(channels=3, size=70)  # the picture's own height: nothing to scale
    first = preprocessing.decode(kinds(1)["plain"])
    copy = first.clone()
    preprocessing.decode(kinds(2)["plain"])
    assert torch.equal(first, copy)


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3), r"it is an array float64 \[3\]"),
        (np.zeros(4, np.float32), r"it is an array float32 \[4\]"),
        (np.float32(1), r"it is an array float32 \[\]"),
        (np.array([1, np.nan, 2], np.float32), "it holds NaN or infinity"),
    ],
)
def test_odd_vector_is_refused(array: np.ndarray, message: str) -> None:
    vectors = Preprocessing(channels=3)
    with pytest.raises(ValueError, match=message):
        vectors.decode(npy(array))
    with pytest.raises(UserError, match=rf"can't read an image in memory \({message}\)"):
        decode_files([npy(array)], vectors)
    assert vectors.decode(npy(np.arange(3, dtype=np.float32))).tolist() == [0, 1, 2]
