"""Columns of Parquet files that others made, read in pieces of bounded size.

The directory of a Parquet file can claim anything, and one stored value can stand for a million
rows. So the sizes of the pages that will be unpacked are read first, and what comes out is counted.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from bic.data.page_headers import PageSizes, page_sizes
from bic.data.parquet_directory import DAMAGED, column_chunks
from bic.foreign_files import open_regular_file, refuse_unpacking

ROW_BYTES = 300  # that a row takes in lists of labels, names and facts
PIECE_BYTES = 2**27  # of one piece, at most
MAX_PIECE_ROWS = 1024

Source = Path | str | bytes


def metadata_of(path: Path) -> pq.FileMetaData:
    """The directory of a file. Raises UserError if its rows alone would take too much memory."""
    with open_regular_file(path) as stream:
        stored = stream.seek(0, io.SEEK_END)
        with pq.ParquetFile(stream, memory_map=False, pre_buffer=False) as file:
            metadata = file.metadata
    refuse_unpacking(path, stored, ROW_BYTES * metadata.num_rows)
    return metadata


def column_pieces(
    source: Source, column: str, groups: Sequence[int] | None = None
) -> Iterator[pa.Array]:
    """The values of a column or of a field in it (`image.bytes`), in the order of the rows.

    `groups` are the row groups to read, by default all. Raises UserError as soon as the values take
    more memory than the file may, and ValueError for a file that is damaged.
    """
    for batch in _batches(source, [column], groups):
        yield batch.column(0)


def read_columns(
    source: Source,
    types: Mapping[str, pa.DataType],
    optional: Mapping[str, pa.DataType] | None = None,
) -> pa.Table:
    """Some columns of a file, whole, with the types that they must have.

    A file need not have the `optional` columns. Raises as `column_pieces` does, but opens the file
    only once.
    """
    optional = optional or {}
    batches = list(_batches(source, list(types), None, list(optional)))
    found = set(batches[0].schema.names) if batches else set(types)
    columns = {}
    for name, kind in (*types.items(), *optional.items()):
        if name not in found:
            continue
        columns[name] = pa.chunked_array([batch.column(name) for batch in batches], kind)
    return pa.table(columns)


def _batches(
    source: Source,
    columns: Sequence[str],
    groups: Sequence[int] | None,
    optional: Sequence[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Rows of some columns, with values in place of references to a dictionary."""
    name = "a file in memory" if isinstance(source, bytes) else source
    with _opened(source) as stream:
        stored = stream.seek(0, io.SEEK_END)
        with pq.ParquetFile(stream, memory_map=False, pre_buffer=False) as file:
            metadata = file.metadata
            _require_columns(metadata, columns)
            present = set(metadata.schema.names)
            columns = [*columns, *(name for name in optional if name in present)]
            chosen = range(metadata.num_row_groups) if groups is None else groups
            refuse_unpacking(name, stored, ROW_BYTES * metadata.num_rows)
            sizes = _page_sizes(stream, stored, metadata, columns, chosen)
            refuse_unpacking(name, stored, sizes.total)
            num_rows = max(1, min(MAX_PIECE_ROWS, PIECE_BYTES // max(1, sizes.largest)))
            num_bytes = 0
            for batch in file.iter_batches(num_rows, chosen, list(columns), use_threads=False):
                arrays = [_decoded(column) for column in batch.columns]
                num_bytes += sum(array.nbytes for array in arrays)
                refuse_unpacking(name, stored, num_bytes)
                yield pa.record_batch(arrays, names=batch.schema.names)


def _require_columns(metadata: Any, columns: Sequence[str]) -> None:
    """Raise ValueError for a column that the file does not have."""
    paths = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
    for column in columns:
        if not any(_is_below(path, column) for path in paths):
            raise ValueError(f"it has no column {column}")


def _opened(source: Source) -> BinaryIO:
    return io.BytesIO(source) if isinstance(source, bytes) else open_regular_file(source)


def _decoded(piece: pa.Array) -> pa.Array:
    """Values in place of references to a dictionary. Every row counts with its own size."""
    return piece.dictionary_decode() if pa.types.is_dictionary(piece.type) else piece


def _is_below(path: str, column: str) -> bool:
    return path == column or path.startswith(f"{column}.")


def _refuse_odd_fields(schema: str) -> None:
    """Raise ValueError for a field that is neither required, optional nor repeated.

    pyarrow would abort the process when it reads the column. `schema` has a line for each field.
    """
    for line in schema.splitlines():
        is_field = " field_id=" in line
        if is_field and not line.strip().startswith(("required ", "optional ", "repeated ")):
            raise ValueError("a field of its schema is damaged")


def _page_sizes(
    stream: BinaryIO, stored: int, metadata: Any, columns: Sequence[str], groups: Sequence[int]
) -> PageSizes:
    """The sizes of the pages of some columns in some row groups."""
    _refuse_odd_fields(str(metadata.schema))
    chunks = column_chunks(stream, stored)
    if len(chunks) != metadata.num_row_groups:
        raise ValueError(DAMAGED)
    sizes = PageSizes()
    for group in groups:
        if metadata.row_group(group).num_rows == 0:  # its pages are not read, and may be missing
            continue
        for chunk in chunks[group]:
            if any(_is_below(chunk.path, column) for column in columns):
                sizes = sizes.joined(page_sizes(stream, chunk.start, chunk.end))
    return sizes
