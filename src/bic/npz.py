"""Arrays in .npz files that others made. What they claim is checked before they are unpacked."""

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from bic.foreign_files import open_regular_file, refuse_unpacking

NUMBERS_AND_TEXT = "biufcUS"  # the kinds of arrays that are read
MAX_ITEM_BYTES = 2**16  # of one text
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class Header(NamedTuple):
    """What an array claims to be."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def stand_in(self) -> npt.NDArray[Any]:
        """An array of this type and shape that takes no memory."""
        return np.broadcast_to(np.zeros((), self.dtype), self.shape)


class NpzFile:
    """An open .npz file: the headers of its arrays, and the arrays."""

    def __init__(self, path: Path | str, file: BinaryIO) -> None:
        self.path = path
        self.num_bytes = file.seek(0, 2)
        self._archive = zipfile.ZipFile(file)
        self.headers: dict[str, Header] = {}
        for member in self._archive.infolist():
            if member.filename.endswith(".npy"):
                self.headers[member.filename.removesuffix(".npy")] = self._header(member)

    def _header(self, member: zipfile.ZipInfo) -> Header:
        if member.compress_type not in COMPRESSIONS:
            raise ValueError(f"{member.filename} is packed in an unusual way")
        with self._archive.open(member) as stream:
            version = np.lib.format.read_magic(stream)
            if version != (1, 0):  # others are for headers of up to 4 GB, which are read whole
                raise ValueError(f"{member.filename} has an unusual version, {version}")
            shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
            header = Header(dtype, shape)
            if dtype.kind not in NUMBERS_AND_TEXT or dtype.itemsize > MAX_ITEM_BYTES:
                raise ValueError(f"{member.filename} holds {dtype}, not numbers or text")
            if min(shape, default=0) < 0 or stream.tell() + header.num_bytes != member.file_size:
                raise ValueError(f"{member.filename} does not hold the {list(shape)} it claims")
        return header

    def refuse_size(self, extra_bytes: int = 0) -> None:
        """Raise UserError if all arrays and `extra_bytes` would take too much memory."""
        num_bytes = sum(header.num_bytes for header in self.headers.values())
        refuse_unpacking(self.path, self.num_bytes, num_bytes + extra_bytes)

    def read(self, name: str) -> npt.NDArray[Any]:
        with self._archive.open(f"{name}.npy") as stream:
            array: npt.NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
            stream.read(1)  # at the end, zipfile compares the checksum
        return array


@contextmanager
def open_npz_file(path: Path | str) -> Iterator[NpzFile]:
    """An .npz file of numbers and text. A file that is none may raise almost anything."""
    with open_regular_file(path) as file:
        yield NpzFile(path, file)


def read_npz(path: Path | str, names: tuple[str, ...]) -> dict[str, npt.NDArray[Any]]:
    """The named arrays. Raises KeyError if one is missing."""
    with open_npz_file(path) as file:
        file.refuse_size()
        return {name: file.read(name) for name in names}
