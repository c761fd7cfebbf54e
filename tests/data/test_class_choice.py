"""Which classes are taken, from every source; ImageNet's own names and its flat validation folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.pictures import jpeg, picture, write_folder

from bic import RunConfig, UserError
from bic.data.open import open_dataset
from bic.learn.config import checked

WNIDS = ("n01440764", "n01443537", "n01484850")


@pytest.fixture
def imagenet(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "ilsvrc", WNIDS, train=2, test=2, size=30)


def flatten(folder: Path) -> dict[str, str]:
    """Puts all validation images into one folder, under names that say nothing; their classes."""
    answers = {}
    images = sorted((folder / "val").glob("*/*"), key=lambda path: path.name[::-1])
    for number, path in enumerate(images, start=1):
        name = f"ILSVRC2012_val_{number:08}"
        answers[name] = path.parent.name
        path.rename(folder / "val" / f"{name}.JPEG")
    for name in WNIDS:
        (folder / "val" / name).rmdir()
    return answers


def labels_of(folder: Path, **options) -> dict[str, int]:
    data = open_dataset(str(folder), keep_files=True, **options)
    assert data.test.files is not None
    return {
        Path(file).stem: label
        for file, label in zip(data.test.files, data.test.labels.tolist(), strict=True)
    }


@pytest.mark.parametrize("kind", ["kaggle", "kaggle above", "text", "csv", "csv inside"])
def test_a_flat_validation_folder_and_its_list(imagenet: Path, kind: str) -> None:
    answers = flatten(imagenet)
    lines = {
        "kaggle": [
            "ImageId,PredictionString",
            *(f"{name},{wnid} 1 2 3 4 " for name, wnid in answers.items()),
        ],
        "text": [f"{name}.JPEG {wnid}" for name, wnid in answers.items()],
        "csv": ["file,class", *(f'"{name}.JPEG","{wnid}"' for name, wnid in answers.items())],
    }
    places = {
        "kaggle": imagenet / "LOC_val_solution.csv",
        "kaggle above": imagenet.parent / "LOC_val_solution.csv",
        "text": imagenet / "val.txt",
        "csv": imagenet / "labels.csv",
        "csv inside": imagenet / "val/labels.csv",
    }
    (imagenet / "readme.txt").write_text("Some other words.\n")
    (imagenet / "test").mkdir()  # of images without answers, which must not be taken for those with
    (imagenet / "test/ILSVRC2012_test_00000001.JPEG").write_bytes(b"")
    places[kind].write_text("\n".join(lines[kind.split()[0]]) + "\n")
    wanted = {name: WNIDS.index(wnid) for name, wnid in answers.items()}
    assert labels_of(imagenet) == wanted
    some = {name: label - 1 for name, label in wanted.items() if label > 0}
    assert labels_of(imagenet, classes=WNIDS[1:]) == some


def test_kaggles_own_folders(imagenet: Path, tmp_path: Path) -> None:
    answers = flatten(imagenet)
    place = tmp_path / "kaggle/ILSVRC/Data/CLS-LOC"
    place.parent.mkdir(parents=True)
    imagenet.rename(place)
    (tmp_path / "kaggle/LOC_val_solution.csv").write_text(
        "".join(f"{name},{wnid} 1\n" for name, wnid in answers.items())
    )
    assert labels_of(tmp_path / "kaggle") == {
        name: WNIDS.index(wnid) for name, wnid in answers.items()
    }


def test_lists_that_can_not_be_used(imagenet: Path) -> None:
    answers = flatten(imagenet)
    with pytest.raises(
        UserError,
        match=r"val has images in no class's folder and no list .* put .*val.txt, a file name",
    ):
        open_dataset(str(imagenet))
    listed = [f"{name} {wnid}" for name, wnid in answers.items()]
    (imagenet / "val.txt").write_text("\n".join(listed[1:]))
    with pytest.raises(UserError, match=r"does not name .*ILSVRC2012_val_00000001.JPEG; add it"):
        open_dataset(str(imagenet))
    (imagenet / "val.txt").write_text("\n".join([listed[0].split()[0] + " n99999999", *listed[1:]]))
    with pytest.raises(
        UserError, match=r"val.txt names class 'n99999999', which has no train images"
    ):
        open_dataset(str(imagenet))


def test_imagenets_names_stand_for_numbers_of_classes(imagenet: Path) -> None:
    with pytest.raises(
        UserError, match=r"imagenet100 needs 100 classes, .*ilsvrc has 3; leave out imagenet100"
    ):
        open_dataset("imagenet100", imagenet)
    with pytest.raises(
        UserError, match="imagenet1000 must be fetched from its owners; then pass --data PATH"
    ):
        open_dataset("imagenet1000")
    data = open_dataset("imagenet100", imagenet, classes=WNIDS[:2])
    assert (data.name, data.classes) == ("imagenet100", WNIDS[:2])


def test_imagenet100_is_the_first_hundred(tmp_path: Path) -> None:
    for number in range(101):
        for part in ("train", "val"):
            place = tmp_path / part / f"n{90000000 - number:08}"
            place.mkdir(parents=True)
            (place / "1.JPEG").write_bytes(jpeg(picture(number % 3, 8, 8)))
    data = open_dataset("imagenet100", tmp_path, image_size=4)
    assert data.classes == tuple(f"n{90000000 - number:08}" for number in range(100, 0, -1))
    assert data.train.labels.tolist() == list(range(100))
    with pytest.raises(UserError, match=r"imagenet1000 needs 1,000 classes, .* has 101"):
        open_dataset("imagenet1000", tmp_path)


def test_some_classes_of_arrays(tmp_path: Path) -> None:
    labels = np.array([0, 1, 2, 1])
    images = np.arange(4, dtype=np.uint8)[:, None, None] * np.ones((1, 2, 2), dtype=np.uint8)
    np.savez(
        tmp_path / "a.npz",
        x_train=images,
        y_train=labels,
        x_test=images,
        y_test=labels,
        classes=["x", "y", "z"],
    )
    data = open_dataset(str(tmp_path / "a.npz"), classes=("z", "y"))
    assert data.classes == ("y", "z")  # in the data's own order
    assert data.train.labels.tolist() == [0, 1, 0]
    assert data.train.take(data.train.everything)[:, 0, 0, 0].tolist() == [1, 2, 3]
    assert open_dataset("digits", classes=("3", "7")).classes == ("3", "7")


def test_unknown_classes_are_refused(imagenet: Path) -> None:
    with pytest.raises(
        UserError, match=r"ilsvrc has no class 'n01440765' among its 3; .*\('n01440764'\?\)"
    ):
        open_dataset(str(imagenet), classes=("n01440765",))
    with pytest.raises(UserError, match="digits has no class 'ten' among its 10; mend --classes"):
        open_dataset("digits", classes=("3", "ten"))


def test_classes_are_a_list_or_a_file_and_are_recorded(tmp_path: Path) -> None:
    listed = tmp_path / "some.txt"
    listed.write_text("tench, Tinca tinca\n\n goldfish \n")
    for given, expected in [
        ("cat,dog", ("cat", "dog")),
        (str(listed), ("tench, Tinca tinca", "goldfish")),
        (["cat"], ("cat",)),
        (None, None),
    ]:
        assert checked(RunConfig, {"dataset": "digits", "classes": given}).classes == expected
    with pytest.raises(UserError, match="classes must name each class once, got 'cat' more often"):
        checked(RunConfig, {"dataset": "digits", "classes": "cat,dog,cat"})
    with pytest.raises(UserError, match="classes must name a class at least"):
        checked(RunConfig, {"dataset": "digits", "classes": " , "})
