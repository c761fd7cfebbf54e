"""Images to learn from: class folders, Parquet files or an .npz file. No test images are needed."""

import io
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from bic.data.decode import FORMATS, GREY_MODES, SUFFIXES, is_image
from bic.data.decode_files import broken_image, reason_of
from bic.data.decode_pool import decode_all
from bic.data.fitting import fitted, resized
from bic.data.from_python import in_memory
from bic.data.image_files import File, name_of, read, reading
from bic.data.images import ImageSet, Labels, array_set
from bic.data.labels import number_labels
from bic.data.preprocessing import DEFAULT_SIZE, Preprocessing
from bic.data.sources.arrays import read_labelled_npz
from bic.data.sources.folder import class_folders
from bic.data.sources.parquet import (
    ENCODED_IN_MEMORY,
    find_columns,
    find_shards,
    list_rows,
    num_bytes,
    read_column,
    read_images,
)
from bic.errors import UserError
from bic.progress import Progress

ZIP = b"PK"
PARQUET = b"PAR1"
MAX_WARNINGS = 10
COLOUR = 3  # channels
PHOTO_SIDE = 96  # pixels of the shorter side of a photograph, at least


@dataclass(frozen=True, kw_only=True)
class NewImages:
    """Images of some classes. Their labels are positions in `classes`.

    `side` is the shorter side of the images as they were found: of half of them it is this or more.
    """

    images: ImageSet
    classes: tuple[str, ...]
    side: int | None = None

    @property
    def are_photographs(self) -> bool:
        """Whether the images are in colour and large enough to be photographs."""
        return self.images.preprocessing.channels == COLOUR and (self.side or 0) >= PHOTO_SIDE


@dataclass(frozen=True, kw_only=True)
class NewImagesReader:
    """How images are read: for a model with this `preprocessing`, or for a new model.

    A new model gets `image_size` (by default, arrays and small square images in Parquet files keep
    their size and all others get 64) and `resize`. `label` names the label column of Parquet files.
    `keep_files`: decode images each time they are used.
    """

    preprocessing: Preprocessing | None = None
    image_size: int | None = None
    resize: int | None = None
    label: str | None = None
    skip_bad: bool = False
    keep_files: bool = False
    progress: Progress

    def open(self, path: Path) -> NewImages:
        """The images at `path`. Raises UserError for data that cannot be found or used."""
        path = path.expanduser()
        if not path.exists():
            raise UserError(f"{path} does not exist", "check the path")
        start = b""
        if path.is_file():
            with reading(path), path.open("rb") as file:
                start = file.read(4)
        shards = [path] if start == PARQUET else _shards(path)
        if shards:
            return self._from_parquet(shards, path)
        if self.label is not None:
            raise UserError(f"{path} has no label columns", f"leave out {{label={self.label}}}")
        if start.startswith(ZIP):
            return self._from_npz(path)
        if not path.is_dir():
            raise UserError(
                f"{path} is not in a format that bic can learn from",
                "give a folder with one folder of images per class, a Parquet file or an .npz file",
            )
        return self._from_folder(path)

    def _from_folder(self, path: Path) -> NewImages:
        """The images of CLASS/*.jpg, or of train/CLASS/*.jpg if `path` is a data set."""
        train = path / "train"
        if train.is_dir() and class_folders(train):
            self.progress.say(f"learning from {train}; images outside it are not used")
            path = train
        with reading(path):
            names = sorted(class_folders(path))
        if not names:
            raise UserError(
                f"{path} has no class folders", f"put the images of each class into {path}/CLASS/"
            )
        files: list[File] = []
        labels: list[int] = []
        for label, name in enumerate(names):
            with reading(path / name):
                found = _images_in(path / name)
            if not found:
                raise _without_images(path / name)
            files += found
            labels += [label] * len(found)
        return self._from_files(files, np.array(labels, np.int64), names, own_size=False)

    def _from_parquet(self, shards: Sequence[Path], path: Path) -> NewImages:
        if path.is_dir() and find_shards(path, "train"):
            self.progress.say(f"learning from {shards[0].name} and the like in {path}")
        columns = find_columns(shards[0], self.label)
        values = read_column(shards, columns.label)
        names, labels, _ = number_labels(values, (), columns.class_names)
        lazily = self.keep_files or sum(map(num_bytes, shards)) > ENCODED_IN_MEMORY
        files = list_rows(shards, columns.image) if lazily else read_images(shards, columns)
        positions, classes = _present(labels, names, path)
        return self._from_files(files, positions, classes, own_size=True)

    def _from_npz(self, path: Path) -> NewImages:
        """The arrays x_train and y_train, or x and y; `classes` names integer labels."""
        arrays = read_labelled_npz(path, "train")
        positions, classes = _present(arrays.labels, arrays.classes, path)
        found = array_set(arrays.images, positions)
        return NewImages(images=self.fit(found), classes=classes, side=side_of(found))

    def fit(self, images: ImageSet) -> ImageSet:
        """Arrays in the form that the model takes."""
        if self.preprocessing is not None:
            return fitted(images, self.preprocessing)
        if self.image_size is None:
            return images
        return resized(images, self.image_size, self.resize)

    def _from_files(
        self, files: Sequence[File], labels: Labels, classes: Sequence[str], *, own_size: bool
    ) -> NewImages:
        if not len(files):
            raise UserError("there are no images to learn from", "add images")
        preprocessing = self.preprocessing
        side = None
        if preprocessing is None:
            preprocessing, good, side = self._measured(files, own_size=own_size)
            files = [files[index] for index in good]
            labels = labels[good]
        images = ImageSet(
            labels=labels, preprocessing=preprocessing, files=files, skip_bad=self.skip_bad
        )
        if not self.keep_files:
            images = in_memory(images, decode=decode_all)
        if not len(images):
            raise UserError("none of the images can be read", "fix some of them")
        return NewImages(images=images, classes=tuple(classes), side=side)

    def _measured(
        self, files: Sequence[File], *, own_size: bool
    ) -> tuple[Preprocessing, list[int], int]:
        """The preprocessing that suits the files, the indices of those that can be opened, and the
        median of their shorter sides."""
        modes: set[str] = set()
        sides: set[int] = set()
        shorter: list[int] = []
        good = []
        num_bad = 0
        for index, file in enumerate(files):
            try:
                with _opened(file) as image:
                    modes.add(image.mode)
                    sides.update(image.size)
                    shorter.append(min(image.size))
                good.append(index)
            except Exception as error:  # Pillow's decoders raise almost anything
                problem = f"{name_of(file)} ({reason_of(error)})"
                if not self.skip_bad:
                    raise broken_image(problem) from error
                num_bad += 1
                if num_bad <= MAX_WARNINGS:
                    warnings.warn(f"left out {problem}", stacklevel=2)
        size = self.image_size or DEFAULT_SIZE
        if self.image_size is None and own_size and len(sides) == 1:
            size = min(*sides, DEFAULT_SIZE)
        channels = 1 if modes <= GREY_MODES else 3
        side = int(np.median(shorter)) if shorter else 0
        return Preprocessing(channels=channels, size=size, resize=self.resize), good, side


