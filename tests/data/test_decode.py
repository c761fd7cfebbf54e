"""Decoding: the same picture by every way to it."""

from __future__ import annotations

import io
import resource

import numpy as np
import pytest
import torch
from PIL import Image
from support.pictures import huge, jpeg, kinds, picture, truncated

from bic.data import decode as decode_module
from bic.data.decode import Cut, Preprocessing, open_image, reduction

VIEW = Preprocessing(channels=3, size=48, resize=56)
CUTS = [None, Cut(56, 0.0, 0.0, False), Cut(100, 0.4, 0.99, True)]


@pytest.mark.parametrize("kind", ["plain", "progressive", "grey", "cmyk", "turned", "png"])
@pytest.mark.parametrize("cut", CUTS)
def test_simplejpeg_and_pillow_give_the_same_pixels(
    kind: str, cut: Cut | None, monkeypatch
) -> None:
    pytest.importorskip("simplejpeg")
    encoded = kinds(3)[kind]
    with_it = VIEW.decode(encoded, cut)
    monkeypatch.setattr(decode_module, "simplejpeg", None)
    assert torch.equal(VIEW.decode(encoded, cut), with_it)


def test_simplejpeg_decodes_plain_files_and_leaves_the_rest(monkeypatch) -> None:
    pytest.importorskip("simplejpeg")

    def never(*_: object, **__: object) -> Image.Image:
        raise AssertionError("left to Pillow")

    monkeypatch.setattr(decode_module, "open_image", never)
    for kind, encoded in kinds(3).items():
        if kind in ("plain", "progressive", "grey"):
            VIEW.decode(encoded)
        else:
            with pytest.raises(AssertionError, match="left to Pillow"):
                VIEW.decode(encoded)


@pytest.mark.parametrize(
    "subsampling", [0, 1, 2]
)  # colours of as many pixels as brightness, a half and a quarter
@pytest.mark.parametrize(("width", "height"), [(333, 250), (250, 333), (901, 707)])
def test_rows_below_the_square_are_not_decoded(
    subsampling: int, width: int, height: int, monkeypatch
) -> None:
    simplejpeg = pytest.importorskip("simplejpeg")
    out = io.BytesIO()
    picture(4, width, height).save(out, "JPEG", subsampling=subsampling)
    preprocessing = Preprocessing(channels=3, size=100)
    cuts = [Cut(side, 0.3, y, mirrored=True) for side in (110, 170) for y in (0.0, 0.37, 0.7)]
    ours = [preprocessing.decode(out.getvalue(), cut) for cut in cuts]
    decode, shares = simplejpeg.decode_jpeg, []

    def counted(source: bytes, *args: object, **options: object) -> object:
        shares.append(simplejpeg.decode_jpeg_header(source)[0] / height)
        return decode(source, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(simplejpeg, "decode_jpeg", counted)
        for cut in cuts:
            preprocessing.decode(out.getvalue(), cut)
    assert min(shares) < 0.7
    assert np.mean(shares) < 0.95
    monkeypatch.setattr(decode_module, "ROWS_BELOW", height)  # now all rows are
    assert all(
        torch.equal(preprocessing.decode(out.getvalue(), cut), one)
        for cut, one in zip(cuts, ours, strict=True)
    )


def test_every_kind_shows_the_same_picture() -> None:
    views = {kind: VIEW.decode(encoded).float() for kind, encoded in kinds(3).items()}
    for kind in ("plain", "progressive", "turned", "cmyk"):
        assert (views[kind] - views["png"]).abs().mean() < 4, kind
    assert torch.equal(views["grey"][0], views["grey"][2])
    # Not so if it were not turned:
    sideways = Preprocessing(channels=3, size=48, resize=56).decode(
        jpeg(picture(3, 90, 70).transpose(Image.Transpose.ROTATE_90))
    )
    assert (sideways.float() - views["png"]).abs().mean() > 10


@pytest.mark.parametrize(("x", "left"), [(0.0, 0), (0.999, 64), (20.5 / 65, 20)])
def test_the_square_is_that_of_a_resize_before_the_cut(x: float, left: int) -> None:
    image = picture(5, 512, 512)
    encoded = io.BytesIO()
    image.save(encoded, "PNG")
    ours = Preprocessing(channels=3, size=224).decode(encoded.getvalue(), Cut(256, x, 0.0, False))
    whole = image.resize((256, 256), Image.Resampling.BILINEAR)
    expected = np.asarray(whole.crop((left // 2, 0, left // 2 + 224, 224))).transpose(2, 0, 1)
    inside = (
        slice(None),
        slice(2, -2),
        slice(2, -2),
    )  # a resize before the cut sees one pixel further
    assert np.abs(ours.numpy().astype(int) - expected)[inside].max() <= 1
    mirrored = Preprocessing(channels=3, size=224).decode(encoded.getvalue(), Cut(256, x, 0.0, True))
    assert torch.equal(mirrored, ours.flip(2))


def test_the_centre_is_the_default() -> None:
    pixels = np.zeros((60, 100), dtype=np.uint8)
    pixels[20:40, 40:60] = 200
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    assert Preprocessing(channels=1, size=20, resize=60).decode(out.getvalue()).eq(200).all()


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
def test_a_reduced_decode_gives_nearly_the_same_picture(library: str, monkeypatch) -> None:
    if library == "Pillow":
        monkeypatch.setattr(decode_module, "simplejpeg", None)
    encoded, preprocessing = jpeg(picture(7, 383, 383)), Preprocessing(channels=3, size=48)
    assert open_image(encoded, channels=3, at_least=48).size == (96, 96)
    reduced = preprocessing.decode(encoded).float()
    monkeypatch.setattr(decode_module, "MARGIN", 1000)
    whole = preprocessing.decode(encoded).float()
    assert 0 < (reduced - whole).abs().mean() < 1.5


@pytest.mark.parametrize("library", ["simplejpeg", "Pillow"])
def test_broken_files_are_refused(library: str, monkeypatch) -> None:
    if library == "Pillow":
        monkeypatch.setattr(decode_module, "simplejpeg", None)
    for cut in CUTS:  # also where the square lies above the end
        with pytest.raises(OSError, match="truncated"):
            VIEW.decode(truncated(jpeg(picture(1, 300, 200))), cut)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(Image.DecompressionBombError):
        VIEW.decode(huge())
    assert (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000
    )  # kB, where 7 GB were promised


def test_what_was_decoded_stays_when_the_next_is() -> None:
    preprocessing = Preprocessing(channels=3, size=70)  # the picture's own size, so that nothing is scaled
    first = preprocessing.decode(kinds(1)["plain"])
    kept = first.clone()
    preprocessing.decode(kinds(2)["plain"])
    assert torch.equal(first, kept)
