"""open_dataset: find a data set by name or path, recognise its format and open it."""

import os
from dataclasses import replace
from pathlib import Path

from bic.data.class_choice import Wanted
from bic.data.download import data_home
from bic.data.fitting import resized
from bic.data.image_files import reading
from bic.data.images import Dataset
from bic.data.reader import Reader
from bic.data.sources.arrays import open_npz
from bic.data.sources.cifar import find_cifar, open_cifar
from bic.data.sources.digits import open_digits
from bic.data.sources.folder import open_folder
from bic.data.sources.parquet import find_shards, open_parquet
from bic.errors import UserError, unknown
from bic.foreign_files import open_regular_file
from bic.progress import Progress

GZIP = b"\x1f\x8b"
ZIP = b"PK"
PARQUET = b"PAR1"

IMAGENET = ("imagenet100", "imagenet1000")


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
    """Open a data set by its name (`digits`, `cifar100`, `imagenet100` …) or its path.

    With a name, `path` is where the data is. Raises UserError for data that cannot be found or
    used.

    image_size: the side of all images. The shorter side is scaled to `resize`, by default to
        `image_size`, and the central square is cut out. By default arrays and small square images
        in Parquet files keep their size, and all others get 64.
    label: the label column, for Parquet and CIFAR-100.
    classes: the classes to use, by default all. They stay in the order of the data.
    skip_bad: leave out images that cannot be read.
    keep_files: decode images each time they are used, instead of once into memory.
    """
    wanted = Wanted(name_or_path, classes, label)
    reader = Reader(
        image_size=image_size,
        resize=resize,
        skip_bad=skip_bad,
        keep_files=keep_files,
        progress=progress or Progress("quiet"),
        cache=data_home(),
    )
    source = Path(path or name_or_path).expanduser()
    if path is not None:
        dataset = open_source(source, name_or_path, label, wanted, reader)
    elif name_or_path == "digits":
        refuse_label(label, name_or_path)
        dataset = open_digits()
    elif name_or_path == "cifar100":
        dataset = open_cifar(downloaded_cifar(), name_or_path, label)
    elif name_or_path in IMAGENET:
        problem = f"{name_or_path} must be downloaded from its owners"
        raise UserError(problem, "download it, then pass {data=PATH}")
    elif name_or_path == "celeb10000":
        problem = "celeb10000 is no longer distributed"
        raise UserError(problem, "pass other data of 10,000 classes with {data=PATH}")
    else:
        dataset = open_source(source, Path(os.path.realpath(source)).stem, label, wanted, reader)
    dataset = wanted.in_dataset(dataset, source)
    if image_size is None or dataset.train.files is not None:
        return dataset
    train = resized(dataset.train, image_size)
    test = resized(dataset.test, image_size)
    return replace(dataset, train=train, test=test)


def open_source(
    path: Path, name: str, label: str | None, wanted: Wanted, reader: Reader
) -> Dataset:
    """Open what is at `path`. Its content says what it is."""
    start = b""
    if path.is_file():
        with reading(path), open_regular_file(path) as file:
            start = file.read(4)
    elif not path.exists():
        if str(path) == name and not path.suffix:
            known = unknown("data set", name, ("digits", "cifar100", *IMAGENET))
            raise UserError(
                f"{name!r} is neither a data set that bic knows nor an existing path", known.remedy
            )
        raise UserError(f"{path} does not exist", "check the path")
    kaggle = path / "ILSVRC" / "Data" / "CLS-LOC"
    if kaggle.is_dir():
        path = kaggle
    cifar = find_cifar(path)
    if start.startswith(GZIP) or cifar is not None:
        return open_cifar(cifar or path, name, label)
    if start == PARQUET or any(path.glob("*.parquet")) or find_shards(path, "train"):
        return open_parquet(path, name, label, wanted, reader)
    refuse_label(label, path)
    if start.startswith(ZIP):
        return open_npz(path, name)
    if (path / "train").is_dir():
        return open_folder(path, name, wanted, reader)
    raise UserError(
        f"{path} is not in a format that bic can read",
        "pass an .npz file, a folder with train/CLASS/ and test/CLASS/, Parquet files, "
        "or the folder or archive of CIFAR-100",
    )


def downloaded_cifar() -> Path:
    home = data_home()
    path = find_cifar(home)
    if path is None:
        problem = f"cifar100 is not in {home}"
        raise UserError(problem, "run `bic data get cifar100`, or pass {data=PATH}")
    return path


def refuse_label(label: str | None, source: str | Path) -> None:
    if label is not None:
        raise UserError(f"{source} has no label columns", f"leave out {{label={label}}}")
