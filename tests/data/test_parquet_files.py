"""Parquet files of strangers: little memory and one sentence, whatever they claim."""

import io
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.memory_limit import memory_limit
from support.odd_files import NOT_FILES, put
from support.pictures import plain_png

from bic import UserError
from bic.data import image_files, page_headers, parquet_files
from bic.data.image_files import Row, read
from bic.data.open import open_dataset
from bic.data.parquet_directory import column_chunks
from bic.data.parquet_files import column_pieces, metadata_of, read_columns

CODECS = ["none", "snappy", "gzip", "zstd"]


def values(source: Path | bytes, column: str) -> list[Any]:
    return [value for piece in column_pieces(source, column) for value in piece.to_pylist()]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("uses_dictionary", [False, True])
def test_columns_are_read_whole(
    tmp_path: Path, codec: str, version: str, uses_dictionary: bool
) -> None:
    path = tmp_path / "x.parquet"
    draws = np.random.default_rng(0)
    images = [draws.bytes(200) if number % 7 else None for number in range(3000)]
    names = pa.array([f"class {number % 5}" for number in range(3000)]).dictionary_encode()
    table = pa.table({"image": [{"bytes": image, "path": "x"} for image in images], "label": names})
    pq.write_table(
        table,
        path,
        row_group_size=1100,
        compression=codec,
        data_page_version=version,
        data_page_size=4000,
        use_dictionary=uses_dictionary,
    )
    assert values(path, "image.bytes") == [{"bytes": image} for image in images]
    assert values(path.read_bytes(), "label") == names.to_pylist()
    in_second = list(column_pieces(path, "label", [1]))
    assert sum(map(len, in_second)) == 1100
    with pytest.raises(ValueError, match=r"it has no column lab$"):
        list(column_pieces(path, "lab"))


def test_columns_are_read_in_the_order_and_types_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    numbers = list(range(3000))
    table = pa.table({"a": numbers, "b": ["x"] * 3000, "c": numbers})
    pq.write_table(table, path, row_group_size=700)
    types = {"c": pa.int64(), "b": pa.string()}
    assert read_columns(path, types).equals(table.select(["c", "b"]))
    with pytest.raises(ValueError, match=r"it has no column d$"):
        read_columns(path, {"a": pa.int64(), "d": pa.int64()})
    with pytest.raises(TypeError):
        read_columns(path, {"a": pa.string()})


def test_sizes_of_pages_are_those_of_the_directory(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"x": [b"a" * 5000] * 900}), path, compression="zstd")
    chunk = pq.read_metadata(path).row_group(0).column(0)
    start = min(chunk.data_page_offset, chunk.dictionary_page_offset)
    with path.open("rb") as file:
        sizes = page_headers.page_sizes(file, start, start + chunk.total_compressed_size)
    assert 0 <= chunk.total_uncompressed_size - sizes.total < 200  # which counts headers, too
    assert 5000 < sizes.largest < 5100  # the dictionary of one value


def write_shards(folder: Path, rows: pa.Table, **options: Any) -> str:
    folder.mkdir(exist_ok=True)
    for split in ("train", "test"):
        pq.write_table(rows, folder / f"{split}.parquet", **options)
    return str(folder)


def test_many_rows_in_a_small_file_are_refused(tmp_path: Path) -> None:
    """No image at all, and one label for five million rows."""
    count = 5_000_000
    label = pa.array(np.zeros(count, np.int8))
    rows = pa.table({"image": pa.nulls(count, pa.binary()), "label": label})
    folder = write_shards(tmp_path / "rows", rows)
    assert (tmp_path / "rows" / "train.parquet").stat().st_size < 100_000
    del rows, label
    with memory_limit(2**28), pytest.raises(UserError, match="would take 1431 MB of memory"):
        open_dataset(folder)


