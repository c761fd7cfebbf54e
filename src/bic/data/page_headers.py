"""The headers of a Parquet file's pages: how large each page becomes when it is unpacked.

They are written in Thrift's compact protocol. The fields that matter are 2, the size of the
unpacked page, and 3, its size in the file; all others are skipped.
"""

from typing import BinaryIO, NamedTuple

WINDOW = 2**16  # bytes that almost every header fits into
MAX_HEADER = 2**24  # as in pyarrow
MAX_DEPTH = 8

# Thrift's compact types.
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)


class PageSizes(NamedTuple):
    """The number of bytes of all unpacked pages, and of the largest."""

    total: int = 0
    largest: int = 0

    def joined(self, other: "PageSizes") -> "PageSizes":
        return PageSizes(self.total + other.total, max(self.largest, other.largest))


class Header:
    """A cursor over the bytes of a header. Running off the end raises IndexError."""

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
        raise ValueError("a page header has a number that does not end")

    def signed(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def advance(self, count: int) -> None:
        self.position += count
        if self.position > len(self._content):
            raise IndexError

    def fields(self) -> dict[int, int]:
        """The whole numbers among the fields of a struct, by field."""
        numbers: dict[int, int] = {}
        field = 0
        while kind_and_step := self.byte():
            step = kind_and_step >> 4
            kind = kind_and_step & 0x0F
            field = field + step if step else self.signed()
            if kind in (I16, I32, I64):
                numbers[field] = self.signed()
            else:
                self.skip(kind, depth=0)
        return numbers

    def skip(self, kind: int, *, depth: int) -> None:
        """Pass over one value."""
        if depth > MAX_DEPTH:
            raise ValueError("a page header is nested too deeply")
        if kind in (TRUE, FALSE):
            return
        if kind == BYTE:
            self.advance(1)
        elif kind in (I16, I32, I64):
            self.varint()
        elif kind == DOUBLE:
            self.advance(8)
        elif kind == BINARY:
            self.advance(self.varint())
        elif kind == STRUCT:
            self._skip_struct(depth)
        else:
            raise ValueError("a page header has a field of an unknown type")

    def _skip_struct(self, depth: int) -> None:
        while kind_and_step := self.byte():
            if not kind_and_step >> 4:
                self.varint()
            self.skip(kind_and_step & 0x0F, depth=depth + 1)


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
        header = Header(stream.read(window))
        try:
            fields = header.fields()
            return header.position, fields[2], fields[3]
        except IndexError:
            continue
        except KeyError:
            break
    raise ValueError("a page has no readable header")
