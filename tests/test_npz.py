"""Arrays in files of strangers: what they claim is checked before they are unpacked."""

import io
import os
import time
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.memory_limit import memory_limit
from support.npz_files import header, write_bomb

from bic import UserError
from bic.npz import open_npz_file, read_npz


def packed(path: Path, content: bytes, **options: Any) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        member = zipfile.ZipInfo("x.npy")
        member.compress_type = options.get("compress_type", zipfile.ZIP_DEFLATED)
        archive.writestr(member, content)
    return path


def test_arrays_are_read(tmp_path: Path) -> None:
    arrays = {"x": np.arange(6.0).reshape(2, 3).T, "names": np.array(["a", "bc"])}
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", **arrays)
        read = read_npz(tmp_path / "a.npz", ("x", "names"))
        for name, array in arrays.items():
            assert read[name].dtype == array.dtype
            assert read[name].tolist() == array.tolist()
    with pytest.raises(KeyError):
        read_npz(tmp_path / "a.npz", ("y",))


def test_headers_cost_nothing(tmp_path: Path) -> None:
    write_bomb(tmp_path / "a.npz", {"x": ("|u1", (2000, 1024, 1024))})
    with memory_limit(2**26), open_npz_file(tmp_path / "a.npz") as file:
        assert file.headers["x"].num_bytes == 2000 * 2**20
        assert file.headers["x"].stand_in().shape == (2000, 1024, 1024)
        assert file.num_bytes < 4 * 2**20
        with pytest.raises(UserError, match="would take 2000 MB of memory, and only"):
            file.refuse_size()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (header("|O", (20,)) + b"A" * 160, "holds object, not numbers or text"),
        (header("|V8", (2,)) + b"A" * 16, "holds .*V8, not numbers or text"),
        (header("<U999999", (1,)), "holds <U999999, not numbers or text"),
        (header("<U999999999", (1,)), "not a valid dtype"),
        (header("<f8", (10**9,)), r"does not hold the \[1000000000\] it claims"),
        (header("<f8", (-1, -1)) + bytes(8), r"does not hold the \[-1, -1\] it claims"),
        (header("<f8", (1,)) + bytes(9), "does not hold"),
        (header("<f8", "'abc'"), "shape is not valid"),
        (b"\x93NUMPY\x03\x00" + header("<f8", (1,))[8:], "unusual version"),
        (b"\x93NUMPY\x02\x00" + (2**27).to_bytes(4, "little") + bytes(2**27), "unusual version"),
        (b"", "EOF"),
        (b"PK", "EOF"),
    ],
)
def test_false_claims_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    packed(tmp_path / "a.npz", content)
    with memory_limit(2**26), pytest.raises(ValueError, match=message):
        read_npz(tmp_path / "a.npz", ("x",))


def test_unusual_compression_is_refused(tmp_path: Path) -> None:
    content = header("<f8", (1,)) + bytes(8)
    packed(tmp_path / "a.npz", content, compress_type=zipfile.ZIP_LZMA)
    with pytest.raises(ValueError, match="packed in an unusual way"):
        read_npz(tmp_path / "a.npz", ("x",))


SMALL = io.BytesIO()
np.savez_compressed(SMALL, x=np.arange(50.0), y=np.array(["ab", "c"]))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(SMALL.getvalue()) - 1), st.integers(1, 255), st.booleans())
def test_damage_is_noticed(position: int, change: int, cut: bool) -> None:
    """A changed or missing byte gives an exception or the same arrays, at once."""
    content = bytearray(SMALL.getvalue())
    content[position] ^= change
    path = Path(f"/tmp/bic-test-{os.getpid()}.npz")
    path.write_bytes(content[:position] if cut else content)
    start = time.process_time()
    read = None
    with suppress(Exception), memory_limit(2**26):
        read = read_npz(path, ("x", "y"))
    path.unlink()
    assert time.process_time() - start < 1
    if read is not None:
        assert read["x"].tolist() == list(range(50))
        assert read["y"].tolist() == ["ab", "c"]
