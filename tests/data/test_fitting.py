"""Images brought to the size and the channels of a model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from support.pictures import picture, plain_png, png

from bic.data.fitting import fitted, resized
from bic.data.images import ImageSet, array_set
from bic.data.preprocessing import Preprocessing
from bic.errors import UserError


def arrays(*shape: int) -> ImageSet:
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    return array_set(pixels, np.arange(shape[0]))


def test_images_that_fit_are_returned_as_they_are() -> None:
    images = arrays(2, 4, 4, 3)
    assert fitted(images, Preprocessing(channels=3, size=4)) is images
    vectors = array_set(np.zeros((2, 5), np.float32), np.arange(2))
    assert fitted(vectors, Preprocessing(channels=5)) is vectors


def test_of_files_only_the_preprocessing_changes() -> None:
    files = [plain_png(1, (8, 8)), plain_png(2, (8, 8))]
    old = Preprocessing(channels=1, size=8)
    new = Preprocessing(channels=3, size=2, resize=4)
    images = ImageSet(labels=np.arange(2), preprocessing=old, files=files, skip_bad=True)
    fit = fitted(images, new)
    assert (fit.files, fit.preprocessing, fit.skip_bad) == (files, new, True)
    assert fit.take(np.array([1])).tolist() == [[[[2, 2], [2, 2]]] * 3]


def test_pixels_of_files_are_decoded_again() -> None:
    """The file has more detail than the pixels that were made from it."""
    content = png(picture(1, 32, 32))
    small = Preprocessing(channels=3, size=4)
    large = Preprocessing(channels=3, size=16)
    pixels = small.decode(content)[None]
    images = ImageSet(
        labels=np.zeros(1, np.int64), preprocessing=small, pixels=pixels, files=[content]
    )
    assert torch.equal(fitted(images, large).take(np.array([0]))[0], large.decode(content))


def test_many_images_are_scaled_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    images = arrays(7, 6, 9, 3)
    at_once = resized(images, 4).pixels
    monkeypatch.setattr("bic.data.fitting.SCALED_BYTES", 2 * 3 * 4 * 6)  # two images
    in_parts = resized(images, 4).pixels
    assert at_once is not None
    assert in_parts is not None
    assert torch.equal(in_parts, at_once)
    assert in_parts.stride() == at_once.stride()


def test_images_that_are_too_long_are_refused() -> None:
    with pytest.raises(UserError, match="images of 1 × 101 pixels are too long to become squares"):
        resized(arrays(2, 1, 101, 3), 4)
    square = resized(arrays(2, 1, 100, 3), 4).pixels
    assert square is not None
    assert square.shape == (2, 3, 4, 4)


def test_pixels_of_another_size_are_resized() -> None:
    images = arrays(3, 6, 9, 3)
    preprocessing = Preprocessing(channels=3, size=4)
    fit = fitted(images, preprocessing)
    assert fit.preprocessing == preprocessing
    assert fit.pixels is not None
    expected = resized(images, 4).pixels
    assert expected is not None
    assert torch.equal(fit.pixels, expected)
    assert fit.labels.tolist() == [0, 1, 2]


def test_pixels_are_resized_as_files_are() -> None:
    """With `resize`, the border is cut off."""
    image = picture(3, 64, 64)
    preprocessing = Preprocessing(channels=3, size=24, resize=32)
    images = array_set(np.array(image)[None], np.zeros(1, np.int64))
    fit = fitted(images, preprocessing).take(np.array([0]))[0]
    # A file is cut before it is resized, so its border is not blended with pixels outside.
    inside = np.s_[:, 2:-2, 2:-2]
    difference = fit.int() - preprocessing.decode(png(image)).int()
    assert difference[inside].abs().max() <= 1


def test_a_single_size_needs_no_resize() -> None:
    images = arrays(2, 4, 4, 3)
    fit = fitted(images, Preprocessing(channels=3, size=4, resize=6))
    assert fit.pixels is images.pixels
    assert fit.preprocessing.resize == 6


def test_grey_is_repeated_for_an_rgb_model() -> None:
    images = arrays(2, 4, 4)
    fit = fitted(images, Preprocessing(channels=3, size=4))
    assert images.pixels is not None
    assert fit.pixels is not None
    assert torch.equal(fit.pixels, images.pixels.repeat(1, 3, 1, 1))
    assert fit.pixels.is_contiguous(memory_format=torch.channels_last)


def test_rgb_becomes_grey_as_in_pillow() -> None:
    values = [0, 1, 2, 77, 127, 128, 129, 200, 254, 255]
    colours = np.array([(r, g, b) for r in values for g in values for b in values], dtype=np.uint8)
    square = colours[:961].reshape(31, 31, 3)
    images = array_set(square[None], np.zeros(1, np.int64))
    fit = fitted(images, Preprocessing(channels=1, size=31))
    expected = np.asarray(Image.fromarray(square).convert("L"))
    assert fit.pixels is not None
    assert np.array_equal(fit.pixels[0, 0].numpy(), expected)


@pytest.mark.parametrize(
    ("images", "preprocessing", "problem"),
    [
        (
            array_set(np.zeros((2, 5), np.float32), np.arange(2)),
            Preprocessing(channels=7),
            "the model takes vectors of 7 numbers, got vectors of 5 numbers",
        ),
        (
            array_set(np.zeros((2, 5), np.float32), np.arange(2)),
            Preprocessing(channels=3, size=8),
            "the model takes images, got vectors of 5 numbers",
        ),
        (arrays(2, 4, 4), Preprocessing(channels=7), "takes vectors of 7 numbers, got images"),
        (arrays(2, 4, 5, 3), Preprocessing(channels=3), "takes vectors of 3 numbers, got images"),
        (
            ImageSet(
                labels=np.zeros(1, np.int64),
                preprocessing=Preprocessing(channels=1, size=4),
                files=[plain_png(1)],
            ),
            Preprocessing(channels=16),
            "the model takes vectors of 16 numbers, got images",
        ),
    ],
)
def test_other_kinds_of_data_are_refused(
    images: ImageSet, preprocessing: Preprocessing, problem: str
) -> None:
    with pytest.raises(UserError, match=problem):
        fitted(images, preprocessing)