@pytest.mark.parametrize("column", ["image", "label"])
def test_one_value_that_stands_for_many_rows_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    monkeypatch.setattr("bic.foreign_files.UNPACKED_BYTES", 2**26)
    count = 500
    long = b"A" * 2**19 if column == "image" else "A" * 2**19
    rows = {"image": pa.array([b"x"] * count), "label": pa.array(["a"] * count)}
    index = pa.array(np.zeros(count, np.int32))
    rows[column] = pa.DictionaryArray.from_arrays(index, pa.array([long]))
    folder = write_shards(tmp_path / "rows", pa.table(rows), store_schema=False)
    assert (tmp_path / "rows" / "train.parquet").stat().st_size < 2**20
    with memory_limit(2**28), pytest.raises(UserError, match=r"MB of memory, and only \d\d are"):
        open_dataset(folder)


def test_page_that_unpacks_to_more_than_it_may_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bic.foreign_files.UNPACKED_BYTES", 2**20)
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"x": [bytes(2**22)]}), path, compression="zstd", use_dictionary=False)
    assert path.stat().st_size < 5000
    with pytest.raises(UserError, match="would take 5 MB of memory, and only 2 are allowed"):
        list(column_pieces(path, "x"))


def test_large_values_are_read_in_small_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "PIECE_BYTES", 2**16)
    path = tmp_path / "x.parquet"
    images = [np.random.default_rng(number).bytes(20_000) for number in range(10)]
    pq.write_table(pa.table({"x": images}), path, data_page_size=20_000)
    pieces = list(column_pieces(path, "x"))
    assert len(pieces) > 3
    assert [image for piece in pieces for image in piece.to_pylist()] == images


def test_row_group_that_is_too_large_is_refused_when_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_files, "MAX_GROUP_BYTES", 10_000)
    pq.write_table(pa.table({"x": [b"A" * 2000] * 100}), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="its row group has more than 10,000 bytes"):
        read(Row(str(tmp_path / "x.parquet"), "x", 0, 0, 0))


@pytest.mark.parametrize("kind", NOT_FILES)
def test_shard_that_is_not_a_file_is_refused(tmp_path: Path, kind: str) -> None:
    rows = pa.table({"image": [plain_png(1)], "label": [0]})
    folder = write_shards(tmp_path / "rows", rows)
    put(kind, tmp_path / "rows" / "train.parquet")
    with memory_limit(2**28), pytest.raises(UserError, match=r"can't read .*train\.parquet"):
        open_dataset(folder)
    with memory_limit(2**28), pytest.raises(OSError):  # noqa: PT011
        metadata_of(tmp_path / "rows" / "train.parquet")


HUGGING_FACE = [
    b"[]",
    b"5",
    b"{",
    b"[" * 100_000,
    b'{"info": 5}',
    b'{"info": {"features": []}}',
    b'{"info": {"features": {"label": "x"}}}',
    b'{"info": {"features": {"label": {"names": {"a": 1}}}}}',
    b'{"info": {"features": {"label": {"names": [1, 2]}}}}',
    b'{"info": {"features": {"label": {"names": "ab"}}}}',
]


@pytest.mark.parametrize("description", HUGGING_FACE)
def test_odd_descriptions_are_refused(tmp_path: Path, description: bytes) -> None:
    rows = pa.table({"image": [plain_png(1)] * 2, "label": [0, 1]})
    folder = write_shards(
        tmp_path / "rows", rows.replace_schema_metadata({"huggingface": description})
    )
    with pytest.raises(UserError, match=r"can't read .*train\.parquet"):
        open_dataset(folder)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (pa.array([2**64 - 1, 0], pa.uint64()), "labels must be whole numbers or strings"),
        (pa.array([0.5, 1.5]).dictionary_encode(), "has no column of integer or string labels"),
        (pa.array([b"a", b"b"]).dictionary_encode(), "labels must be whole numbers or strings"),
        (pa.array(["a", "\x1b[2J"]), r"class name '\\x1b\[2J' is empty or not printable"),
        (pa.array(["a", ""]), "class name '' is empty"),
        (pa.array(["a", "b" * 300]), "has 300 characters, more than 255"),
    ],
)
def test_odd_labels_are_refused(tmp_path: Path, labels: pa.Array, message: str) -> None:
    rows = pa.table({"image": [plain_png(1)] * 2, "label": labels})
    with pytest.raises(UserError, match=message):
        open_dataset(write_shards(tmp_path / "rows", rows))


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    image = pa.array([plain_png(1)])
    rows = pa.Table.from_arrays([image, image, pa.array([0])], ["image", "image", "label"])
    with pytest.raises(UserError, match="two columns named image; rename one of them"):
        open_dataset(write_shards(tmp_path / "rows", rows))


