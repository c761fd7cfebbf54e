"""Images to learn from, whatever they come from: `open_dataset` gives them all one shape."""

from __future__ import annotations

from pathlib import Path

from bic.data.arrays import open_npz, resized
from bic.data.cifar import find_cifar, open_cifar
from bic.data.digits import open_digits
from bic.data.download import data_home
from bic.data.encoded import Reading
from bic.data.folder import open_folder
from bic.data.images import Dataset, ImageSet, Indices, Labels, View, array_set, encode, join
from bic.data.parquet import has_parquet, open_parquet
from bic.errors import UserError, unknown
from bic.progress import Progress

__all__ = [
    "Dataset",
    "ImageSet",
    "Indices",
    "Labels",
    "View",
    "array_set",
    "data_home",
    "encode",
    "join",
    "open_dataset",
]

NAMES = ("digits", "cifar100")


def open_dataset(
    name_or_path: str,
    path: Path | None = None,
    *,
    image_size: int | None = None,
    resize: int | None = None,
    label: str | None = None,
    skip_bad: bool = False,
    progress: Progress | None = None,
    keep_files: bool = False,
) -> Dataset:
    """Open a data set by its name (`digits`, `cifar100`) or its path; `path` is where a name is.

    `image_size`: the side all images are brought to, the shorter side being scaled to `resize`
    first (`image_size`, if None) and the middle kept. By default arrays and small square images
    in Parquet keep their size, and all others get 64.
    `label`: the label column, for Parquet and CIFAR-100. `skip_bad`: leave out images that can't
    be read. `keep_files`: decode images only when they are taken.

    Raises UserError for data that can't be found or used.

    >>> open_dataset("digits").train.take([0, 1]).shape
    torch.Size([2, 1, 8, 8])
    """
    reading = Reading(
        image_size=image_size,
        resize=resize,
        skip_bad=skip_bad,
        keep_files=keep_files,
        progress=progress or Progress("quiet"),
    )
    if name_or_path == "digits" and path is None:
        refuse_label(label, "digits")
        dataset = open_digits()
    elif path is not None:
        dataset = open_at(path.expanduser(), name_or_path, label, reading)
    else:
        source = find_source(name_or_path)
        name = name_or_path if name_or_path in NAMES else source.resolve().stem
        dataset = open_at(source, name, label, reading)
    in_memory = dataset.train.files is None
    return resized(dataset, image_size) if in_memory and image_size is not None else dataset


def find_source(name_or_path: str) -> Path:
    """Where a name without --data, or a path, leads."""
    if name_or_path == "cifar100":
        found = find_cifar(data_home())
        if found is None:
            raise UserError(
                f"cifar100 is not in {data_home()}; run `bic data get cifar100` or pass --data PATH"
            )
        return found
    path = Path(name_or_path).expanduser()
    if not path.exists() and path.name == name_or_path and not path.suffix:
        raise unknown("data set", name_or_path, NAMES)
    return path


def open_at(path: Path, name: str, label: str | None, reading: Reading) -> Dataset:
    """Open what is at `path`, recognised by looking at it."""
    if not path.exists():
        raise UserError(f"{path} does not exist; check the path")
    cifar = find_cifar(path) if path.is_dir() else None
    start = first_bytes(path) if path.is_file() else b""
    if start == b"PAR1" or (path.is_dir() and cifar is None and has_parquet(path)):
        return open_parquet(path, name, label, reading)
    if start.startswith(b"\x1f\x8b") or cifar is not None:
        return open_cifar(cifar or path, name, label)
    refuse_label(label, str(path))
    if start.startswith(b"PK"):
        return open_npz(path, name)
    if (path / "train").is_dir():
        return open_folder(path, name, reading)
    raise UserError(
        f"{path} is no data that we can read; pass an .npz file, a folder with train/CLASS/ and "
        "test/CLASS/, a folder of Parquet files, or CIFAR-100's folder or archive"
    )


def first_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(4)
    except OSError as problem:
        raise UserError(f"can't read {path} ({problem}); check its permissions") from problem


def refuse_label(label: str | None, source: str) -> None:
    if label is not None:
        raise UserError(f"{source} has no label columns; leave out --label {label}")
