"""Where an encoded image is: bytes in memory, a file, or a row of a Parquet file."""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bic.errors import UserError
from bic.foreign_files import read_regular_file

CACHED_BYTES = 2**27  # of row groups, in each process
MAX_GROUP_BYTES = 2**30  # of one row group


class Row(NamedTuple):
    """An image in a Parquet file. Parquet is read one row group at a time."""

    path: str
    column: str
    group: int
    row: int  # in its group
    first: int  # the group's first row in the file


File = bytes | str | Row


def read(file: File) -> bytes:
    """The encoded image. Raises OSError if the file is gone."""
    if isinstance(file, bytes):
        return file
    if isinstance(file, Row):
        return _row_groups.read(file)
    return read_regular_file(file)


def name_of(file: File) -> str:
    """What an error message calls an image."""
    if isinstance(file, Row):
        return f"row {file.first + file.row} of {file.path}"
    if isinstance(file, bytes):
        return "an image in memory"
    return file


def image_bytes(cell: Any) -> bytes:
    """The image in a Parquet cell: bytes, or Hugging Face's struct of bytes and a path.

    An empty cell gives no bytes.
    """
    content: bytes | None = cell["bytes"] if isinstance(cell, dict) else cell
    return content or b""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn any exception into a UserError that names `path`: a foreign file can fail in any way."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise UserError(f"can't read {path} ({reason})", "save or download it again") from error


class _RowGroups:
    """A cache of the row groups read last."""

    def __init__(self) -> None:
        self._groups: OrderedDict[tuple[str, str, int], Any] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, row: Row) -> bytes:
        key = row[:3]
        with self._lock:
            if key in self._groups:
                self._groups.move_to_end(key)
            else:
                self._groups[key] = _read_group(*key)
                while len(self._groups) > 1 and self._num_bytes() > CACHED_BYTES:
                    self._groups.popitem(last=False)
            return image_bytes(self._groups[key][row.row].as_py())

    def _num_bytes(self) -> int:
        return sum(group.nbytes for group in self._groups.values())


def _read_group(path: str, column: str, group: int) -> Any:
    import pyarrow as pa

    from bic.data.parquet_files import column_pieces

    pieces = []
    num_bytes = 0
    for piece in column_pieces(path, column, [group]):
        num_bytes += piece.nbytes
        if num_bytes > MAX_GROUP_BYTES:
            raise ValueError(f"its row group has more than {MAX_GROUP_BYTES:,} bytes")
        pieces.append(piece)
    return pa.concat_arrays(pieces)


_row_groups = _RowGroups()
