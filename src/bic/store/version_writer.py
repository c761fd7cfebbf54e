"""Writing to a model folder: files first, then their manifest, then `live.json`. Imports no torch.

Nothing that a reader can see changes before `live.json` is replaced. A writer that is killed or
fails leaves at most files that no version names; the next writer removes them.
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from bic import files
from bic.errors import InUseError, LostError, UserError
from bic.model.version_files import (
    MAX_BYTES,
    has_lost_root,
    is_versioned,
    read_root,
    read_stored,
    read_version,
    with_remedy,
)
from bic.model.versions import (
    FILES,
    LIVE,
    UNFINISHED,
    VERSIONS,
    Action,
    DamagedError,
    Event,
    Manifest,
    Root,
    StoredFile,
    Version,
    encoded,
)
from bic.version import __version__

DEFAULT_KEEP = 5  # versions
WAITING = "waiting"
SERVER_LOCK = ".serve.lock"
README = "README.md"
README_TEXT = """\
# A model that learns

Made by `bic`. Copy this folder as a whole to back it up or to pass it on.

| file | what it is |
|---|---|
| `live.json` | which version answers, which versions are kept, and the history |
| `versions/NUMBER-CHECKSUM.json` | the manifest of a version: its classes and its files |
| `files/CHECKSUM.safetensors` | the weights of a version |
| `files/CHECKSUM.json` | class names, answer and preprocessing of a version; settings of learning |
| `files/CHECKSUM.parquet` | the memory: kept images of one class; or digests of learned images |
| `unfinished/` | where an interrupted `bic learn` continues |
| `waiting/` | images that `bic serve` was sent and that no version has learned yet |

Every file in `files/` is named by its SHA-256 checksum. Versions share files that did not change.
The images in the memory are copies of images that the model was taught with.

Commands: `bic classes`, `bic history`, `bic predict`, `bic learn`, `bic rollback`, `bic check`.
"""
IN_USE = "wait until the other command, or the lesson of bic serve, is done"
NOT_WRITABLE = "make it writable, or copy the model to a folder that is"
REPEAT = "fix this and run the same command again (the model is intact)"


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Keep other writers out. A folder that is new and stays empty is removed again.

    A damaged file and the like raise UserError, a full disk LostError. The live version is then as
    it was.
    """
    is_new = not folder.exists()
    with ExitStack() as stack:
        try:
            stack.enter_context(files.locked(folder))
        except InUseError as error:
            raise InUseError(error.problem, IN_USE) from error
        except LostError as error:
            raise LostError(error.problem, REPEAT) from error
        except UserError as error:
            raise UserError(error.problem, NOT_WRITABLE) from error
        except OSError as error:
            raise files.file_error(error, f"cannot lock {folder}", NOT_WRITABLE) from error
        _refuse_links(folder)
        try:
            yield
        except DamagedError as error:
            raise with_remedy(folder, error) from error
        except LostError as error:
            raise LostError(error.problem, REPEAT) from error
        except OSError as error:
            place = error.filename or folder
            raise files.file_error(error, f"cannot use {place}", REPEAT) from error
        finally:
            if is_new:
                remove_empty(folder, ".lock")


def _refuse_links(folder: Path) -> None:
    """Raise UserError if a folder inside leads elsewhere: nothing there may be removed."""
    for name in (FILES, VERSIONS, UNFINISHED, WAITING):
        if (folder / name).is_symlink():
            raise UserError(
                f"{folder / name} is a link to another place", "put a copy of the folder there"
            )


def remove_empty(folder: Path, lock: str) -> None:
    """Remove a folder in which nothing but a lock was written."""
    with suppress(OSError):
        if {path.name for path in folder.iterdir()} == {lock}:
            (folder / lock).unlink()
            folder.rmdir()


def require_versions(folder: Path) -> None:
    """Raise UserError unless the folder is a model folder with versions."""
    if not is_versioned(folder) and not has_lost_root(folder):
        problem = f"{folder} is not a model folder" if folder.exists() else f"{folder} is missing"
        raise UserError(problem, "give a folder that bic learn has written")


