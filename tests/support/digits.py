"""Test images of digits as PNG files, for tests that predict."""

from pathlib import Path

from PIL import Image

from bic import open_dataset


def write_digits(folder: Path, count: int) -> list[Path]:
    """Write the first test images of digits. Returns their paths, in order."""
    test = open_dataset("digits").test
    folder.mkdir()
    paths = []
    for number, pixels in enumerate(test.take(test.everything[:count])):
        path = folder / f"{number:02}.png"
        Image.fromarray(pixels[0].numpy()).save(path)
        paths.append(path)
    return paths
