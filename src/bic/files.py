"""Files and folders that are written whole or not at all, with checksums. Imports no torch."""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bic.errors import UserError

# The content of a file: bytes, or a function that writes it to a path if it is large.
Content = bytes | Callable[[Path], None]

CHECKSUMS = "checksums.json"
TEMPORARY = ".writing-"
READ_ERRORS = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
ELSEWHERE = "choose another {out}"
AGAIN = "restore it from a copy, or train again"


def write_file(path: Path, content: bytes) -> None:
    """Replace a file atomically: after a crash it is the old one or the new one."""
    with _written_whole(path) as temporary:
        _write_synced(temporary, content)


def write_folder(path: Path, contents: Mapping[str, Content]) -> None:
    """Create a folder atomically, with a checksum of every file in it."""
    with _written_whole(path) as temporary:
        temporary.mkdir()
        checksums = {}
        for name, content in contents.items():
            checksums[name] = _write_synced(temporary / name, content)
        _write_synced(temporary / CHECKSUMS, to_json(checksums))
        _sync(temporary)


def read_folder(path: Path, names: Iterable[str] | None = None) -> dict[str, bytes]:
    """The content of files in a folder that `write_folder` wrote: the named files, or all.

    Raises UserError if a file is missing or has changed.
    """
    try:
        checksums = json.loads((path / CHECKSUMS).read_bytes())
        wanted = list(checksums if names is None else names)
        expected = {name: str(checksums[name]) for name in wanted}
        if any(Path(name).name != name for name in wanted):
            raise ValueError("a file is outside the folder")
        contents = {name: (path / name).read_bytes() for name in wanted}
    except READ_ERRORS as error:
        raise UserError(f"{path} is not complete ({error})", AGAIN) from error
    for name, content in contents.items():
        if hashlib.sha256(content).hexdigest() != expected[name]:
            raise UserError(f"{path / name} is damaged", AGAIN)
    return contents


def remove(path: Path) -> None:
    """Delete a file or folder atomically, if it exists: a kill leaves all of it or nothing."""
    if path.exists():
        os.replace(path, path.with_name(TEMPORARY + path.name))
        clear_unfinished(path.parent)


def clear_unfinished(folder: Path) -> None:
    """Remove what a killed process was writing or deleting."""
    for leftover in folder.glob(f"{TEMPORARY}*"):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder. The lock ends with the process, even after a kill."""
    if folder.is_file():
        raise UserError(f"{folder} is a file and not a folder", ELSEWHERE)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / ".lock").open("a")
    except OSError as error:
        raise UserError(f"cannot write to {folder} ({error.strerror})", ELSEWHERE) from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"{folder} is in use by another process", f"wait for it, stop it, or {ELSEWHERE}"
            ) from error
        yield


def to_json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


@contextmanager
def _written_whole(path: Path) -> Iterator[Path]:
    """A temporary path next to `path`, which replaces `path` once all is written and synced.

    A full disk or a read-only folder raises UserError; what was there before does not change.
    """
    temporary = path.with_name(TEMPORARY + path.name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        os.replace(temporary, path)
        _sync(path.parent)
    except OSError as error:
        clear_unfinished(path.parent)
        reason = error.strerror or error
        raise UserError(
            f"cannot write {path} ({reason})",
            "fix this and run the same command again (existing files are intact)",
        ) from error


def _write_synced(path: Path, content: Content) -> str:
    """Write a file, sync it to disk and return its checksum."""
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