def side_of(images: ImageSet) -> int | None:
    """The shorter side: of half of the images it is this or more. None for vectors.

    Files are opened, but not decoded.
    """
    if images.pixels is not None:
        return min(images.pixels.shape[2:]) if images.pixels.ndim == 4 else None
    shorter = []
    for file in images.files or ():
        with _opened(file) as image:
            shorter.append(min(image.size))
    return int(np.median(shorter)) if shorter else None


def _opened(file: File) -> Image.Image:
    source = file if isinstance(file, str) else io.BytesIO(read(file))
    return Image.open(source, formats=FORMATS)


def _present(labels: Labels, names: Sequence[str], path: Path) -> tuple[Labels, tuple[str, ...]]:
    """The classes that have images, and labels as positions in them."""
    if not len(labels):
        raise UserError(f"{path} has no images", "add images")
    present, positions = np.unique(labels, return_inverse=True)
    if present[0] < 0:
        row = int(labels.argmin())
        raise UserError(f"row {row} of {path} has no label", "remove it, or give it a label")
    if present[-1] >= len(names):
        raise UserError(f"label {present[-1]} of {path} has no class name", "add the name")
    return positions.astype(np.int64), tuple(names[label] for label in present)


def _shards(path: Path) -> list[Path]:
    """The Parquet files of a folder: those of its training images, or all."""
    if not path.is_dir():
        return []
    return find_shards(path, "train") or sorted(path.glob("*.parquet"))


def _without_images(folder: Path) -> UserError:
    problem = f"class {folder.name!r} has no images"
    if class_folders(folder):
        return UserError(f"{problem}, only folders", f"give {folder} if these are the classes")
    suffixes = ", ".join(SUFFIXES)
    return UserError(problem, f"put {suffixes} files into {folder}, or remove the folder")


def _images_in(folder: Path) -> list[str]:
    """The image files of a folder, sorted. Anything that is not a regular file is left out."""
    with os.scandir(folder) as entries:
        return sorted(entry.path for entry in entries if is_image(entry.name) and entry.is_file())
