"""What is left on disk: written whole or not at all, checksummed, never pickled."""

import errno
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import safetensors
import safetensors.torch

from bic.distributed import world
from bic.errors import UserError
from bic.train import Tensors

# What goes into a file: bytes, or for what is too large to hold twice a function that writes it to a path.
Content = bytes | Callable[[Path], None]

CHECKSUMS = "checksums.json"
TEMPORARY = ".writing-"


def write_file(path: Path, content: bytes) -> None:
    """Replace a file in one instant: after a crash it is the old one or the new one.

    Of several processes that share a run only the first writes, here and below.
    """
    if not world().first:
        return
    with _written_whole(path) as temporary:
        _write_synced(temporary, content)


def write_folder(path: Path, files: Mapping[str, Content]) -> None:
    """Make a folder appear in one instant, with a checksum of every file in it."""
    if not world().first:
        return
    with _written_whole(path) as temporary:
        temporary.mkdir()
        sums = {name: _write_synced(temporary / name, content) for name, content in files.items()}
        _write_synced(temporary / CHECKSUMS, to_json(sums))
        _sync(temporary)


def read_folder(path: Path) -> dict[str, bytes]:
    """All files of a folder that `write_folder` made; UserError if any has changed."""
    try:
        sums = json.loads((path / CHECKSUMS).read_bytes())
        files = {name: (path / name).read_bytes() for name in sums}
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is not whole ({error}); run again with another --out") from error
    for name, content in files.items():
        if hashlib.sha256(content).hexdigest() != sums[name]:
            raise UserError(f"{path / name} is damaged; run again with another --out")
    return files


def remove(path: Path) -> None:
    """Delete a file or folder in one instant, if it is there; a kill leaves it or nothing."""
    if path.exists() and world().first:
        doomed = path.with_name(TEMPORARY + path.name)
        os.replace(path, doomed)
        clear_unfinished(path.parent)


def clear_unfinished(folder: Path) -> None:
    """Remove what a killed process was writing or deleting."""
    for leftover in folder.glob(f"{TEMPORARY}*") if world().first else ():
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other runs out of a folder; the lock goes with the process, however it ends."""
    if not world().first:
        yield
        return
    if folder.is_file():
        raise UserError(f"{folder} is a file and not a folder; choose another --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / ".lock").open("a")
    except OSError as error:
        raise UserError(f"cannot write to {folder} ({error.strerror}); choose another --out") from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            then = "wait for it, end it, or choose another --out"
            raise UserError(f"{folder} is in use by another process; {then}") from error
        yield


def to_json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def write_tensors(tensors: Tensors, path: Path) -> None:
    """Without a copy of them. A full disk is an OSError, as elsewhere; who may read the folder may read the file."""
    try:
        safetensors.torch.save_file({name: one.detach().cpu().contiguous() for name, one in tensors.items()}, path)
    except safetensors.SafetensorError as error:
        raise OSError(errno.EIO, str(error)) from error
    path.chmod(path.parent.stat().st_mode & 0o666)


def write_table(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, compression="none")  # the images are compressed already


@contextmanager
def _written_whole(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place once all is written and synced.

    A full disk or a forbidden folder is the user's to mend; what was there before stays.
    """
    temporary = path.with_name(TEMPORARY + path.name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        os.replace(temporary, path)
        _sync(path.parent)
    except OSError as error:
        clear_unfinished(path.parent)
        then = "what was there is intact: mend that and run the same command again"
        raise UserError(f"cannot write {path} ({error.strerror}); {then}") from error


def _write_synced(path: Path, content: Content) -> str:
    """Write a file to the disk itself; its checksum."""
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        content(path)
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
