"""CIFAR-100 as its authors publish it: pickles, read without running anything in them."""

import gzip
import io
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from bic.data.images import Dataset, ImageSet, array_set, reading
from bic.errors import unknown

FOLDER = "cifar-100-python"
FILES = ("train", "test", "meta")
LABELS = ("fine_label", "coarse_label")
MAX_BYTES = 2**28  # of one file; the largest, train, has 155 MB

# Looked up by hand: importing numpy.core, which the published files name, is deprecated.
ADMITTED: dict[str, Any] = {
    "numpy.ndarray": np.ndarray,
    "numpy.dtype": np.dtype,
    "numpy.core.multiarray._reconstruct": np.zeros(0).__reduce__()[0],
    "numpy.core.multiarray.scalar": np.int64(0).__reduce__()[0],
}


class ArrayUnpickler(pickle.Unpickler):
    """Admits numpy arrays and Python's plain values; a pickle that names anything else fails."""

    def find_class(self, module: str, name: str) -> Any:
        full_name = f"{module}.{name}".replace("numpy._core.", "numpy.core.")
        if full_name not in ADMITTED:
            raise pickle.UnpicklingError(f"it holds {full_name}, which CIFAR-100 does not")
        return ADMITTED[full_name]


def find_cifar(path: Path) -> Path | None:
    """The CIFAR-100 folder or archive that `path` is or holds."""
    for folder in (path, path / FOLDER):
        if all((folder / name).is_file() for name in FILES):
            return folder
    return archive if (archive := path / f"{FOLDER}.tar.gz").is_file() else None


def open_cifar(path: Path, name: str, label: str | None) -> Dataset:
    """The 100 classes, or the 20 super-classes if `label` is coarse_label, as RGB 32 × 32."""
    label = label or LABELS[0]
    if label not in LABELS:
        raise unknown("label column", label, LABELS)
    with reading(path):
        files = {each: (path / each).read_bytes() for each in FILES} if path.is_dir() else read_archive(path)
        # Python 2 wrote the published files; its strings are latin1 to numpy and plain ASCII here.
        train, test, meta = (ArrayUnpickler(io.BytesIO(files[each]), encoding="latin1").load() for each in FILES)
        classes = tuple(map(str, meta[f"{label}_names"]))
        sets = [image_set(found["data"], found[f"{label}s"]) for found in (train, test)]
    return Dataset(name=name, classes=classes, train=sets[0], test=sets[1])


def read_archive(path: Path) -> dict[str, bytes]:
    """The files in a tar.gz, in one pass and without writing anything to disk."""
    files = {}
    with gzip.open(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            if member.size > MAX_BYTES:
                raise ValueError(f"{member.name} has {member.size:,} bytes, more than {MAX_BYTES:,}")
            name = member.name.removeprefix(f"{FOLDER}/")
            if name in FILES and (content := archive.extractfile(member)):
                files[name] = content.read()
        while stream.read(2**20):  # to the end, where gzip compares its checksum
            pass
    return files


def image_set(data: Any, labels: Any) -> ImageSet:
    labels = np.array(labels)
    if data.dtype != np.uint8 or data.shape != (len(labels), 3072) or labels.dtype.kind != "i":
        raise ValueError(f"{data.dtype} {list(data.shape)} with {labels.dtype} labels {list(labels.shape)}")
    return array_set(data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels.astype(np.int64))
