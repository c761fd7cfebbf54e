"""Images to learn from: class folders, Parquet files and .npz files, without any test images."""

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.pictures import jpeg, picture, plain_png

from bic import Preprocessing, UserError
from bic.data.new_images import NewImages, NewImagesReader
from bic.progress import Progress


def opened(path: Path, **options: Any) -> NewImages:
    return NewImagesReader(progress=Progress("quiet"), **options).open(path)


def colours(new: NewImages) -> list[tuple[str, int]]:
    """The class and the first pixel of each image."""
    pixels = new.images.take(new.images.everything)
    values = pixels[:, 0, 0, 0].tolist()
    return [
        (new.classes[label], value) for label, value in zip(new.images.labels, values, strict=True)
    ]


def write_folder(folder: Path, classes: dict[str, list[int]]) -> Path:
    for name, values in classes.items():
        (folder / name).mkdir(parents=True)
        for number, value in enumerate(values):
            (folder / name / f"{number}.png").write_bytes(plain_png(value))
    return folder


def test_class_folders(tmp_path: Path) -> None:
    write_folder(tmp_path / "new", {"owl": [3, 4], "cat": [1, 2]})
    (tmp_path / "new" / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / "new" / ".hidden").mkdir()
    os.mkfifo(tmp_path / "new" / "cat" / "pipe.png")
    new = opened(tmp_path / "new")
    assert new.classes == ("cat", "owl")
    assert colours(new) == [("cat", 1), ("cat", 2), ("owl", 3), ("owl", 4)]
    assert new.images.preprocessing == Preprocessing(channels=1, size=64)
    assert opened(tmp_path / "new", image_size=10).images.preprocessing.size == 10


def test_a_folder_called_train_is_a_data_set_or_a_class(tmp_path: Path) -> None:
    write_folder(tmp_path / "data" / "train", {"cat": [1], "owl": [2]})
    write_folder(tmp_path / "data" / "test", {"cat": [3], "owl": [4]})
    assert colours(opened(tmp_path / "data")) == [("cat", 1), ("owl", 2)]
    write_folder(tmp_path / "vehicles", {"bus": [1], "train": [2]})
    assert opened(tmp_path / "vehicles").classes == ("bus", "train")


def test_a_known_model_decides_how_images_are_read(tmp_path: Path) -> None:
    write_folder(tmp_path / "new", {"cat": [1, 2]})
    (tmp_path / "new" / "cat" / "red.jpg").write_bytes(jpeg(picture(0, 40, 30)))
    assert opened(tmp_path / "new").images.preprocessing.channels == 3
    grey = Preprocessing(channels=1, size=12, resize=14)
    images = opened(tmp_path / "new", preprocessing=grey).images
    assert images.preprocessing == grey
    assert images.take(images.everything).shape == (3, 1, 12, 12)
    lazy = opened(tmp_path / "new", preprocessing=grey, keep_files=True).images
    assert lazy.pixels is None
    assert np.array_equal(lazy.take(lazy.everything), images.take(images.everything))


def write_parquet(path: Path, labels: list[Any], **columns: list[Any]) -> Path:
    path.parent.mkdir(exist_ok=True)
    images = [plain_png(number, (6, 6)) for number in range(len(labels))]
    pq.write_table(pa.table({"image": images, "kind": labels, **columns}), path)
    return path


def test_parquet_files(tmp_path: Path) -> None:
    write_parquet(tmp_path / "one" / "any.parquet", ["owl", "cat", "owl"])
    for path in (tmp_path / "one", tmp_path / "one" / "any.parquet"):
        new = opened(path)
        assert new.classes == ("cat", "owl")
        assert colours(new) == [("owl", 0), ("cat", 1), ("owl", 2)]
        assert new.images.preprocessing.size == 6  # small square images keep their size
    write_parquet(tmp_path / "set" / "train-0.parquet", [7, 5])
    write_parquet(tmp_path / "set" / "test-0.parquet", [7, 6, 5])
    assert colours(opened(tmp_path / "set")) == [("7", 0), ("5", 1)]
    write_parquet(tmp_path / "two.parquet", ["a", "b"], other=["c", "d"])
    with pytest.raises(UserError, match="several columns that could be labels"):
        opened(tmp_path / "two.parquet")
    assert opened(tmp_path / "two.parquet", label="other").classes == ("c", "d")
    write_parquet(tmp_path / "gap.parquet", ["a", None])
    with pytest.raises(UserError, match=r"row 1 of .*gap.parquet has no label"):
        opened(tmp_path / "gap.parquet")


