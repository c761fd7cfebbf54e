"""Files of strangers: read without waiting, without end, and only if they are files."""

import os
import time
from pathlib import Path

import pytest
from support.memory_limit import memory_limit
from support.odd_files import NOT_FILES, put

from bic import UserError
from bic.foreign_files import (
    MAX_JSON_BYTES,
    open_regular_file,
    parse_json,
    read_json_file,
    read_regular_file,
    refuse_unpacking,
    unpacked_limit,
)

REASONS = {
    "fifo": "it is not a regular file",
    "endless": "it is not a regular file",
    "folder": "Is a directory",
    "broken link": "No such file",
    "loop": "Too many levels of symbolic links",
    "hole": "it claims 1,099,511,627,776 bytes and stores hardly any",
}


@pytest.mark.parametrize("kind", NOT_FILES)
def test_only_files_are_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    put(kind, path)
    start = time.process_time()
    with memory_limit(2**27), pytest.raises(OSError, match=REASONS[kind]):
        read_regular_file(path)
    with pytest.raises(OSError, match=REASONS[kind]):
        open_regular_file(path)
    assert time.process_time() - start < 1


def test_content_limit_and_links(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    (tmp_path / "link").symlink_to("file")
    assert read_regular_file(path, 10) == read_regular_file(tmp_path / "link") == b"0123456789"
    with open_regular_file(str(path)) as file:
        assert file.read() == b"0123456789"
    with pytest.raises(OSError, match="it has 10 bytes, more than 9"):
        read_regular_file(path, 9)
    with pytest.raises(OSError, match="it is a symbolic link"):
        read_regular_file(tmp_path / "link", follow_links=False)
    path.write_bytes(b"")
    assert read_regular_file(path) == b""


def test_file_without_a_size_is_not_read_for_ever() -> None:
    """A process's page map is a regular file of size 0 that never ends."""
    assert read_regular_file("/proc/self/pagemap") == b""


def test_descriptors_are_closed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    before = os.listdir("/proc/self/fd")
    read_regular_file(tmp_path / "file")
    for limit in (3, 100):
        with pytest.raises(OSError, match=r"more than 3|Is a directory"):
            read_regular_file(tmp_path / "file" if limit == 3 else tmp_path, limit)
    assert os.listdir("/proc/self/fd") == before


def test_json_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b'{"a": [1, null]}')
    assert read_json_file(path) == {"a": [1, None]}
    path.write_bytes(b"[" * 10**6)
    with pytest.raises(ValueError, match="nested too deeply"):
        read_json_file(path)
    with path.open("wb") as file:
        file.truncate(MAX_JSON_BYTES + 1)
    with pytest.raises(OSError, match="more than 33,554,432"):
        read_json_file(path)
    with pytest.raises(ValueError, match="more than 33,554,432"):
        parse_json(bytes(MAX_JSON_BYTES + 1))


def test_unpacking_is_limited_by_what_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unpacked_limit(0) == 2**29
    assert unpacked_limit(2**30) == 8 * 2**30 + 2**29
    refuse_unpacking("x.npz", 1000, 2**29)
    with pytest.raises(UserError) as caught:
        refuse_unpacking("x.npz", 1000, 2**31)
    assert caught.value.problem == (
        "x.npz is refused: its 1,000 bytes would take 2048 MB of memory, and only 513 are allowed"
    )
    assert caught.value.remedy.endswith("set the environment variable BIC_UNPACK_MB=2048")
    monkeypatch.setenv("BIC_UNPACK_MB", "2048")
    refuse_unpacking("x.npz", 1000, 2**31)
    monkeypatch.setenv("BIC_UNPACK_MB", "2 GB")
    with pytest.raises(UserError, match="BIC_UNPACK_MB must be a whole number, got '2 GB'"):
        refuse_unpacking("x.npz", 1000, 5)
