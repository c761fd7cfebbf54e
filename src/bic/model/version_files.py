"""Reading a model folder: one version at a time, whatever is written meanwhile. Imports no torch.

A reader opens `live.json` once and then reads only files that its version names. They never change.
A writer removes the files of old versions, but only after `live.json` names the new ones. So a
reader that misses a file opens `live.json` again.
"""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from bic.errors import UserError
from bic.foreign_files import read_regular_file
from bic.model.versions import (
    LIVE,
    UNFINISHED,
    VERSIONS,
    DamagedError,
    Manifest,
    MissingError,
    Root,
    StoredFile,
    Version,
    decoded,
)

MAX_BYTES = 2**26  # of live.json and of a manifest; enough for 100,000 classes
ATTEMPTS = 20  # of a reader whose files are removed while it reads

Value = TypeVar("Value")


def is_versioned(folder: Path) -> bool:
    """Whether the folder is a model folder with versions."""
    return (folder / LIVE).is_file()


def has_lost_root(folder: Path) -> bool:
    """Whether the folder has versions and no `live.json`.

    A first learn that was killed just before its version went live has not lost anything.
    """
    has_versions = any((folder / VERSIONS).glob("*-*.json"))
    return has_versions and not is_versioned(folder) and not (folder / UNFINISHED).exists()


def read_root(folder: Path) -> Root:
    """The content of `live.json`."""
    return decoded(_read(folder / LIVE), Root, folder / LIVE)


def read_version(folder: Path, manifest: Manifest) -> Version:
    """The version that a manifest describes."""
    path = folder / manifest.name
    if manifest.size > MAX_BYTES:
        raise DamagedError(path, "it is too large")
    version = decoded(_read(path, manifest.size, manifest.sha256), Version, path)
    if version.number != manifest.number:
        raise DamagedError(path, "it describes another version")
    if version.parent is not None and version.parent >= version.number:
        raise DamagedError(path, "it names a later version as the one before it")
    return version


def read_stored(folder: Path, file: StoredFile) -> bytes:
    """The content of a file of a version. Raises DamagedError if it has changed."""
    return _read(folder / file.name, file.size, file.sha256)


def _read(path: Path, size: int | None = None, sha256: str | None = None) -> bytes:
    """The content of a regular file of this size, or of at most MAX_BYTES."""
    try:
        content = read_regular_file(path, MAX_BYTES if size is None else size, follow_links=False)
    except FileNotFoundError as error:
        raise MissingError(path, "it is missing") from error
    except OSError as error:
        raise DamagedError(path, error.strerror or "it cannot be read") from error
    if size is not None and len(content) != size:
        raise DamagedError(path, f"it has {len(content):,} bytes and should have {size:,}")
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise DamagedError(path, "its checksum does not fit")
    return content


def consistent(folder: Path, read: Callable[[Root], Value]) -> Value:
    """What `read` returns for the live version, tried again if a file was removed meanwhile.

    A writer removes files of old versions only after `live.json` names the new ones. Raises
    UserError that names a damaged file and the newest version without damage.
    """
    try:
        return _consistent(folder, read)
    except DamagedError as error:
        raise with_remedy(folder, error) from error


def present_root(folder: Path) -> Root:
    """The content of `live.json`. Raises UserError as `consistent` does."""
    return consistent(folder, lambda root: root)


def _consistent(folder: Path, read: Callable[[Root], Value]) -> Value:
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


def read_live(
    folder: Path, names: Iterable[str], *, optional: Iterable[str] = ()
) -> tuple[Version, dict[str, bytes]]:
    """The live version and the content of some of its files, all of the same version.

    `optional` names more files, which the version may lack. Raises UserError as `consistent` does.
    """
    wanted = tuple(names)
    others = tuple(optional)

    def read(root: Root) -> tuple[Version, dict[str, bytes]]:
        version = live_version(folder, root)
        present = (*wanted, *(name for name in others if name in version.files))
        return version, {name: read_named(folder, version, name) for name in present}

    return consistent(folder, read)


def read_named(folder: Path, version: Version, name: str) -> bytes:
    """The content of a file of a version by its name in a plain model folder."""
    file = version.files.get(name)
    if file is None:
        raise DamagedError(folder, f"version {version.number} has no {name}")
    return read_stored(folder, file)


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
        candidate = root.candidate
        manifests = root.versions
    except DamagedError:
        candidate = None
        manifests = manifests_on_disk(folder)
    for manifest in sorted(manifests, key=lambda kept: -kept.number):
        if manifest.number != candidate and not damages(folder, manifest):
            return manifest.number
    return None


def manifests_on_disk(folder: Path) -> tuple[Manifest, ...]:
    """The manifests that are in the folder, one for each version, if `live.json` is lost.

    Of two manifests of a version, the one with more retired classes is the later one.
    """
    found: dict[int, tuple[int, Manifest]] = {}
    for path in sorted((folder / VERSIONS).glob("*-*.json")):
        try:
            content = _read(path)
            version = decoded(content, Version, path)
        except UserError:
            continue
        sha256 = hashlib.sha256(content).hexdigest()
        manifest = Manifest(version.number, sha256, len(content))
        num_retired = len(version.classes) - len(version.active)
        is_later = version.number not in found or num_retired > found[version.number][0]
        if path.name == Path(manifest.name).name and is_later:
            found[version.number] = (num_retired, manifest)
    return tuple(manifest for _, manifest in found.values())


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
