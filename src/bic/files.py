"""Files and folders that are written whole or not at all, with checksums. Imports no torch."""

import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bic.errors import BicError, InUseError, LostError, UserError
from bic.foreign_files import read_json_file, read_regular_file, refuse_other_kinds

# The content of a file: bytes, or a function that writes it to a path if it is large.
Content = bytes | Callable[[Path], None]

CHECKSUMS = "checksums.json"
TEMPORARY = ".writing-"
INTERRUPTIONS = (Exception, KeyboardInterrupt)
READ_ERRORS = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
ELSEWHERE = "choose another {out}"
FIX_AND_REPEAT = "fix this and run the same command again (existing files are intact)"
AGAIN = "restore it from a copy, or train again"

# The user can fix these by another path or other permissions. Others, such as a full disk, are
# failures.
USER_CAUSES = {
    errno.EACCES,
    errno.EEXIST,
    errno.EINVAL,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOLCK,
    errno.ENOTDIR,
    errno.ENOTSUP,
    errno.EPERM,
    errno.EROFS,
    errno.EXDEV,
}


def file_error(error: OSError, problem: str, remedy: str) -> BicError:
    """UserError for a path that cannot be used, LostError for a failure such as a full disk."""
    kind = UserError if error.errno in USER_CAUSES else LostError
    return kind(f"{problem} ({error.strerror or error})", remedy)


def write_file(path: Path, content: bytes) -> None:
    """Replace a file atomically: after a crash it is the old one or the new one."""
    with _written_whole(path) as temporary:
        _write_synced(temporary, content)


def write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Replace files in a folder, each of them atomically.

    All are written before the first one is synced, and the folder is synced once. With thousands of
    files this waits much less for the disk than `write_file` for each.
    """
    if not contents:
        return
    temporaries = {_temporary(folder / name): name for name in contents}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for temporary, name in temporaries.items():
            _write(temporary, contents[name])
        for temporary in temporaries:
            _sync(temporary)
        for temporary, name in temporaries.items():
            os.replace(temporary, folder / name)
        _sync(folder)
    except INTERRUPTIONS as error:
        for temporary in temporaries:
            _discard_quietly(temporary)
        if not isinstance(error, OSError):
            raise
        place = folder / min(contents) if len(contents) == 1 else folder
        raise file_error(error, f"cannot write {place}", FIX_AND_REPEAT) from error


def write_folder(path: Path, contents: Mapping[str, Content]) -> None:
    """Create a folder atomically, with a checksum of every file in it."""
    with _written_whole(path) as temporary:
        temporary.mkdir()
        checksums = {}
        for name, content in contents.items():
            checksums[name] = _write_synced(temporary / name, content)
        _write_synced(temporary / CHECKSUMS, to_json(checksums))
        _sync(temporary)


def read_folder(
    path: Path, names: Iterable[str] | None = None, *, optional: Iterable[str] = ()
) -> dict[str, bytes]:
    """The content of files in a folder that `write_folder` wrote: the named files, or all.

    `optional` names more files, which the folder may lack.
    Nothing outside the folder is read, not even through a symbolic link. Raises UserError if a file
    is missing or has changed.
    """
    contents = {}
    try:
        checksums = read_json_file(path / CHECKSUMS, follow_links=False)
        wanted = list(checksums if names is None else names)
        wanted += [name for name in optional if name in checksums and name not in wanted]
        expected = {name: str(checksums[name]) for name in wanted}
        for name in wanted:
            if Path(name).name != name:
                raise ValueError("a file is outside the folder")
            contents[name] = read_regular_file(path / name, follow_links=False)
    except READ_ERRORS as error:
        raise UserError(f"{path} is not complete ({error})", AGAIN) from error
    for name, content in contents.items():
        if hashlib.sha256(content).hexdigest() != expected[name]:
            raise UserError(f"{path / name} is damaged", AGAIN)
    return contents


def remove(path: Path) -> None:
    """Delete a file or folder atomically, if it exists: a kill leaves all of it or nothing."""
    if path.exists() or path.is_symlink():
        rename(path, path.with_name(TEMPORARY + path.name))
        clear_unfinished(path.parent)


def rename(old: Path, new: Path) -> None:
    """Give a file or folder another name, atomically."""
    try:
        os.replace(old, new)
    except OSError as error:
        raise file_error(error, f"cannot rename {old} to {new.name}", FIX_AND_REPEAT) from error


def clear_unfinished(folder: Path) -> None:
    """Remove what a killed process was writing or deleting. Only for a folder that is locked."""
    for leftover in folder.glob(f"{TEMPORARY}*"):
        _discard(leftover)


def _temporary(path: Path) -> Path:
    """A path next to `path` that no other process has: not every folder is locked."""
    return path.with_name(f"{TEMPORARY}{path.name}-{secrets.token_hex(4)}")


def _discard_quietly(leftover: Path) -> None:
    with suppress(OSError):
        _discard(leftover)


def _discard(leftover: Path) -> None:
    """Delete a file, a link or a folder, if it exists. What a link points to stays."""
    if leftover.is_dir() and not leftover.is_symlink():
        shutil.rmtree(leftover, ignore_errors=True)
    else:
        leftover.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path, name: str = ".lock") -> Iterator[None]:
    """Keep other processes out of a folder. The lock ends with the process, even after a kill.

    It is held on the file with this `name`; locks with other names do not exclude each other.
    """
    try:
        if folder.is_file():
            raise UserError(f"{folder} is a file and not a folder", ELSEWHERE)
        folder.mkdir(parents=True, exist_ok=True)
        handle = _open_lock(folder / name)
    except OSError as error:
        raise file_error(error, f"cannot write to {folder}", ELSEWHERE) from error
    try:
        _lock(handle, folder)
        yield
    finally:
        os.close(handle)


def _open_lock(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW
    handle = os.open(path, flags, 0o666)
    try:
        refuse_other_kinds(os.fstat(handle), path)
    except OSError:
        os.close(handle)
        raise
    return handle


def _lock(handle: int, folder: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise InUseError(
            f"{folder} is in use by another process", f"wait for it, stop it, or {ELSEWHERE}"
        ) from error
    except OSError as error:  # some network drives have no locks
        raise file_error(error, f"cannot lock {folder}", f"{ELSEWHERE}, on a local disk") from error


def to_json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


@contextmanager
def _written_whole(path: Path) -> Iterator[Path]:
    """A temporary path next to `path`, which replaces `path` once all is written and synced.

    What was there before does not change on an error: LostError for a failure such as a full disk,
    UserError for a path that cannot be written to.
    """
    temporary = _temporary(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        os.replace(temporary, path)
        _sync(path.parent)
    except INTERRUPTIONS as error:
        _discard_quietly(temporary)
        if not isinstance(error, OSError):
            raise
        raise file_error(error, f"cannot write {path}", FIX_AND_REPEAT) from error


def _write_synced(path: Path, content: Content) -> str:
    """Write a new file, sync it to disk and return its checksum."""
    if isinstance(content, bytes):
        _write(path, content)
    else:
        content(path)
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(path: Path, content: bytes) -> None:
    """Write a new file."""
    with path.open("xb") as new:
        new.write(content)


def _sync(path: Path) -> None:
    """Wait until a file or a folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
