"""CIFAR-100 as its authors publish it: pickles, read without running any code in them."""

import gzip
import io
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from bic.data.image_files import reading
from bic.data.images import Dataset, ImageSet, array_set
from bic.errors import unknown

FOLDER = "cifar-100-python"
FILES = ("train", "test", "meta")
LABELS = ("fine_label", "coarse_label")
MAX_BYTES = 2**28  # of one file; the largest, train, has 155 MB

# Taken from objects, because importing numpy.core, which the published files name, is deprecated.
ALLOWED: dict[str, Any] = {
    "numpy.ndarray": np.ndarray,
    "numpy.dtype": np.dtype,
    "numpy.core.multiarray._reconstruct": np.zeros(0).__reduce__()[0],
    "numpy.core.multiarray.scalar": np.int64(0).__reduce__()[0],
}


class ArrayUnpickler(pickle.Unpickler):
    """Allows numpy arrays and Python's plain values. A pickle that names anything else fails."""

    def find_class(self, module: str, name: str) -> Any:
        full_name = f"{module}.{name}".replace("numpy._core.", "numpy.core.")
        if full_name not in ALLOWED:
            raise pickle.UnpicklingError(f"it holds {full_name}, which CIFAR-100 does not")
        return ALLOWED[full_name]


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
        classes = tuple(map(str, meta[f"{label}_names"]))
        train_images = image_set(train["data"], train[f"{label}s"])
        test_images = image_set(test["data"], test[f"{label}s"])
    return Dataset(name=name, classes=classes, train=train_images, test=test_images)


def read_folder(path: Path) -> dict[str, bytes]:
    return {name: (path / name).read_bytes() for name in FILES}


def read_archive(path: Path) -> dict[str, bytes]:
    """The files in a tar.gz, in one pass and without writing to the disk."""
    files = {}
    with gzip.open(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            if member.size > MAX_BYTES:
                size = f"{member.size:,} bytes, more than {MAX_BYTES:,}"
                raise ValueError(f"{member.name} has {size}")
            name = member.name.removeprefix(f"{FOLDER}/")
            content = archive.extractfile(member) if name in FILES else None
            if content is not None:
                files[name] = content.read()
        while stream.read(2**20):  # gzip compares its checksum at the end
            pass
    return files


def load(content: bytes) -> Any:
    # Python 2 wrote the published files. Its strings are latin1 for numpy and plain ASCII here.
    return ArrayUnpickler(io.BytesIO(content), encoding="latin1").load()


def image_set(data: Any, labels: Any) -> ImageSet:
    labels = np.array(labels)
    if data.dtype != np.uint8 or data.shape != (len(labels), 3072) or labels.dtype.kind != "i":
        images = f"{data.dtype} {list(data.shape)}"
        raise ValueError(f"{images} with {labels.dtype} labels {list(labels.shape)}")
    pixels = data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return array_set(pixels, labels.astype(np.int64))
