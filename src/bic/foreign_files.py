"""Files that others made: read without waiting, without end, and without leaving their folder.

What such a file claims is compared with what it stores before memory is taken. Imports no torch.
"""

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from bic.errors import UserError

MAX_JSON_BYTES = 2**25  # parsed, they take up to 30 times as much

# What unpacking may take: a multiple of the bytes that are stored, and this much more.
UNPACKED_PER_STORED = 8
UNPACKED_BYTES = 2**29
UNPACK_MB = "BIC_UNPACK_MB"


def read_json_file(path: Path, *, follow_links: bool = True) -> Any:
    """The content of a JSON file. Raises OSError or ValueError if it has none."""
    content = read_regular_file(path, MAX_JSON_BYTES, follow_links=follow_links)
    return parse_json(content)


def parse_json(content: bytes) -> Any:
    """JSON of at most 32 MB. Raises ValueError for anything else."""
    if len(content) > MAX_JSON_BYTES:
        raise ValueError(f"JSON of {len(content):,} bytes, more than {MAX_JSON_BYTES:,}")
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("JSON that is nested too deeply") from error


def read_regular_file(
    path: Path | str, limit: int | None = None, *, follow_links: bool = True
) -> bytes:
    """The content of a regular file of at most `limit` bytes. Never waits and never reads on.

    Raises OSError for a folder, a FIFO or a device, and for a file that is too large.
    """
    handle = _open_regular(path, follow_links=follow_links)
    try:
        size = _checked_size(handle, limit)
        content = os.read(handle, size)
        while len(content) < size:  # one call reads at most 2 GB
            more = os.read(handle, size - len(content))
            if not more:
                raise OSError(errno.EIO, "it became shorter while it was read", str(path))
            content += more
        return content
    finally:
        os.close(handle)


def open_regular_file(path: Path | str) -> BinaryIO:
    """A regular file, opened to read.

    Raises OSError for a folder, a FIFO or a device, and for a file that is mostly holes.
    """
    file = open(_open_regular(path, follow_links=True), "rb")  # noqa: SIM115
    try:
        _checked_size(file.fileno(), None)
    except OSError:
        file.close()
        raise
    return file


def check_regular_file(path: Path | str, *, follow_links: bool = True) -> os.stat_result:
    """The state of a regular file. Raises OSError for anything else."""
    state = os.stat(path, follow_symlinks=follow_links)
    refuse_other_kinds(state, path)
    return state


def refuse_other_kinds(state: os.stat_result, path: Path | str) -> None:
    """Raise OSError unless this is the state of a regular file."""
    if stat.S_ISLNK(state.st_mode):
        raise OSError(errno.ELOOP, "it is a symbolic link", str(path))
    if stat.S_ISDIR(state.st_mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(state.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def unpacked_limit(num_stored: int) -> int:
    """The bytes of memory that the content of a file of `num_stored` bytes may take.

    A file of 1 MB that unpacks to 2 GB is refused; a file of 2 GB may take as much as it needs. The
    environment variable BIC_UNPACK_MB raises the limit.
    """
    text = os.environ.get(UNPACK_MB, "0")
    if not text.isdecimal():
        raise UserError(f"{UNPACK_MB} must be a whole number, got {text!r}", "change it")
    extra = max(UNPACKED_BYTES, int(text) * 2**20)
    return UNPACKED_PER_STORED * num_stored + extra


def refuse_unpacking(path: Path | str, num_stored: int, num_unpacked: int) -> None:
    """Raise UserError if the content of a file would take more memory than it may."""
    limit = unpacked_limit(num_stored)
    if num_unpacked > limit:
        sizes = f"{num_stored:,} bytes would take {_megabytes(num_unpacked)} MB of memory"
        raise UserError(
            f"{path} is refused: its {sizes}, and only {_megabytes(limit)} are allowed",
            f"if you trust it, set the environment variable {UNPACK_MB}={_megabytes(num_unpacked)}",
        )


def _megabytes(num_bytes: int) -> int:
    return -(-num_bytes // 2**20)


def _open_regular(path: Path | str, *, follow_links: bool) -> int:
    """A descriptor of a regular file. Opening does not wait, whatever the path turns out to be."""
    check_regular_file(path, follow_links=follow_links)  # opening a device may already act on it
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
    handle = os.open(path, flags if follow_links else flags | os.O_NOFOLLOW)
    try:
        refuse_other_kinds(os.fstat(handle), path)
    except OSError:
        os.close(handle)
        raise
    return handle


def _checked_size(handle: int, limit: int | None) -> int:
    state = os.fstat(handle)
    size = state.st_size
    if limit is not None and size > limit:
        raise OSError(errno.EFBIG, f"it has {size:,} bytes, more than {limit:,}")
    # A file with holes may claim any size.
    if size > UNPACKED_BYTES and size > unpacked_limit(512 * state.st_blocks):
        raise OSError(errno.EFBIG, f"it claims {size:,} bytes and stores hardly any")
    return size
