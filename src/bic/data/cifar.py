"""CIFAR-100 as its authors publish it: pickles, read without running anything in them."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bic.data.images import Dataset, ImageSet, View
from bic.errors import UserError, unknown

FOLDER = "cifar-100-python"
ARCHIVE = "cifar-100-python.tar.gz"
FILES = ("train", "test", "meta")
LABELS = ("fine_label", "coarse_label")
MAX_BYTES = 2**28  # of one file; the largest, train, has 155 MB

# Looked up by hand: importing numpy.core, which the published files name, is deprecated.
_RECONSTRUCT = np.zeros(0).__reduce__()[0]
_SCALAR = np.int64(0).__reduce__()[0]
ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy.core.multiarray", "scalar"): _SCALAR,
    ("numpy._core.multiarray", "scalar"): _SCALAR,
}


class ArrayUnpickler(pickle.Unpickler):
    """Admits numpy arrays and Python's plain values; a pickle that names anything else fails."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ADMITTED:
            raise pickle.UnpicklingError(f"it holds {module}.{name}, which CIFAR-100 does not")
        return ADMITTED[module, name]


def find_cifar(path: Path) -> Path | None:
    """The CIFAR-100 folder or archive that `path` is or holds."""
    for folder in (path, path / FOLDER):
        if all((folder / name).is_file() for name in FILES):
            return folder
    archive = path / ARCHIVE
    return archive if archive.is_file() else None


def open_cifar(path: Path, name: str, label: str | None) -> Dataset:
    """The 100 classes, or the 20 super-classes if `label` is coarse_label, as RGB 32 × 32."""
    if label is not None and label not in LABELS:
        raise unknown("label column", label, LABELS)
    label = label or LABELS[0]
    files = read_folder(path) if path.is_dir() else read_archive(path)
    train, test, meta = (unpickle(files[each], path / each) for each in FILES)
    classes = meta.get(f"{label}_names")
    if not isinstance(classes, list) or not all(isinstance(each, str) for each in classes):
        raise UserError(f"{path / 'meta'} has no list {label}_names; download it again")
    return Dataset(
        name=name,
        classes=tuple(classes),
        train=image_set(train, label, path / "train"),
        test=image_set(test, label, path / "test"),
    )


def read_folder(path: Path) -> dict[str, bytes]:
    try:
        return {name: (path / name).read_bytes() for name in FILES}
    except OSError as problem:
        raise UserError(f"can't read {path} ({problem}); check its permissions") from problem


def read_archive(path: Path) -> dict[str, bytes]:
    """The files in a tar.gz, in one pass and without writing anything to disk."""
    files: dict[str, bytes] = {}
    try:
        with gzip.open(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                folder, _, name = member.name.rpartition("/")
                if folder != FOLDER or name not in FILES or not member.isfile():
                    continue
                if member.size > MAX_BYTES:
                    raise UserError(
                        f"{member.name} in {path} has {member.size:,} bytes, more than CIFAR-100's "
                        f"files ({MAX_BYTES:,} at most); download the archive again"
                    )
                content = archive.extractfile(member)
                assert content is not None
                files[name] = content.read()
            while stream.read(2**20):  # to the end, where gzip compares its checksum
                pass
    except (tarfile.TarError, OSError, EOFError, zlib.error) as problem:
        raise UserError(f"can't read {path} ({problem}); download it again") from problem
    missing = [name for name in FILES if name not in files]
    if missing:
        raise UserError(f"{path} has no {FOLDER}/{missing[0]}; download CIFAR-100's archive again")
    return files


def unpickle(content: bytes, path: Path) -> dict[str, Any]:
    try:
        # Python 2 wrote the published files; its strings are latin1 to numpy and plain ASCII here.
        found = ArrayUnpickler(io.BytesIO(content), encoding="latin1").load()
    except Exception as problem:  # a pickle can fail in any way
        raise UserError(f"refused to read {path} ({problem}); download it again") from problem
    if not isinstance(found, dict):
        raise UserError(f"{path} must hold a dict, got {type(found).__name__}; download it again")
    return found


def image_set(found: dict[str, Any], label: str, path: Path) -> ImageSet:
    data, labels = found.get("data"), np.array(found.get(f"{label}s"))
    if not (isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.shape[1:] == (3072,)):
        raise UserError(f"data of {path} must be uint8 [n, 3072]; download it again")
    if labels.dtype.kind != "i" or labels.shape != data.shape[:1]:
        raise UserError(f"{path} must have {len(data)} integer {label}s; download it again")
    pixels = torch.from_numpy(data.reshape(-1, 3, 32, 32))
    return ImageSet(labels=labels.astype(np.int64), view=View(channels=3, size=32), pixels=pixels)