def store(folder: Path, content: bytes, suffix: str) -> StoredFile:
    """Write a file under its checksum, unless it is there already and not damaged."""
    return store_all(folder, [content], suffix)[0]


def store_all(folder: Path, contents: Iterable[bytes], suffix: str) -> list[StoredFile]:
    """As `store`, for many files at once."""
    stored = []
    missing = {}
    for content in contents:
        file = StoredFile(hashlib.sha256(content).hexdigest(), len(content), suffix)
        stored.append(file)
        try:
            read_stored(folder, file)
        except DamagedError:
            missing[Path(file.name).name] = content
    files.write_files(folder / FILES, missing)
    return stored


def store_version(folder: Path, version: Version) -> Manifest:
    """Write the manifest of a version whose files are written.

    Raises UserError if it would be too large to be read again.
    """
    content = encoded(version)
    if len(content) > MAX_BYTES:
        count = f"{len(version.classes):,} classes"
        raise UserError(f"a model cannot have {count} with such names", "create another model")
    manifest = Manifest(version.number, hashlib.sha256(content).hexdigest(), len(content))
    try:
        read_version(folder, manifest)
    except DamagedError:
        files.write_file(folder / manifest.name, content)
    return manifest


def new_event(action: Action, version: int, text: str, seconds: float = 0.0) -> Event:
    now = datetime.now(UTC).isoformat(timespec="seconds").removesuffix("+00:00") + "Z"
    return Event(now, action, version, text, round(seconds, 1))


def commit(folder: Path, root: Root) -> Root:
    """Make `root` the content of `live.json`, with as many versions as it keeps.

    This is the moment in which a change happens, all of it or nothing.
    """
    root = replace(_trimmed(root), made_with=f"bic {__version__}")
    if not (folder / README).exists():
        files.write_file(folder / README, README_TEXT.encode())
    files.write_file(folder / LIVE, encoded(root))
    return root


def _trimmed(root: Root) -> Root:
    """The root with the newest versions, the live one and the candidate."""
    numbers = sorted((kept.number for kept in root.versions), reverse=True)
    ordinary = [number for number in numbers if number not in (root.candidate, root.live)]
    stay = {root.live, root.candidate, *ordinary[: root.keep - 1]}
    versions = [kept for kept in root.versions if kept.number in stay]
    versions.sort(key=lambda kept: kept.number)
    has_candidate = root.candidate in numbers
    return replace(
        root,
        versions=tuple(versions),
        candidate=root.candidate if has_candidate else None,
        refusal=root.refusal if has_candidate else "",
    )


def collect_garbage(folder: Path, *, is_required: bool = False) -> None:
    """Remove every file that no version names.

    A failure is left to the next writer unless `is_required`; then it raises UserError.
    """
    try:
        for place in (folder, folder / FILES, folder / VERSIONS):
            files.clear_unfinished(place)
        _remove_unnamed(folder)
    except (OSError, UserError) as error:
        if is_required:
            reason = error.strerror if isinstance(error, OSError) else error.problem
            if isinstance(error, OSError) and error.filename is not None:
                reason = f"{error.filename}: {reason}"
            raise UserError(
                f"files that are no longer needed stay in {folder} ({reason})",
                "fix this and run bic check, which removes them",
            ) from error


def _remove_unnamed(folder: Path) -> None:
    """Remove all that can be removed, then raise OSError for the first file that cannot."""
    root = read_root(folder)
    named: set[str] = set()
    for manifest in root.versions:
        named.add(manifest.name)
        named |= {file.name for file in read_version(folder, manifest).stored()}
    failures: list[OSError] = []
    for place in (FILES, VERSIONS):
        for path in (folder / place).iterdir():
            is_folder = path.is_dir() and not path.is_symlink()  # such as a NAS makes; not ours
            if is_folder or f"{place}/{path.name}" in named:
                continue
            try:
                path.unlink()
            except OSError as error:
                failures.append(error)
    if failures:
        raise failures[0]


def discard_unfinished(folder: Path) -> None:
    """Remove what an interrupted learn would continue from."""
    with suppress(OSError):
        files.remove(folder / UNFINISHED)
