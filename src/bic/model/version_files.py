"""Reading a model folder: one version at a time, whatever is written meanwhile. Imports no torch.

A reader opens `live.json` once and then reads only files that its version names. They never change.
A writer removes the files of old versions, but only after `live.json` names the new ones. So a
reader that misses a file opens `live.json` again.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from bic.errors import UserError
from bic.model.versions import (
    LIVE,
    DamagedError,
    Manifest,
    MissingError,
    Root,
    StoredFile,
    Version,
    decoded,
)

MAX_BYTES = 2**28  # of live.json
ATTEMPTS = 20  # of a reader whose files are removed while it reads

Value = TypeVar("Value")


def is_versioned(folder: Path) -> bool:
    """Whether the folder is a model folder with versions."""
    return (folder / LIVE).is_file()


def read_root(folder: Path) -> Root:
    """The content of `live.json`."""
    return decoded(_read(folder / LIVE), Root, folder / LIVE)


def read_version(folder: Path, manifest: Manifest) -> Version:
    """The version that a manifest describes."""
    path = folder / manifest.name
    return decoded(_read(path, manifest.size, manifest.sha256), Version, path)


def read_stored(folder: Path, file: StoredFile) -> bytes:
    """The content of a file of a version. Raises DamagedError if it has changed."""
    return _read(folder / file.name, file.size, file.sha256)


def _read(path: Path, size: int | None = None, sha256: str | None = None) -> bytes:
    """The content of a regular file. Its size is compared before anything is read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise MissingError(path, "it is missing") from error
    except OSError as error:
        raise DamagedError(path, error.strerror or "it cannot be opened") from error
    with os.fdopen(handle, "rb") as file:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode):
            raise DamagedError(path, "it is not a file")
        expected = state.st_size if size is None else size
        if state.st_size != expected or (size is None and expected > MAX_BYTES):
            raise DamagedError(path, f"it has {state.st_size:,} bytes and should have another size")
        try:
            content = file.read()
        except OSError as error:
            raise DamagedError(path, error.strerror or "it cannot be read") from error
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise DamagedError(path, "its checksum does not fit")
    return content


def consistent(folder: Path, read: Callable[[Root], Value]) -> Value:
    """What `read` returns for the live version, tried again if a file was removed meanwhile.

    A writer removes files of old versions only after `live.json` names the new ones.
    """
    root = read_root(folder)
    for _ in range(ATTEMPTS):
        try:
            return read(root)
        except MissingError:
            newer = read_root(folder)
            if newer == root:
                raise
            root = newer
    return read(root)


def read_live(folder: Path, names: Iterable[str]) -> tuple[Version, dict[str, bytes]]:
    """The live version and the content of some of its files, all of the same version.

    Raises UserError that names a damaged file and the newest version without damage.
    """
    wanted = tuple(names)

    def read(root: Root) -> tuple[Version, dict[str, bytes]]:
        version = live_version(folder, root)
        return version, {name: read_stored(folder, version.files[name]) for name in wanted}

    try:
        return consistent(folder, read)
    except DamagedError as error:
        raise with_remedy(folder, error) from error


def live_version(folder: Path, root: Root) -> Version:
    """The live version. Raises DamagedError if its manifest is damaged."""
    manifest = root.manifest(root.live)
    if manifest is None:
        raise DamagedError(folder / LIVE, "it names no manifest of the live version")
    return read_version(folder, manifest)


def with_remedy(folder: Path, error: DamagedError) -> UserError:
    """The error with a remedy that names the newest version without damage."""
    good = newest_good(folder)
    problem = error.problem
    if good is None:
        return UserError(problem, "restore it from a copy; no kept version is without damage")
    return UserError(
        problem,
        f"restore it from a copy, or run bic rollback {folder} {good}: version {good} is the "
        "newest one without damage",
    )


def newest_good(folder: Path) -> int | None:
    """The number of the newest kept version without damage, or None."""
    try:
        root = read_root(folder)
    except UserError:
        return None
    for manifest in sorted(root.versions, key=lambda kept: -kept.number):
        if manifest.number != root.candidate and not damages(folder, manifest):
            return manifest.number
    return None


def damages(
    folder: Path, manifest: Manifest, checked: set[str] | None = None
) -> list[DamagedError]:
    """All damaged files of a version. Files in `checked` are known to be good; more are added."""
    checked = set() if checked is None else checked
    try:
        version = read_version(folder, manifest)
    except DamagedError as error:
        return [error]
    found = []
    for file in version.stored():
        if file.name in checked:
            continue
        try:
            read_stored(folder, file)
            checked.add(file.name)
        except DamagedError as error:
            found.append(error)
    return found
