"""CIFAR-100 as its authors publish it: pickles, read without running any code in them."""

import gzip
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from bic.data.image_files import reading
from bic.data.images import Dataset, ImageSet, array_set
from bic.data.sources.pickled import load
from bic.errors import unknown
from bic.foreign_files import open_regular_file, read_regular_file

FOLDER = "cifar-100-python"
FILES = ("train", "test", "meta")
LABELS = ("fine_label", "coarse_label")
MAX_BYTES = 2**28  # of one file and of all; together they have 187 MB


def find_cifar(path: Path) -> Path | None:
    """The CIFAR-100 folder or archive at `path` or in it."""
    for folder in (path, path / FOLDER):
        if all((folder / name).is_file() for name in FILES):
            return folder
    archive = path / f"{FOLDER}.tar.gz"
    return archive if archive.is_file() else None


def open_cifar(path: Path, name: str, label: str | None) -> Dataset:
    """The 100 classes, or the 20 super-classes if `label` is coarse_label, as RGB 32 × 32."""
    label = label or LABELS[0]
    if label not in LABELS:
        raise unknown("label column", label, LABELS)
    with reading(path):
        files = read_folder(path) if path.is_dir() else read_archive(path)
        train, test, meta = (load(files[name]) for name in FILES)
        classes = class_names(meta[f"{label}_names"])
        train_images = image_set(train["data"], train[f"{label}s"])
        test_images = image_set(test["data"], test[f"{label}s"])
    return Dataset(name=name, classes=classes, train=train_images, test=test_images)


def read_folder(path: Path) -> dict[str, bytes]:
    return {name: read_regular_file(path / name, MAX_BYTES) for name in FILES}


def read_archive(path: Path) -> dict[str, bytes]:
    """The files in a tar.gz, in one pass and without writing to the disk."""
    files = {}
    with open_regular_file(path) as packed, gzip.open(packed) as unpacked:
        stream = BoundedStream(unpacked, MAX_BYTES)
        with tarfile.open(fileobj=stream, mode="r|") as archive:  # type: ignore[call-overload]
            for member in archive:
                name = member.name.removeprefix(f"{FOLDER}/")
                if member.size > MAX_BYTES:
                    raise ValueError(f"{name[:100]} has {too_large(member.size)}")
                content = archive.extractfile(member) if name in FILES else None
                if content is not None:
                    files[name] = content.read()
        while stream.read(2**20):  # gzip compares its checksum at the end
            pass
    return files


class BoundedStream:
    """A stream that can be read up to a number of bytes. Reading more raises ValueError."""

    def __init__(self, stream: gzip.GzipFile, limit: int) -> None:
        self._stream = stream
        self._num_read = 0
        self._limit = limit

    def read(self, count: int) -> bytes:
        content = self._stream.read(count)
        self._num_read += len(content)
        if self._num_read > self._limit:
            raise ValueError(f"it has {too_large(self._num_read)}")
        return content


def too_large(num_bytes: int) -> str:
    return f"{num_bytes:,} bytes, more than {MAX_BYTES:,}"


def class_names(names: Any) -> tuple[str, ...]:
    """The names of a list. Python 2 wrote them as bytes."""
    if not isinstance(names, list) or not all(isinstance(name, str | bytes) for name in names):
        raise ValueError("its class names are not a list of text")
    return tuple(name if isinstance(name, str) else name.decode("latin1") for name in names)


def image_set(data: Any, labels: Any) -> ImageSet:
    if not isinstance(data, np.ndarray) or not isinstance(labels, list | np.ndarray):
        kinds = f"{type(data).__name__} and {type(labels).__name__}"
        raise ValueError(f"its images and labels are {kinds}, not an array and a list")
    if data.dtype != np.uint8 or data.shape != (len(labels), 3072):
        images = f"{data.dtype} {list(data.shape)}"
        raise ValueError(f"its images are {images}, with {len(labels):,} labels")
    if not all(isinstance(label, int | np.integer) for label in labels):
        raise ValueError("its labels are not whole numbers")
    pixels = data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return array_set(pixels, np.array(labels, dtype=np.int64))
