"""Folders of images: train/CLASS/ with test/CLASS/, or with a flat val/ and a list of classes."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from bic.data.class_choice import Wanted
from bic.data.decode import SUFFIXES, is_image
from bic.data.image_files import reading
from bic.data.images import Dataset
from bic.data.index import Facts, Index
from bic.data.reader import Part, Reader
from bic.data.sources.validation_list import KAGGLE, ValidationList, find_list
from bic.errors import UserError

TEST_FOLDERS = ("test", "val", "validation")
LISTING_THREADS = 16  # on a network drive most of the time is spent waiting


def open_folder(path: Path, name: str, wanted: Wanted, reader: Reader) -> Dataset:
    """The images of `path`/train and `path`/test (or val), with one subfolder per class.

    The test images may also be in one flat folder with a list of their classes.
    """
    train = path / "train"
    test, validation_list = find_test_folder(path)
    known = {*class_folders(train)}
    if validation_list is None:
        known.update(class_folders(test))
    if not known:
        raise UserError(f"{path} has no images", f"put some in {train}/CLASS/ and {test}/CLASS/")
    known_classes = sorted(known)
    classes = wanted.of(known_classes, path)
    index = Index(reader.cache, path)
    train_part = list_part("train", train, classes, index)
    if validation_list is None:
        test_part = list_part("test", test, classes, index)
    else:
        test_part = list_flat(test, classes, validation_list.checked(known_classes), index)
    parts = [train_part, test_part]
    return reader.read(name, classes, parts, index=index, keep_own_size=False)


def find_test_folder(path: Path) -> tuple[Path, ValidationList | None]:
    """The folder of test images and, if it is flat, the list of their classes.

    A folder with class folders comes first, then a flat folder with a list: ImageNet's test folder,
    which has no list, must not hide the validation folder. If there is neither, returns the folder
    where test images belong. Raises UserError for a flat folder of images without a list.
    """
    folders = [path / name for name in TEST_FOLDERS if (path / name).is_dir()]
    for folder in folders:
        if class_folders(folder):
            return folder, None
    for folder in folders:
        validation_list = find_list(folder, path)
        if validation_list is not None:
            return folder, validation_list
    test = folders[0] if folders else path / "test"
    if any(is_image(file.name) for file in test.glob("*")):
        problem = f"{test} has images outside class folders and no list of their classes"
        text_list = f"{test}.txt with a file name and a class on each line"
        raise UserError(problem, f"add {text_list}, or Kaggle's {KAGGLE}")
    return test, None


def class_folders(folder: Path) -> list[str]:
    names = []
    for place in folder.glob("*"):
        if place.is_dir() and not place.name.startswith("."):
            names.append(place.name)
    return names


def list_part(title: str, folder: Path, classes: Sequence[str], index: Index) -> Part:
    """The images of a folder that has one subfolder per class."""

    def list_class(class_name: str) -> Facts:
        place = folder / class_name
        if not place.is_dir():
            return Facts.unknown("", 0, [], (), ())
        with reading(place):
            return index.list_folder(place, f"{folder.name}/{class_name}", is_image)

    with ThreadPoolExecutor(LISTING_THREADS) as pool:
        facts_by_class = list(pool.map(list_class, classes))
    files: list[str] = []
    counts = []
    for class_name, facts in zip(classes, facts_by_class, strict=True):
        place = folder / class_name
        if not facts.names:
            problem = f"class {class_name!r} has no {title} images"
            raise UserError(
                problem, f"put {', '.join(SUFFIXES)} files in {place}, or remove the class"
            )
        files += [f"{place}/{name}" for name in facts.names]
        counts.append(len(facts.names))
    labels = np.repeat(np.arange(len(classes)), counts)
    return Part(title, files, labels, files.__getitem__, Facts.join(facts_by_class))


def list_flat(
    folder: Path, classes: Sequence[str], class_of_image: dict[str, str], index: Index
) -> Part:
    """The test images of `classes` in one flat folder."""
    with reading(folder):
        facts = index.list_folder(folder, folder.name, is_image)
    position = {name: label for label, name in enumerate(classes)}
    labels = np.empty(len(facts.names), dtype=np.int64)
    for number, name in enumerate(facts.names):
        stem = Path(name).stem
        if stem not in class_of_image:
            problem = f"the list of classes does not name {folder / name}"
            raise UserError(problem, "add it to the list, or remove the image")
        labels[number] = position.get(class_of_image[stem], -1)
    files = [f"{folder}/{name}" for name in facts.names]
    chosen = np.flatnonzero(labels >= 0)
    return Part("test", files, labels, files.__getitem__, facts, chosen)
