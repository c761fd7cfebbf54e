"""Parquet files in Hugging Face's layout."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from bic.data import encoded as encoded_module
from bic.data import files as files_module
from bic.data import index as index_module
from bic.data.open import open_dataset
from bic.data import parquet as parquet_module
from bic.errors import UserError

LABEL = {"label": {"_type": "ClassLabel", "names": ["ant", "bee"]}}


def png(value: int, size: tuple[int, int] = (4, 4)) -> bytes:
    out = io.BytesIO()
    Image.new("L", size, value).save(out, "PNG")
    return out.getvalue()


def structs(*images: bytes | None) -> list[dict[str, Any] | None]:
    return [{"bytes": image, "path": f"{i}.png"} for i, image in enumerate(images)]


def write(path: Path, features: Any = None, row_group_size: int = 2, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns)
    if features is not None:
        info = json.dumps({"info": {"features": features}})
        table = table.replace_schema_metadata({"huggingface": info})
    pq.write_table(table, path, row_group_size=row_group_size)


def write_pair(folder: Path, features: Any = LABEL, **columns: Any) -> str:
    columns = {"image": structs(png(1), png(2), png(3)), "label": [0, 1, 1]} | columns
    columns = {name: column for name, column in columns.items() if column is not None}
    for split in ("train", "test"):
        write(folder / f"{split}-00000-of-00001.parquet", features, **columns)
    return str(folder)


def values(images: Any) -> list[int]:
    return [int(image[0, 0, 0]) for image in images.take(images.everything)]


def test_shards_follow_each_other_and_small_images_keep_their_size(tmp_path: Path) -> None:
    folder = tmp_path / "insects"
    for shard in range(3):
        images = structs(*(png(10 * shard + i) for i in range(5)))
        labels = [shard % 2] * 5
        write(folder / f"train-{shard:05}-of-00003.parquet", LABEL, image=images, label=labels)
    write(
        folder / "test-00000-of-00001.parquet", LABEL, image=structs(png(7), png(8)), label=[1, 0]
    )
    data = open_dataset(str(folder))
    assert (data.name, data.classes, data.image_size) == ("insects", ("ant", "bee"), 4)
    assert values(data.train) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14, 20, 21, 22, 23, 24]
    assert data.train.labels.tolist() == [0] * 5 + [1] * 5 + [0] * 5
    assert (values(data.test), data.test.labels.tolist()) == ([7, 8], [1, 0])
    assert data.train.encoded(13) == png(23)


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
    write(tmp_path / train, LABEL, image=structs(png(1), png(2)), label=[0, 1])
    write(tmp_path / test, LABEL, image=structs(png(3), png(4)), label=[0, 1])
    data = open_dataset("insects", tmp_path)
    assert (data.name, values(data.train), values(data.test)) == ("insects", [1, 2], [3, 4])


def test_a_file_stands_for_its_folder(tmp_path: Path) -> None:
    write_pair(tmp_path)
    data = open_dataset("insects", tmp_path / "train-00000-of-00001.parquet")
    assert (len(data.train), len(data.test)) == (3, 3)


def test_plain_bytes_and_string_labels(tmp_path: Path) -> None:
    columns = {"image": [png(1), png(2), png(3)], "label": None, "kind": ["b", "a", "b"]}
    data = open_dataset(write_pair(tmp_path, None, **columns))
    assert data.classes == ("a", "b")
    assert data.train.labels.tolist() == [1, 0, 1]
    assert values(data.train) == [1, 2, 3]


def test_categories_are_strings(tmp_path: Path) -> None:
    kinds = pa.array(["b", "a", "b"]).dictionary_encode()
    data = open_dataset(write_pair(tmp_path, None, label=kinds))
    assert (data.classes, data.train.labels.tolist()) == (("a", "b"), [1, 0, 1])


def test_numbers_without_names_are_their_own_names_in_numeric_order(tmp_path: Path) -> None:
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
    with pytest.raises(UserError, match="choose --label from id, kind"):
        open_dataset(folder)
    with pytest.raises(
        UserError, match="has no column of integer or string labels, only image, label"
    ):
        open_dataset(write_pair(tmp_path, None, label=[0.5, 0.5, 0.5]))


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [([(8, 8)] * 3, 8), ([(64, 64)] * 3, 64), ([(8, 8), (8, 8), (9, 9)], 64), ([(80, 80)] * 3, 64),
     ([(8, 6)] * 3, 64)],
)  # fmt: skip
def test_default_size(tmp_path: Path, sizes: list[tuple[int, int]], wanted: int) -> None:
    data = open_dataset(write_pair(tmp_path, image=structs(*(png(5, size) for size in sizes))))
    assert data.image_size == wanted
    assert data.train.take(np.array([2])).shape == (1, 1, wanted, wanted)


def test_image_size_is_obeyed(tmp_path: Path) -> None:
    data = open_dataset(write_pair(tmp_path), image_size=2)
    assert data.train.take(np.array([1])).tolist() == [[[[2, 2], [2, 2]]]]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"image": structs(png(1), png(2), None)}, "it is not an image"),
        ({"image": [*structs(png(1), png(2)), None]}, "it is not an image"),
        ({"image": structs(png(1), png(2), b"junk")}, "it is not an image"),
        ({"label": [0, 1, None]}, "it has no label"),
        ({"label": [0, 1, -1]}, "it has no label"),
    ],
)
def test_a_broken_row_is_named_or_left_out(
    tmp_path: Path, columns: dict[str, Any], reason: str
) -> None:
    folder = write_pair(tmp_path, **columns)
    name = r"row 2 of .*train-00000-of-00001.parquet"
    with pytest.raises(UserError, match=rf"can't read {name} \({reason}\).*--skip-bad"):
        open_dataset(folder)
    with pytest.warns(UserWarning, match=rf"left out row 2 of .*parquet \({reason}\)"):
        data = open_dataset(folder, skip_bad=True)
    assert (data.num_skipped, values(data.train), values(data.test)) == (2, [1, 2], [1, 2])
    assert data.train.labels.tolist() == [0, 1]


def test_train_and_test_must_name_the_same_classes(tmp_path: Path) -> None:
    write_pair(tmp_path)
    other = {"label": {"_type": "ClassLabel", "names": ["bee", "ant"]}}
    path = tmp_path / "test-00000-of-00001.parquet"
    write(path, other, image=structs(png(1), png(2)), label=[0, 1])
    with pytest.raises(UserError, match="have other columns or class names"):
        open_dataset(str(tmp_path))


@pytest.mark.parametrize("metadata", ["{", "[]", '{"info": 5}'])
def test_metadata_that_is_not_hugging_faces(tmp_path: Path, metadata: str) -> None:
    path = Path(write_pair(tmp_path)) / "train-00000-of-00001.parquet"
    table = pq.read_table(path).replace_schema_metadata({"huggingface": metadata})
    pq.write_table(table, path)
    with pytest.raises(UserError, match=r"can't read .*train-00000"):
        open_dataset(str(tmp_path))


def test_labels_beyond_the_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"wrong train labels \(label 2 is not in 0\.\.1"):
        open_dataset(write_pair(tmp_path, label=[0, 1, 2]))


def test_files_that_can_not_be_used(tmp_path: Path) -> None:
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
    write(path, LABEL, image=structs(png(1), b"junk"), label=[0, 1])
    with pytest.raises(UserError, match=r"can't read row 1 of .*train-00001-of-00002.parquet"):
        open_dataset(str(tmp_path))
    write(path, LABEL, image=structs(png(1)), other=[0])
    with pytest.raises(UserError, match=r"can't read .*train-00001-of-00002.parquet .*label"):
        open_dataset(str(tmp_path))


# Read when needed


@pytest.fixture
def lazily(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As if the images were too many for memory, and with an index of however few."""
    monkeypatch.setattr(parquet_module, "ENCODED_IN_MEMORY", 0)
    monkeypatch.setattr(index_module, "FEW", 0)
    monkeypatch.setenv("BIC_DATA", str(tmp_path / "home"))


