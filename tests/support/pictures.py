"""Small photographs of every kind that a folder of JPEGs turns out to hold."""

import io
from pathlib import Path

import numpy as np
from PIL import Image


def picture(seed: int, width: int, height: int) -> Image.Image:
    """Smooth colours with an edge: what JPEG is made for."""
    draws = np.random.default_rng(seed)
    coarse = Image.fromarray(draws.integers(0, 256, (5, 6, 3), dtype=np.uint8))
    pixels = np.array(coarse.resize((width, height), Image.Resampling.BICUBIC))
    pixels[height // 3 : height // 2, width // 4 :] //= 2
    return Image.fromarray(pixels)


def jpeg(image: Image.Image, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", **{"quality": 90, **options})
    return out.getvalue()


def png(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def turned(image: Image.Image) -> bytes:
    """A JPEG that a viewer must turn by 90° to show `image`."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return jpeg(image.transpose(Image.Transpose.ROTATE_90), exif=exif)


def kinds(seed: int, width: int = 90, height: int = 70) -> dict[str, bytes]:
    """One picture, encoded in every way."""
    image = picture(seed, width, height)
    return {
        "plain": jpeg(image),
        "progressive": jpeg(image, progressive=True),
        "grey": jpeg(image.convert("L")),
        "cmyk": jpeg(image.convert("CMYK")),
        "turned": turned(image),
        "png": png(image),
    }


def truncated(encoded: bytes) -> bytes:
    """The header and half the body."""
    return encoded[: len(encoded) // 2 + 200]


def huge(side: int = 50_000) -> bytes:
    """A small JPEG whose header promises side × side pixels."""
    encoded = bytearray(jpeg(picture(0, 16, 16)))
    frame = encoded.index(b"\xff\xc0")
    encoded[frame + 5 : frame + 9] = side.to_bytes(2, "big") * 2
    return bytes(encoded)


def write_folder(
    folder: Path, classes: tuple[str, ...], train: int, test: int, *, size: int = 90
) -> Path:
    """train/CLASS/*.JPEG and val/CLASS/*.JPEG, of varied sizes and kinds."""
    for part, count in (("train", train), ("val", test)):
        for label, name in enumerate(classes):
            (folder / part / name).mkdir(parents=True)
            for number in range(count):
                width = size + 7 * (number % 5)
                kind = list(kinds(1000 * label + number, width, size).values())[number % 6]
                (folder / part / name / f"{name}_{number}.JPEG").write_bytes(kind)
    return folder
