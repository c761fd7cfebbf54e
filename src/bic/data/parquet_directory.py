"""The directory of a Parquet file: where the pages of every column are.

pyarrow has the same facts, but asking it for a column aborts the process if the directory is
damaged in certain ways. Reading the column raises an error then.
"""

from typing import Any, BinaryIO, NamedTuple

from bic.data.page_headers import Cursor, Fields

END = b"PAR1"  # of a file; four bytes with the size of the directory are before it
DAMAGED = "its directory is damaged"

# Fields of the structs of the directory, as in parquet.thrift.
ROW_GROUPS = 4  # of FileMetaData
COLUMNS = 1  # of RowGroup
METADATA = 3  # of ColumnChunk
PATH, PACKED_SIZE, DATA_PAGE, DICTIONARY_PAGE = 3, 7, 9, 11  # of ColumnMetaData


class Chunk(NamedTuple):
    """The pages of a column in one row group: where they start and end in the file."""

    path: str  # of the column, such as image.bytes
    start: int
    end: int


def column_chunks(stream: BinaryIO, stored: int) -> list[list[Chunk]]:
    """The chunks of every row group of a file with `stored` bytes.

    Raises ValueError for a directory that is damaged or points outside of the file.
    """
    stream.seek(max(0, stored - 8))
    ending = stream.read(8)
    size = int.from_bytes(ending[:4], "little")
    if ending[4:] != END or size > stored - 8:
        raise ValueError(DAMAGED)
    stream.seek(stored - 8 - size)
    try:
        directory = Cursor(stream.read(size)).struct()
        groups = []
        for group in directory[ROW_GROUPS]:
            groups.append([_chunk(column[METADATA], stored) for column in group[COLUMNS]])
    except (IndexError, KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise ValueError(DAMAGED) from error
    return groups


def _chunk(metadata: Fields, stored: int) -> Chunk:
    path = ".".join(part.decode() for part in metadata[PATH])
    start = _number(metadata[DATA_PAGE])
    if DICTIONARY_PAGE in metadata:
        start = min(start, _number(metadata[DICTIONARY_PAGE]))
    end = start + _number(metadata[PACKED_SIZE])
    if not 0 <= start <= end <= stored:
        raise ValueError("its directory points outside of the file")
    return Chunk(path, start, end)


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError
    return value