def write_shards(folder: Path) -> None:
    """Three shards of five rows in groups of two, and two test images."""
    for shard in range(3):
        images = structs(*(png(10 * shard + i) for i in range(5)))
        write(
            folder / f"train-{shard:05}-of-00003.parquet",
            LABEL,
            image=images,
            label=[0, 1, 0, 1, shard % 2],
        )
    write(
        folder / "test-00000-of-00001.parquet", LABEL, image=structs(png(7), png(8)), label=[1, 0]
    )


@pytest.mark.parametrize("keep_files", [False, True])
def test_rows_read_when_needed_are_those_in_memory(
    tmp_path: Path, keep_files: bool, request: pytest.FixtureRequest
) -> None:
    write_shards(tmp_path)
    in_memory = open_dataset(str(tmp_path))
    request.getfixturevalue("lazily")
    data = open_dataset(str(tmp_path), keep_files=keep_files)
    assert not any(isinstance(file, bytes) for file in data.train.files or ())
    assert (
        values(data.train)
        == values(in_memory.train)
        == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14, 20, 21, 22, 23, 24]
    )
    assert data.train.labels.tolist() == in_memory.train.labels.tolist()
    assert data.train.select(np.array([13, 2])).encoded(0) == png(23)


def test_rows_of_some_classes(tmp_path: Path, lazily: None) -> None:
    write_shards(tmp_path)
    data = open_dataset(str(tmp_path), classes=("bee",), keep_files=True)
    assert (data.classes, values(data.train), values(data.test)) == (
        ("bee",),
        [1, 3, 11, 13, 14, 21, 23],
        [7],
    )


