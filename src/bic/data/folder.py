"""Folders of images: train/CLASS/*.jpg and test/CLASS/*.jpg."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bic.data.encoded import Part, Reader
from bic.data.images import Dataset
from bic.errors import UserError

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")


def open_folder(path: Path, name: str, reader: Reader) -> Dataset:
    """The images of `path`/train and `path`/test (or val), one subfolder a class."""
    train, test = path / "train", path / "test"
    if not test.is_dir() and (path / "val").is_dir():
        test = path / "val"
    folders = [each for part in (train, test) for each in part.glob("*") if each.is_dir()]
    classes = sorted({each.name for each in folders if not each.name.startswith(".")})
    if not classes:
        raise UserError(f"{path} has no images; put some in {train}/CLASS/ and {test}/CLASS/")
    parts = [list_part("train", train, classes), list_part("test", test, classes)]
    return reader.read(name, classes, parts, keep_own_size=False)


def list_part(title: str, folder: Path, classes: Sequence[str]) -> Part:
    found = [sorted(map(str, filter(is_image, (folder / name).glob("*")))) for name in classes]
    for name, paths in zip(classes, found, strict=True):
        if not paths:
            place = f"put {', '.join(SUFFIXES)} files in {folder / name}"
            raise UserError(f"class {name!r} has no {title} images; {place}, or remove the class")
    labels = np.repeat(np.arange(len(classes)), [len(paths) for paths in found])
    files = [path for paths in found for path in paths]
    return Part(title, files, labels, files.__getitem__)


def is_image(path: Path) -> bool:
    return path.name.lower().endswith(SUFFIXES) and not path.name.startswith(".")
