"""Where an encoded image is: bytes at hand, a file, or a row of a Parquet file, read when it is needed."""

import threading
from collections import OrderedDict
from typing import Any, NamedTuple

KEPT_BYTES = 2**27  # of row groups already read, in each process


class Row(NamedTuple):
    """An image in a Parquet file. Rows are read a row group at a time, as the format wants it."""

    path: str
    column: str
    group: int
    row: int  # in its group
    first: int  # the group's first row in the file


File = bytes | str | Row


def read(file: File) -> bytes:
    """The encoded image. Raises OSError if it isn't there any more."""
    if isinstance(file, bytes):
        return file
    if isinstance(file, Row):
        return _groups.read(file)
    with open(file, "rb", buffering=0) as opened:  # twice as fast as with a buffer
        return opened.readall()


def name_of(file: File) -> str:
    """What an error calls an image."""
    if isinstance(file, Row):
        return f"row {file.first + file.row} of {file.path}"
    return "an image in the memory" if isinstance(file, bytes) else file


def image_bytes(cell: Any) -> bytes:
    """The image in a cell: bytes, or Hugging Face's struct of bytes and a path; nothing if it is empty."""
    content: bytes | None = cell["bytes"] if isinstance(cell, dict) else cell
    return content or b""


class _RowGroups:
    """The row groups read last, within a bound."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str, int], Any] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, row: Row) -> bytes:
        with self._lock:
            key = row[:3]
            if key in self._kept:
                self._kept.move_to_end(key)
            else:
                self._kept[key] = _read_group(*key)
                while len(self._kept) > 1 and sum(one.nbytes for one in self._kept.values()) > KEPT_BYTES:
                    self._kept.popitem(last=False)
            return image_bytes(self._kept[key][row.row].as_py())


def _read_group(path: str, column: str, group: int) -> Any:
    import pyarrow.parquet as pq

    # In plain reads, because what memory-mapped and pre-buffered reads keep is not bounded.
    with pq.ParquetFile(path, memory_map=False, pre_buffer=False) as file:
        return file.read_row_group(group, columns=[column], use_threads=False)[column].combine_chunks()


_groups = _RowGroups()
