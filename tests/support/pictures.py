"""Small photographs of every kind that folders of JPEGs contain."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

ROTATED = 6  # the EXIF orientation of a picture that must be turned clockwise by 90°


def picture(seed: int, width: int, height: int) -> Image.Image:
    """Smooth colours with an edge, like a photograph."""
    draws = np.random.default_rng(seed)
    coarse = Image.fromarray(draws.integers(0, 256, (5, 6, 3), dtype=np.uint8))
    pixels = np.array(coarse.resize((width, height), Image.Resampling.BICUBIC))
    pixels[height // 3 : height // 2, width // 4 :] //= 2
    return Image.fromarray(pixels)


def encoded(image: Image.Image, format_name: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, format_name, **options)
    return out.getvalue()


def jpeg(image: Image.Image, **options: object) -> bytes:
    return encoded(image, "JPEG", **{"quality": 90, **options})


def png(image: Image.Image) -> bytes:
    return encoded(image, "PNG")


def plain_png(value: int | tuple[int, int, int], size: tuple[int, int] = (4, 4)) -> bytes:
    """A PNG of one colour: grey for a number, RGB for three."""
    mode = "L" if isinstance(value, int) else "RGB"
    return png(Image.new(mode, size, value))


def orientation(number: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = number
    return exif


def turned(image: Image.Image) -> bytes:
    """A JPEG that a viewer must turn by 90° to show `image`."""
    return jpeg(image.transpose(Image.Transpose.ROTATE_90), exif=orientation(ROTATED))


def kinds(seed: int, width: int = 90, height: int = 70) -> dict[str, bytes]:
    """One picture, encoded in six ways."""
    image = picture(seed, width, height)
    return {
        "plain": jpeg(image),
        "progressive": jpeg(image, progressive=True),
        "grey": jpeg(image.convert("L")),
        "cmyk": jpeg(image.convert("CMYK")),
        "turned": turned(image),
        "png": png(image),
    }


def truncated(content: bytes) -> bytes:
    """The header and half the body of a file."""
    return content[: len(content) // 2 + 200]


def huge(side: int = 50_000) -> bytes:
    """A small JPEG whose header promises side × side pixels."""
    content = bytearray(jpeg(picture(0, 16, 16)))
    frame = content.index(b"\xff\xc0")
    content[frame + 5 : frame + 9] = side.to_bytes(2, "big") * 2
    return bytes(content)


def write_folder(
    folder: Path, classes: tuple[str, ...], train: int, test: int, *, size: int = 90
) -> Path:
    """Write `train` images per class to train/CLASS/*.JPEG, and `test` images to val/CLASS/*.JPEG.

    The images have several sizes and all six kinds.
    """
    for part, count in (("train", train), ("val", test)):
        for label, name in enumerate(classes):
            place = folder / part / name
            place.mkdir(parents=True)
            for number in range(count):
                width = size + 7 * (number % 5)
                contents = list(kinds(1000 * label + number, width, size).values())
                (place / f"{name}_{number}.JPEG").write_bytes(contents[number % 6])
    return folder
