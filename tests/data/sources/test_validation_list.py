"""A flat validation folder, as ImageNet has it, and the list of its classes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.pictures import write_folder

from bic.data.open import open_dataset
from bic.errors import UserError

WNIDS = ("n01440764", "n01443537", "n01484850")


@pytest.fixture
def imagenet(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "ilsvrc", WNIDS, train=2, test=2, size=30)


def flatten(folder: Path) -> dict[str, str]:
    """Move all validation images into one folder, under new names; return their classes."""
    classes = {}
    images = sorted((folder / "val").glob("*/*"), key=lambda path: path.name[::-1])
    for number, path in enumerate(images, start=1):
        name = f"ILSVRC2012_val_{number:08}"
        classes[name] = path.parent.name
        path.rename(folder / "val" / f"{name}.JPEG")
    for wnid in WNIDS:
        (folder / "val" / wnid).rmdir()
    return classes


def labels_of(folder: Path, classes: tuple[str, ...] | None = None) -> dict[str, int]:
    """The label of each test image, by its name without suffix."""
    test = open_dataset(str(folder), keep_files=True, classes=classes).test
    assert test.files is not None
    names = [Path(str(file)).stem for file in test.files]
    return dict(zip(names, test.labels.tolist(), strict=True))


@pytest.mark.parametrize(
    ("style", "place"),
    [
        ("kaggle", "LOC_val_solution.csv"),
        ("kaggle", "../LOC_val_solution.csv"),
        ("text", "val.txt"),
        ("csv", "labels.csv"),
        ("csv", "val/labels.csv"),
    ],
)
def test_a_list_gives_the_classes(imagenet: Path, style: str, place: str) -> None:
    classes = flatten(imagenet)
    lines = {
        "kaggle": ["ImageId,PredictionString"]
        + [f"{name},{wnid} 1 2 3 4 " for name, wnid in classes.items()],
        "text": [f"{name}.JPEG {wnid}" for name, wnid in classes.items()],
        "csv": ["file,class"] + [f'"{name}.JPEG","{wnid}"' for name, wnid in classes.items()],
    }
    (imagenet / place).write_text("\n".join(lines[style]) + "\n")
    # Neither another text nor test images without classes may be taken for the right ones.
    (imagenet / "readme.txt").write_text("Some other words.\n")
    (imagenet / "binary.txt").write_bytes(b"\xff\xfe\x00")
    (imagenet / "test").mkdir()
    (imagenet / "test/ILSVRC2012_test_00000001.JPEG").write_bytes(b"")
    labels = {name: WNIDS.index(wnid) for name, wnid in classes.items()}
    assert labels_of(imagenet) == labels
    last_two = {name: label - 1 for name, label in labels.items() if label > 0}
    assert labels_of(imagenet, WNIDS[1:]) == last_two


def test_the_folders_of_kaggle(imagenet: Path, tmp_path: Path) -> None:
    classes = flatten(imagenet)
    place = tmp_path / "kaggle/ILSVRC/Data/CLS-LOC"
    place.parent.mkdir(parents=True)
    imagenet.rename(place)
    lines = [f"{name},{wnid} 1\n" for name, wnid in classes.items()]
    (tmp_path / "kaggle/LOC_val_solution.csv").write_text("".join(lines))
    labels = {name: WNIDS.index(wnid) for name, wnid in classes.items()}
    assert labels_of(tmp_path / "kaggle") == labels


def test_lists_that_cannot_be_used(imagenet: Path) -> None:
    classes = flatten(imagenet)
    no_list = r"val has images outside class folders and no list .*; add .*val.txt with a file name"
    with pytest.raises(UserError, match=no_list):
        open_dataset(str(imagenet))
    lines = [f"{name} {wnid}" for name, wnid in classes.items()]
    (imagenet / "val.txt").write_text("\n".join(lines[1:]))
    with pytest.raises(UserError, match=r"does not name .*ILSVRC2012_val_00000001.JPEG; add it"):
        open_dataset(str(imagenet))
    first_name = lines[0].split()[0]
    (imagenet / "val.txt").write_text("\n".join([f"{first_name} n99999999", *lines[1:]]))
    unknown_class = "val.txt names class 'n99999999', which has no train images; add some"
    with pytest.raises(UserError, match=unknown_class):
        open_dataset(str(imagenet))