def test_arrays(tmp_path: Path) -> None:
    images = np.arange(4, dtype=np.uint8)[:, None, None] * np.ones((5, 5), np.uint8)
    labels = np.array([2, 0, 2, 0])
    np.savez(tmp_path / "a.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    np.savez(tmp_path / "b.npz", x=images, y=labels, classes=np.array(["cat", "dog", "owl"]))
    assert colours(opened(tmp_path / "a.npz")) == [("2", 0), ("0", 1), ("2", 2), ("0", 3)]
    new = opened(tmp_path / "b.npz")
    assert new.classes == ("cat", "owl")  # a class without images is left out
    assert colours(new) == [("owl", 0), ("cat", 1), ("owl", 2), ("cat", 3)]
    assert opened(tmp_path / "b.npz", image_size=8).images.preprocessing.size == 8
    rgb = Preprocessing(channels=3, size=9)
    assert opened(tmp_path / "b.npz", preprocessing=rgb).images.pixels.shape == (4, 3, 9, 9)


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"x": np.zeros((2, 5, 5))}, "has no array y; add it with numpy.savez"),
        ({"y": np.zeros(2)}, "has no array x"),
        ({"x": np.zeros((2, 5, 5)), "y": np.zeros(3, int)}, "one integer or string per image"),
        ({"x": np.zeros((2, 5, 5)), "y": np.zeros(2)}, "one integer or string per image"),
        ({"x": np.zeros((2, 5)), "y": np.array([0, 4]), "classes": ["a"]}, "label 4"),
        ({"x": np.zeros((0, 5)), "y": np.zeros(0, int)}, "has no images"),
        ({"x": np.full((2, 5, 5), 300), "y": np.zeros(2, int)}, "pixels must lie in 0..255"),
    ],
)
def test_arrays_that_cannot_be_learned(tmp_path: Path, arrays: dict[str, Any], text: str) -> None:
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(UserError) as caught:
        opened(tmp_path / "bad.npz")
    assert text in str(caught.value)
    assert "UserError" not in str(caught.value)


def test_pickled_arrays_are_never_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", x=np.array([print], dtype=object), y=np.zeros(1, int))
    with pytest.raises(UserError, match=r"can't read .*bad.npz \(ValueError: x.npy holds object"):
        opened(tmp_path / "bad.npz")


def test_a_small_file_that_unpacks_to_gigabytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    header = {"descr": "|u1", "fortran_order": False, "shape": (2**21, 32, 32)}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, shape in (("x.npy", (2**21, 32, 32)), ("y.npy", (2**21,))):
            content = io.BytesIO()
            np.lib.format.write_array_header_1_0(content, {**header, "shape": shape})
            archive.writestr(name, content.getvalue())
    with pytest.raises(UserError, match="does not hold the"):
        opened(path)


@pytest.mark.filterwarnings("ignore:left out")
@pytest.mark.parametrize("preprocessing", [None, Preprocessing(channels=3, size=8)])
def test_images_none_of_which_can_be_read_are_refused(
    tmp_path: Path, preprocessing: Preprocessing | None
) -> None:
    (tmp_path / "new" / "cat").mkdir(parents=True)
    (tmp_path / "new" / "cat" / "a.png").write_bytes(b"not an image")
    with pytest.raises(UserError, match="none of the images can be read"):
        opened(tmp_path / "new", skip_bad=True, preprocessing=preprocessing)
