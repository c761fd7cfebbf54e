"""Parquet files in the layout of Hugging Face."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.pictures import plain_png

from bic.data.images import ImageSet
from bic.data.open import open_dataset
from bic.errors import UserError

LABEL = {"label": {"_type": "ClassLabel", "names": ["ant", "bee"]}}


def structs(*images: bytes | None) -> list[dict[str, Any] | None]:
    return [{"bytes": image, "path": f"{number}.png"} for number, image in enumerate(images)]


def write(path: Path, features: Any = None, row_group_size: int = 2, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns)
    if features is not None:
        info = json.dumps({"info": {"features": features}})
        table = table.replace_schema_metadata({"huggingface": info})
    pq.write_table(table, path, row_group_size=row_group_size)


def write_pair(folder: Path, features: Any = LABEL, **columns: Any) -> str:
    """Write three rows to a train and a test shard. A column that is None is left out."""
    images = structs(plain_png(1), plain_png(2), plain_png(3))
    all_columns = {"image": images, "label": [0, 1, 1], **columns}
    given = {name: column for name, column in all_columns.items() if column is not None}
    for split in ("train", "test"):
        write(folder / f"{split}-00000-of-00001.parquet", features, **given)
    return str(folder)


def values(images: ImageSet) -> list[int]:
    """The first pixel of each image."""
    return images.take(images.everything)[:, 0, 0, 0].tolist()


def test_shards_are_joined_and_small_images_keep_their_size(tmp_path: Path) -> None:
    folder = tmp_path / "insects"
    for shard in range(3):
        images = structs(*(plain_png(10 * shard + i) for i in range(5)))
        labels = [shard % 2] * 5
        write(folder / f"train-{shard:05}-of-00003.parquet", LABEL, image=images, label=labels)
    test_images = structs(plain_png(7), plain_png(8))
    write(folder / "test-00000-of-00001.parquet", LABEL, image=test_images, label=[1, 0])
    data = open_dataset(str(folder))
    assert (data.name, data.classes, data.image_size) == ("insects", ("ant", "bee"), 4)
    assert values(data.train) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14, 20, 21, 22, 23, 24]
    assert data.train.labels.tolist() == [0] * 5 + [1] * 5 + [0] * 5
    assert (values(data.test), data.test.labels.tolist()) == ([7, 8], [1, 0])
    assert data.train.encoded(13) == plain_png(23)


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("data/train-0.parquet", "data/test-0.parquet"),
        ("train/0000.parquet", "test/0000.parquet"),
        ("train-0.parquet", "validation-0.parquet"),
        ("train.parquet", "val.parquet"),
    ],
)
def test_layouts(tmp_path: Path, train: str, test: str) -> None:
    write(tmp_path / train, LABEL, image=structs(plain_png(1), plain_png(2)), label=[0, 1])
    write(tmp_path / test, LABEL, image=structs(plain_png(3), plain_png(4)), label=[0, 1])
    data = open_dataset("insects", tmp_path)
    assert (data.name, values(data.train), values(data.test)) == ("insects", [1, 2], [3, 4])


def test_a_file_stands_for_its_folder(tmp_path: Path) -> None:
    write_pair(tmp_path)
    data = open_dataset("insects", tmp_path / "train-00000-of-00001.parquet")
    assert (len(data.train), len(data.test)) == (3, 3)


def test_plain_bytes_and_string_labels(tmp_path: Path) -> None:
    images = [plain_png(1), plain_png(2), plain_png(3)]
    folder = write_pair(tmp_path, None, image=images, label=None, kind=["b", "a", "b"])
    data = open_dataset(folder)
    assert data.classes == ("a", "b")
    assert data.train.labels.tolist() == [1, 0, 1]
    assert values(data.train) == [1, 2, 3]


def test_categories_are_strings(tmp_path: Path) -> None:
    kinds = pa.array(["b", "a", "b"]).dictionary_encode()
    data = open_dataset(write_pair(tmp_path, None, label=kinds))
    assert (data.classes, data.train.labels.tolist()) == (("a", "b"), [1, 0, 1])


def test_numbers_without_names_are_class_names_in_numeric_order(tmp_path: Path) -> None:
    data = open_dataset(write_pair(tmp_path, None, label=[10, 9, 10]))
    assert data.classes == ("9", "10")
    assert data.train.labels.tolist() == [1, 0, 1]


def test_the_label_column(tmp_path: Path) -> None:
    columns = {"fine_label": [1, 0, 2], "coarse_label": [0, 0, 1], "label": None}
    folder = write_pair(tmp_path, None, **columns)
    assert open_dataset(folder).train.labels.tolist() == [1, 0, 2]
    assert open_dataset(folder, label="coarse_label").train.labels.tolist() == [0, 0, 1]
    with pytest.raises(UserError, match="'coarse_lable'; did you mean 'coarse_label'"):
        open_dataset(folder, label="coarse_lable")
    folder = write_pair(tmp_path, None, id=["x", "y", "z"])
    assert open_dataset(folder).train.labels.tolist() == [0, 1, 1]
    folder = write_pair(tmp_path, None, label=None, id=[1, 2, 3], kind=["x", "y", "z"])
    with pytest.raises(UserError, match="columns that could be labels; set label to id or kind"):
        open_dataset(folder)
    folder = write_pair(tmp_path, None, label=[0.5, 0.5, 0.5])
    with pytest.raises(UserError, match="no column of integer or string labels, only image, label"):
        open_dataset(folder)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([(8, 8)] * 3, 8),
        ([(64, 64)] * 3, 64),
        ([(8, 8), (8, 8), (9, 9)], 64),
        ([(80, 80)] * 3, 64),
        ([(8, 6)] * 3, 64),
    ],
)
def test_default_size(tmp_path: Path, sizes: list[tuple[int, int]], expected: int) -> None:
    images = structs(*(plain_png(5, size) for size in sizes))
    data = open_dataset(write_pair(tmp_path, image=images))
    assert data.image_size == expected
    assert data.train.take(np.array([2])).shape == (1, 1, expected, expected)


def test_the_image_size_can_be_set(tmp_path: Path) -> None:
    data = open_dataset(write_pair(tmp_path), image_size=2)
    assert data.train.take(np.array([1])).tolist() == [[[[2, 2], [2, 2]]]]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"image": structs(plain_png(1), plain_png(2), None)}, "it is not an image"),
        ({"image": [*structs(plain_png(1), plain_png(2)), None]}, "it is not an image"),
        ({"image": structs(plain_png(1), plain_png(2), b"junk")}, "it is not an image"),
        ({"label": [0, 1, None]}, "it has no label"),
        ({"label": [0, 1, -1]}, "it has no label"),
    ],
)
def test_a_broken_row_is_named_or_left_out(
    tmp_path: Path, columns: dict[str, Any], reason: str
) -> None:
    folder = write_pair(tmp_path, **columns)
    name = r"row 2 of .*train-00000-of-00001.parquet"
    with pytest.raises(UserError, match=rf"can't read {name} \({reason}\); .*skip_bad"):
        open_dataset(folder)
    with pytest.warns(UserWarning, match=rf"left out row 2 of .*parquet \({reason}\)"):
        data = open_dataset(folder, skip_bad=True)
    assert (data.num_skipped, values(data.train), values(data.test)) == (2, [1, 2], [1, 2])
    assert data.train.labels.tolist() == [0, 1]


def test_train_and_test_must_name_the_same_classes(tmp_path: Path) -> None:
    write_pair(tmp_path)
    other = {"label": {"_type": "ClassLabel", "names": ["bee", "ant"]}}
    path = tmp_path / "test-00000-of-00001.parquet"
    write(path, other, image=structs(plain_png(1), plain_png(2)), label=[0, 1])
    with pytest.raises(UserError, match="have different columns or class names; write both files"):
        open_dataset(str(tmp_path))


@pytest.mark.parametrize("metadata", ["{", "[]", '{"info": 5}'])
def test_other_metadata_is_refused(tmp_path: Path, metadata: str) -> None:
    path = Path(write_pair(tmp_path)) / "train-00000-of-00001.parquet"
    table = pq.read_table(path).replace_schema_metadata({"huggingface": metadata})
    pq.write_table(table, path)
    with pytest.raises(UserError, match=r"can't read .*train-00000"):
        open_dataset(str(tmp_path))


def test_labels_beyond_the_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"wrong train labels \(label 2 is not in 0\.\.1"):
        open_dataset(write_pair(tmp_path, label=[0, 1, 2]))


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no column of image bytes, only image, label"):
        open_dataset(write_pair(tmp_path, None, image=["a", "b", "c"]), label="label")
    write_pair(tmp_path)
    (tmp_path / "test-00000-of-00001.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(UserError, match=r"can't read .*test-00000-of-00001.parquet"):
        open_dataset(str(tmp_path), label="label")
    (tmp_path / "test-00000-of-00001.parquet").unlink()
    with pytest.raises(UserError, match=r"has no test images; name the files test-\*.parquet"):
        open_dataset(str(tmp_path), label="label")
    (tmp_path / "train-00000-of-00001.parquet").rename(tmp_path / "0000.parquet")
    with pytest.raises(UserError, match=r"has no train images; name the files train-\*"):
        open_dataset(str(tmp_path))


def test_a_broken_row_is_found_in_its_shard(tmp_path: Path) -> None:
    write_pair(tmp_path)
    path = tmp_path / "train-00001-of-00002.parquet"
    write(path, LABEL, image=structs(plain_png(1), b"junk"), label=[0, 1])
    with pytest.raises(UserError, match=r"can't read row 1 of .*train-00001-of-00002.parquet"):
        open_dataset(str(tmp_path))
    write(path, LABEL, image=structs(plain_png(1)), other=[0])
    with pytest.raises(UserError, match=r"can't read .*train-00001-of-00002.parquet .*label"):
        open_dataset(str(tmp_path))


def test_a_test_split_without_labels_gives_way_to_validation(tmp_path: Path) -> None:
    write_pair(tmp_path)
    hidden = structs(plain_png(8), plain_png(9))
    write(tmp_path / "test-00000-of-00001.parquet", LABEL, image=hidden, label=[-1, -1])
    named = r"row 0 of .*test-00000-of-00001.parquet \(it has no label\)"
    with pytest.raises(UserError, match=named):
        open_dataset(str(tmp_path))
    labelled = structs(plain_png(5), plain_png(6))
    write(tmp_path / "validation-00000-of-00001.parquet", LABEL, image=labelled, label=[1, 0])
    data = open_dataset(str(tmp_path))
    assert (values(data.test), data.test.labels.tolist()) == ([5, 6], [1, 0])
