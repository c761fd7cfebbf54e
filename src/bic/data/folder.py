"""Folders of images: train/CLASS/*.jpg with test/CLASS/*.jpg, or with a flat val/*.jpg and a list of its classes."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from bic.data.choose import Wanted
from bic.data.encoded import Part, Reader
from bic.data.flat import KAGGLE, find_answers
from bic.data.images import Dataset, reading
from bic.data.index import Facts, Index
from bic.errors import UserError

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
LISTERS = 16  # folders listed at a time: on a network drive each answer takes its time


def open_folder(path: Path, name: str, wanted: Wanted, reader: Reader) -> Dataset:
    """The images of `path`/train and `path`/test (or val), one subfolder a class; test images may also lie flat."""
    train, tests = path / "train", [path / part for part in ("test", "val", "validation") if (path / part).is_dir()]
    test = next((part for part in tests if class_folders(part)), None)
    answers = None
    if test is None:
        # A flat test folder without answers, as ImageNet's, must not hide a validation folder that has them.
        test, answers = next(
            ((part, found) for part in tests if (found := find_answers(part, path))), ((*tests, path / "test")[0], None)
        )
        if answers is None and any(is_image(each.name) for each in test.glob("*")):
            lists = f"{test}.txt, a file name and a class on each line, or Kaggle's {KAGGLE}"
            raise UserError(f"{test} has images in no class's folder and no list of their classes; put {lists}, there")
    known = sorted({*class_folders(train), *(class_folders(test) if answers is None else ())})
    if not known:
        raise UserError(f"{path} has no images; put some in {train}/CLASS/ and {test}/CLASS/")
    classes = wanted.of(known, path)
    index = Index(reader.cache, path)
    parts = [list_part("train", train, classes, index)]
    if answers is None:
        parts.append(list_part("test", test, classes, index))
    else:
        parts.append(list_flat(test, classes, answers.of(known), index))
    return reader.read(name, classes, parts, index=index, keep_own_size=False)


def class_folders(folder: Path) -> list[str]:
    return [each.name for each in folder.glob("*") if each.is_dir() and not each.name.startswith(".")]


def list_part(title: str, folder: Path, classes: Sequence[str], index: Index) -> Part:
    """One subfolder a class."""

    def look(name: str) -> Facts:
        place = folder / name
        if not place.is_dir():
            return Facts.unknown("", 0, [], (), ())
        with reading(place):
            return index.list_folder(place, f"{folder.name}/{name}", is_image)

    with ThreadPoolExecutor(LISTERS) as pool:
        found = list(pool.map(look, classes))
    for name, facts in zip(classes, found, strict=True):
        if not facts.names:
            place_for = f"put {', '.join(SUFFIXES)} files in {folder / name}"
            raise UserError(f"class {name!r} has no {title} images; {place_for}, or remove the class")
    labels = np.repeat(np.arange(len(classes)), [len(facts.names) for facts in found])
    files = [f"{folder / name}/{each}" for name, facts in zip(classes, found, strict=True) for each in facts.names]
    return Part(title, files, labels, files.__getitem__, Facts.join(found))


def list_flat(folder: Path, classes: Sequence[str], answers: dict[str, str], index: Index) -> Part:
    """All images in one folder, of which those of `classes` are taken."""
    with reading(folder):
        facts = index.list_folder(folder, folder.name, is_image)
    position = {name: label for label, name in enumerate(classes)}
    for name in facts.names:
        if Path(name).stem not in answers:
            raise UserError(f"the list of classes does not name {folder / name}; add it, or remove the image")
    labels = np.array([position.get(answers[Path(name).stem], -1) for name in facts.names], dtype=np.int64)
    files = [f"{folder}/{name}" for name in facts.names]
    return Part("test", files, labels, files.__getitem__, facts, chosen=np.flatnonzero(labels >= 0))


def is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")
