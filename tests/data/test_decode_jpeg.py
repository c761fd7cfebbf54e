"""The fast way for ordinary JPEGs: the same pixels as Pillow's, with less work."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from support.pictures import jpeg, kinds, picture, truncated

from bic.data import decode as decode_module
from bic.data import decode_jpeg
from bic.data.decode import decode_image, opened_with_pillow
from bic.data.decode_jpeg import reduction
from bic.data.preprocessing import Cut, Preprocessing

PREPROCESSING = Preprocessing(channels=3, size=48, resize=56)
CUTS = [None, Cut(56, 0.0, 0.0, False), Cut(100, 0.4, 0.99, True)]


@pytest.mark.parametrize("kind", ["plain", "progressive", "grey", "cmyk", "turned", "png"])
@pytest.mark.parametrize("cut", CUTS)
def test_simplejpeg_and_pillow_give_the_same_pixels(
    kind: str, cut: Cut | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("simplejpeg")
    content = kinds(3)[kind]
    with_simplejpeg = PREPROCESSING.decode(content, cut)
    monkeypatch.setattr(decode_jpeg, "simplejpeg", None)
    assert torch.equal(PREPROCESSING.decode(content, cut), with_simplejpeg)


def test_simplejpeg_decodes_ordinary_jpegs_and_pillow_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("simplejpeg")

    def refuse(*_: object, **__: object) -> Image.Image:
        raise AssertionError("left to Pillow")

    monkeypatch.setattr(decode_module, "opened_with_pillow", refuse)
    for kind, content in kinds(3).items():
        if kind in ("plain", "progressive", "grey"):
            assert decode_image(content, 3).shape == (70, 90, 3)
        else:
            with pytest.raises(AssertionError, match="left to Pillow"):
                decode_image(content, 3)


# Colours at the full resolution, half of it, and a quarter of it.
@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize(("width", "height"), [(333, 250), (250, 333), (901, 707)])
def test_rows_below_the_square_are_not_decoded(
    subsampling: int, width: int, height: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    simplejpeg = pytest.importorskip("simplejpeg")
    content = jpeg(picture(4, width, height), subsampling=subsampling)
    preprocessing = Preprocessing(channels=3, size=100)
    cuts = [Cut(side, 0.3, y, mirrored=True) for side in (110, 170) for y in (0.0, 0.37, 0.7)]
    decode = simplejpeg.decode_jpeg
    shares = []

    def measured(source: bytes, *args: object, **options: object) -> object:
        shares.append(simplejpeg.decode_jpeg_header(source)[0] / height)
        return decode(source, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(simplejpeg, "decode_jpeg", measured)
        fast = [preprocessing.decode(content, cut) for cut in cuts]
    assert min(shares) < 0.7
    assert np.mean(shares) < 0.95
    monkeypatch.setattr(decode_jpeg, "ROWS_BELOW", height)  # decode all rows
    for cut, pixels in zip(cuts, fast, strict=True):
        assert torch.equal(preprocessing.decode(content, cut), pixels)


@pytest.mark.parametrize("cut", CUTS)
def test_a_truncated_file_is_refused_even_if_its_end_is_not_needed(cut: Cut | None) -> None:
    with pytest.raises(OSError, match="truncated"):
        PREPROCESSING.decode(truncated(jpeg(picture(1, 300, 200))), cut)


@pytest.mark.parametrize(
    ("width", "height", "at_least", "factor"),
    [
        (500, 375, 256, 1),
        (767, 900, 256, 1),
        (768, 900, 256, 2),
        (1600, 1600, 256, 4),
        (5000, 3072, 256, 8),
        (9, 9, None, 1),
    ],
)
def test_reduction(width: int, height: int, at_least: int | None, factor: int) -> None:
    assert reduction(width, height, at_least) == factor


@pytest.mark.parametrize("library", ["simplejpeg", "Pillow"])
def test_a_reduced_decode_gives_nearly_the_same_picture(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if library == "Pillow":
        monkeypatch.setattr(decode_jpeg, "simplejpeg", None)
    content = jpeg(picture(7, 383, 383))
    preprocessing = Preprocessing(channels=3, size=48)
    with opened_with_pillow(content, at_least=48) as image:
        assert image.size == (96, 96)
    assert decode_image(content, 3, at_least=48).shape == (96, 96, 3)
    reduced = preprocessing.decode(content).float()
    monkeypatch.setattr(decode_jpeg, "MARGIN", 1000)
    full = preprocessing.decode(content).float()
    assert 0 < (reduced - full).abs().mean() < 1.5
