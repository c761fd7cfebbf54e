"""Folders of images: train/CLASS/*.jpg and test/CLASS/*.jpg."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from bic.data.encoded import EncodedFiles, Part, Reading, read_dataset
from bic.data.images import Dataset
from bic.errors import UserError

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
TEST_FOLDERS = ("test", "val")


@dataclass(frozen=True)
class Paths(EncodedFiles):
    """Image files on disk."""

    paths: Sequence[str]

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, index: int) -> bytes:
        with self.open(index) as file:
            return file.read()

    def open(self, index: int) -> BinaryIO:
        return open(self.paths[index], "rb")

    def name(self, index: int) -> str:
        return self.paths[index]


def open_folder(path: Path, name: str, reading: Reading) -> Dataset:
    """The images of `path`/train and `path`/test (or val), one subfolder a class."""
    train = path / "train"
    test = next((path / each for each in TEST_FOLDERS if (path / each).is_dir()), None)
    if test is None:
        raise UserError(f"{path} has no test images; put some in {path / 'test'}/CLASS/")
    classes = subfolders(train)
    if not classes:
        raise UserError(f"{train} has no classes; put images in {train}/CLASS/")
    unknown = [each for each in subfolders(test) if each not in set(classes)]
    if unknown:
        raise UserError(
            f"class {unknown[0]!r} is in {test} but not in {train}; "
            "add training images or remove the folder"
        )
    parts = (list_part("train", train, classes), list_part("test", test, classes))
    return read_dataset(name, classes, parts, reading, keep_own_size=False)


def subfolders(path: Path) -> list[str]:
    with os.scandir(path) as entries:
        return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))


def list_part(title: str, folder: Path, classes: Sequence[str]) -> Part:
    paths: list[str] = []
    counts = []
    for each in classes:
        found = image_paths(folder / each)
        if not found:
            raise UserError(
                f"class {each!r} has no {title} images; "
                f"put {', '.join(SUFFIXES)} files in {folder / each}, or remove the class"
            )
        paths += found
        counts.append(len(found))
    return Part(title, Paths(paths), np.repeat(np.arange(len(classes)), counts))


def image_paths(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return sorted(
            entry.path
            for entry in entries
            if entry.name.lower().endswith(SUFFIXES) and not entry.name.startswith(".")
        )
