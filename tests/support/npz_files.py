"""Files in numpy's formats that claim more than is good."""

import math
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

PIECE = 2**20  # zeros that are packed at once


def header(dtype: str, shape: object) -> bytes:
    """The start of an .npy file that claims this type and shape."""
    text = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def write_bomb(path: Path, arrays: Mapping[str, tuple[str, tuple[int, ...]]]) -> Path:
    """An .npz file of zeros, a thousand times smaller than its arrays (type, shape)."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, (dtype, shape) in arrays.items():
            start = header(dtype, shape)
            num_bytes = math.prod(shape) * np.dtype(dtype).itemsize
            member = zipfile.ZipInfo(f"{name}.npy")
            if num_bytes < PIECE:
                archive.writestr(member, start + bytes(num_bytes))
                continue
            archive.writestr(member, packed_zeros(start, num_bytes))
            member.compress_type = zipfile.ZIP_DEFLATED  # the directory is written at the end
            member.file_size = len(start) + num_bytes
    return path


def packed_zeros(start: bytes, num_bytes: int) -> bytes:
    """`start` and zeros, deflated. A piece is packed once and repeated."""
    packer = zlib.compressobj(9, wbits=-15)
    parts = [packer.compress(start) + packer.flush(zlib.Z_FULL_FLUSH)]
    piece = packer.compress(bytes(PIECE)) + packer.flush(zlib.Z_FULL_FLUSH)
    parts += [piece] * (num_bytes // PIECE)
    parts.append(packer.compress(bytes(num_bytes % PIECE)) + packer.flush())
    return b"".join(parts)