SMALL = pa.BufferOutputStream()
pq.write_table(
    pa.table({"x": [b"abc", b"defg", None] * 20}), SMALL, compression="zstd", row_group_size=20
)
CONTENT = SMALL.getvalue().to_pybytes()


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(CONTENT) - 1), st.integers(1, 255), st.booleans())
def test_damaged_file_takes_little_memory(position: int, change: int, cut: bool) -> None:
    content = bytearray(CONTENT)
    content[position] ^= change
    damaged = bytes(content[:position] if cut else content)
    path = Path(f"/tmp/bic-test-{os.getpid()}.parquet")
    path.write_bytes(damaged)
    with memory_limit(2**28):
        for source in (path, damaged):
            with suppress(ValueError, OSError, KeyError, pa.ArrowException, UserError):
                values(source, "x")
    path.unlink()


def test_every_flipped_bit_of_a_directory_is_refused_or_harmless() -> None:
    start = len(CONTENT) - 8 - int.from_bytes(CONTENT[-8:-4], "little")
    for position in range(start, len(CONTENT)):
        for bit in range(8):
            content = bytearray(CONTENT)
            content[position] ^= 1 << bit
            with suppress(ValueError):
                column_chunks(io.BytesIO(content), len(content))


def test_a_field_of_no_known_kind_is_refused_before_pyarrow_aborts() -> None:
    content = bytearray(CONTENT)
    directory = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    content[directory + 20] ^= 1  # neither required, optional nor repeated
    with pytest.raises((ValueError, UserError), match="damaged"):
        values(bytes(content), "x")


# Bytes of the directory of CONTENT, and what they become. For each, pyarrow aborts the process when
# it is asked for the column: another type, a required field, and histograms of another length.
ABORTING = [
    *[(18, value) for value in (0x08, 0x0A, 0x04, 0x06, 0x00, 0x02)],
    *[(19, value) for value in (0x24, 0x26, 0x23, 0x29, 0x2A)],
    (20, 0x00),
    *[(93, value) for value in (0x39, 0x29)],
    *[(place, 0x40 + value) for place in (96, 184, 273) for value in range(8)],
    *[(269, value) for value in (0x01, 0x02)],
]


@pytest.mark.parametrize(("place", "value"), ABORTING)
def test_damaged_directory_does_not_abort(place: int, value: int) -> None:
    content = bytearray(CONTENT)
    content[len(content) - 8 - int.from_bytes(content[-8:-4], "little") + place] = value
    with suppress(ValueError, OSError, pa.ArrowException, UserError):
        values(bytes(content), "x")


NESTED = pa.table(
    {
        "image": [{"bytes": b"a" * 50, "path": "x"}, {"bytes": None, "path": "y"}] * 30,
        "words": [["a", "b"], []] * 30,
        "label": [3, 4] * 30,
    }
)


@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}, {"compression": "none"}])
def test_the_directory_is_read_as_pyarrow_reads_it(options: dict[str, Any]) -> None:
    out = io.BytesIO()
    pq.write_table(NESTED, out, row_group_size=25, **options)
    metadata = pq.ParquetFile(out).metadata
    expected = []
    for group in range(metadata.num_row_groups):
        found = [metadata.row_group(group).column(number) for number in range(4)]
        starts = [chunk.dictionary_page_offset or chunk.data_page_offset for chunk in found]
        sizes = [chunk.total_compressed_size for chunk in found]
        paths = [chunk.path_in_schema for chunk in found]
        ends = [start + size for start, size in zip(starts, sizes, strict=True)]
        expected.append(list(zip(paths, starts, ends, strict=True)))
    assert column_chunks(out, len(out.getvalue())) == expected
    assert len(expected) == 3


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"\0" * 20, b"\xff\xff\xff\xffPAR1", b"\x19" * 90 + b"Z\0\0\0PAR1"]
)
def test_what_is_no_directory_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"damaged|nested too deeply"):
        column_chunks(io.BytesIO(content), len(content))
