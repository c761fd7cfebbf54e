"""Images to learn from, whatever they come from: `open_dataset` gives them all one shape."""

from dataclasses import replace
from pathlib import Path

from bic.data.arrays import open_npz, resized
from bic.data.choose import SIZES, Wanted
from bic.data.cifar import find_cifar, open_cifar
from bic.data.decode import View
from bic.data.digits import open_digits
from bic.data.download import data_home
from bic.data.encoded import Reader
from bic.data.folder import open_folder
from bic.data.images import Dataset, ImageSet, Indices, Labels, array_set, join, reading
from bic.data.parquet import find_shards, open_parquet
from bic.errors import UserError, unknown
from bic.progress import Progress

__all__ = ["Dataset", "ImageSet", "Indices", "Labels", "View", "array_set", "data_home", "join", "open_dataset"]


def open_dataset(
    name_or_path: str,
    path: Path | None = None,
    *,
    image_size: int | None = None,
    resize: int | None = None,
    label: str | None = None,
    classes: tuple[str, ...] | None = None,
    skip_bad: bool = False,
    progress: Progress | None = None,
    keep_files: bool = False,
) -> Dataset:
    """Open a data set by its name (`digits`, `cifar100`, `imagenet100` …) or its path; `path` is where a name is.

    `image_size`: the side all images are brought to, the shorter side being scaled to `resize` first and the middle
    kept; by default arrays and small square images in Parquet keep their size, and all others get 64. `label`: the
    label column, for Parquet and CIFAR-100. `classes`: the only ones to take, in the data's own order. `skip_bad`:
    leave out images that can't be read. `keep_files`: decode images only when taken. Raises UserError for data that
    can't be found or used.
    """
    progress = progress or Progress("quiet")
    wanted, choices = Wanted(name_or_path, classes), {"skip_bad": skip_bad, "keep_files": keep_files}
    reader = Reader(image_size=image_size, resize=resize, progress=progress, cache=data_home(), **choices)
    if path is not None:
        dataset = open_source(path.expanduser(), name_or_path, label, wanted, reader)
    elif name_or_path == "digits":
        refuse_label(label, name_or_path)
        dataset = open_digits()
    elif name_or_path == "cifar100":
        if (found := find_cifar(data_home())) is None:
            raise UserError(f"cifar100 is not in {data_home()}; run `bic data get cifar100` or pass --data PATH")
        dataset = open_cifar(found, name_or_path, label)
    elif name_or_path in SIZES:
        raise UserError(f"{name_or_path} must be fetched from its owners; then pass --data PATH")
    elif name_or_path == "celeb10000":
        raise UserError("celeb10000 is no longer distributed; pass other data of 10,000 classes by --data PATH")
    else:
        source = Path(name_or_path).expanduser()
        dataset = open_source(source, source.resolve().stem, label, wanted, reader)
    dataset = wanted.in_dataset(dataset)
    if image_size is None or dataset.train.files is not None:
        return dataset
    train, test = resized(dataset.train, image_size), resized(dataset.test, image_size)
    return replace(dataset, train=train, test=test)


def open_source(path: Path, name: str, label: str | None, wanted: Wanted, reader: Reader) -> Dataset:
    """Open what is at `path`, recognised by looking at it."""
    start = b""
    if path.is_file():
        with reading(path), path.open("rb") as file:
            start = file.read(4)
    elif not path.exists():
        if str(path) == name and not path.suffix:
            raise unknown("data set", name, ("digits", "cifar100", *SIZES))
        raise UserError(f"{path} does not exist; check the path")
    if (kaggle := path / "ILSVRC" / "Data" / "CLS-LOC").is_dir():
        path = kaggle
    cifar = find_cifar(path)
    if start.startswith(b"\x1f\x8b") or cifar is not None:
        return open_cifar(cifar or path, name, label)
    if start == b"PAR1" or any(path.glob("*.parquet")) or find_shards(path, "train"):
        return open_parquet(path, name, label, wanted, reader)
    refuse_label(label, path)
    if start.startswith(b"PK"):
        return open_npz(path, name)
    if (path / "train").is_dir():
        return open_folder(path, name, wanted, reader)
    known = "an .npz file, a folder with train/CLASS/ and test/CLASS/, Parquet files, or CIFAR-100's folder or archive"
    raise UserError(f"{path} is no data that we can read; pass {known}")


def refuse_label(label: str | None, source: str | Path) -> None:
    if label is not None:
        raise UserError(f"{source} has no label columns; leave out --label {label}")
