"""The headers of a Parquet file's pages: how large each page becomes when it is unpacked.

They are written in Thrift's compact protocol. The fields that matter are 2, the size of the
unpacked page, and 3, its size in the file.
"""

from typing import Any, BinaryIO, NamedTuple

WINDOW = 2**16  # bytes that almost every header fits into
MAX_HEADER = 2**24  # as in pyarrow
MAX_DEPTH = 16

# Thrift's compact types.
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
LONG_LIST = 15  # in place of the number of elements: the number follows

Fields = dict[int, Any]  # of a struct, by their numbers


class PageSizes(NamedTuple):
    """The number of bytes of all unpacked pages, and of the largest."""

    total: int = 0
    largest: int = 0

    def joined(self, other: "PageSizes") -> "PageSizes":
        return PageSizes(self.total + other.total, max(self.largest, other.largest))


class Cursor:
    """A position in bytes of Thrift's compact protocol. Running off the end raises IndexError."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.position = 0

    def byte(self) -> int:
        value = self._content[self.position]
        self.position += 1
        return value

    def varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("it has a number that does not end")

    def signed(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def binary(self, count: int) -> bytes:
        start = self.position
        self.position += count
        if self.position > len(self._content):
            raise IndexError
        return self._content[start : self.position]

    def struct(self, *, depth: int = 0) -> Fields:
        """The values of a struct by the numbers of its fields."""
        if depth > MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        values: Fields = {}
        field = 0
        while kind_and_step := self.byte():
            step = kind_and_step >> 4
            kind = kind_and_step & 0x0F
            field = field + step if step else self.signed()
            if kind in (TRUE, FALSE):  # a field's type is its value
                values[field] = kind == TRUE
            else:
                values[field] = self._value(kind, depth)
        return values

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (TRUE, FALSE, BYTE):
            return self.byte()
        if kind in (I16, I32, I64):
            return self.signed()
        if kind == DOUBLE:
            return self.binary(8)
        if kind == BINARY:
            return self.binary(self.varint())
        if kind in (LIST, SET):
            return self._list(depth)
        if kind == STRUCT:
            return self.struct(depth=depth + 1)
        raise ValueError("it has a field of an unknown type")

    def _list(self, depth: int) -> list[Any]:
        if depth > MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        count_and_kind = self.byte()
        count = count_and_kind >> 4
        if count == LONG_LIST:
            count = self.varint()
        values = []
        for _ in range(count):  # each takes a byte at least, so that a wrong count ends early
            values.append(self._value(count_and_kind & 0x0F, depth + 1))
        return values


def page_sizes(stream: BinaryIO, start: int, end: int) -> PageSizes:
    """The sizes of the pages between two positions in a file. Raises ValueError for damage."""
    sizes = PageSizes()
    while start < end:
        header, unpacked, packed = _header(stream, start)
        if unpacked < 0 or packed < 0:
            raise ValueError("a page has a negative size")
        sizes = sizes.joined(PageSizes(unpacked, unpacked))
        start += header + packed
    return sizes


def _header(stream: BinaryIO, start: int) -> tuple[int, int, int]:
    """The length of the header at a position, and the sizes of its page."""
    for window in (WINDOW, MAX_HEADER):
        stream.seek(start)
        header = Cursor(stream.read(window))
        try:
            fields = header.struct()
        except IndexError:
            continue
        unpacked = fields.get(2)
        packed = fields.get(3)
        if type(unpacked) is int and type(packed) is int:
            return header.position, unpacked, packed
        break
    raise ValueError("a page has no readable header")