def test_only_a_few_row_groups_are_kept(
    tmp_path: Path, lazily: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shards(tmp_path)
    data = open_dataset(str(tmp_path), keep_files=True)
    reads: list[Any] = []
    real = files_module._read_group
    monkeypatch.setattr(files_module, "_read_group", lambda *key: reads.append(key) or real(*key))
    monkeypatch.setattr(files_module, "_groups", files_module._RowGroups())
    size = real(*data.train.files[0][:3]).nbytes  # type: ignore[index]
    monkeypatch.setattr(
        files_module, "KEPT_BYTES", int(2.1 * size)
    )  # the third group has one row, not two
    assert values(data.train.select(np.array([0, 1, 2, 0, 3]))) == [0, 1, 2, 0, 3]
    assert len(reads) == 2  # both stay
    assert values(data.train.select(np.array([4, 0]))) == [4, 0]
    assert len(reads) == 4  # the third drove out the first
    assert len(files_module._groups._kept) == 2


def test_shards_are_not_looked_through_again(
    tmp_path: Path, lazily: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shards(tmp_path)
    for path in tmp_path.glob("*.parquet"):
        os.utime(path, ns=(10**18, 10**18))
    looked: list[Any] = []
    real = encoded_module.read
    monkeypatch.setattr(encoded_module, "read", lambda file: looked.append(file) or real(file))
    first = open_dataset(str(tmp_path), keep_files=True)
    assert len(looked) == 17
    again = open_dataset(str(tmp_path), keep_files=True)
    assert len(looked) == 17
    assert first.fingerprint == again.fingerprint
    assert first.train.preprocessing == again.train.preprocessing
    write(
        tmp_path / "train-00001-of-00003.parquet",
        LABEL,
        image=structs(png(1, (5, 4)), png(2)),
        label=[0, 1],
    )
    changed = open_dataset(str(tmp_path), keep_files=True)
    assert len(looked) == 19
    assert changed.fingerprint != first.fingerprint


def test_a_row_that_turns_out_broken_is_named(tmp_path: Path, lazily: None) -> None:
    write_shards(tmp_path)
    path = tmp_path / "train-00001-of-00003.parquet"
    images = structs(*(png(i) for i in range(3)), png(9, (200, 200))[:-60])
    write(path, LABEL, image=images, label=[0, 1, 0, 1])
    data = open_dataset(str(tmp_path), keep_files=True)
    with pytest.raises(
        UserError, match=r"can't read row 3 of .*train-00001-of-00003.parquet \(.*truncated"
    ):
        data.train.take(data.train.everything)


def test_row_groups_too_large_to_be_read_whole_are_refused(
    tmp_path: Path, lazily: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shards(tmp_path)
    monkeypatch.setattr(parquet_module, "GROUP_BYTES", 10)
    with pytest.raises(
        UserError, match=r"train-00000-of-00003.parquet has row groups of .*row_group_size=100"
    ):
        open_dataset(str(tmp_path))


def test_a_test_split_without_labels_gives_way_to_validation(tmp_path: Path) -> None:
    write_pair(tmp_path)
    write(
        tmp_path / "test-00000-of-00001.parquet",
        LABEL,
        image=structs(png(8), png(9)),
        label=[-1, -1],
    )
    with pytest.raises(
        UserError, match=r"row 0 of .*test-00000-of-00001.parquet \(it has no label\)"
    ):
        open_dataset(str(tmp_path))
    write(
        tmp_path / "validation-00000-of-00001.parquet",
        LABEL,
        image=structs(png(5), png(6)),
        label=[1, 0],
    )
    data = open_dataset(str(tmp_path))
    assert (values(data.test), data.test.labels.tolist()) == ([5, 6], [1, 0])
