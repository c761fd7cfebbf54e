"""`check`: every file of every kept version, compared with its size and checksum."""

from dataclasses import dataclass
from pathlib import Path

from bic.errors import UserError
from bic.model.version_files import ATTEMPTS, damages, present_root, read_version
from bic.model.versions import DamagedError, Root
from bic.store.version_writer import collect_garbage, writing


@dataclass(frozen=True)
class Damage:
    """A damaged file, and the versions that need it."""

    file: str
    reason: str
    versions: tuple[int, ...]


@dataclass(frozen=True)
class FolderCheck:
    """What `check` found. `newest_good` is the newest kept version without damage."""

    live: int
    versions: tuple[int, ...]
    num_files: int
    num_bytes: int
    damages: tuple[Damage, ...]
    newest_good: int | None


def check(folder: Path) -> FolderCheck:
    """Check all files. Raises UserError if `live.json` itself is damaged.

    If nothing is damaged and nobody writes, files that no version needs are removed.
    """
    root = present_root(folder)
    for _ in range(ATTEMPTS):
        result = _checked(folder, root)
        newer = present_root(folder) if result.damages else root
        if newer == root:  # else a writer may have removed what seems to be missing
            break
        root = newer
    if not result.damages:
        _tidy(folder)
    return result


def _checked(folder: Path, root: Root) -> FolderCheck:
    found: dict[str, DamagedError] = {}
    needed_by: dict[str, list[int]] = {}
    good = []
    checked: set[str] = set()
    for manifest in root.versions:
        problems = damages(folder, manifest, checked)
        if not problems and manifest.number != root.candidate:
            good.append(manifest.number)
        for problem in problems:
            file = str(problem.path.relative_to(folder))
            found[file] = problem
            needed_by.setdefault(file, []).append(manifest.number)
    return FolderCheck(
        live=root.live,
        versions=tuple(kept.number for kept in root.versions),
        num_files=len(checked) + len(root.versions),
        num_bytes=_num_bytes(folder, root),
        damages=tuple(
            Damage(file, problem.reason, tuple(needed_by[file]))
            for file, problem in sorted(found.items())
        ),
        newest_good=max(good, default=None),
    )


def _tidy(folder: Path) -> None:
    try:
        with writing(folder):
            collect_garbage(folder)
    except UserError:
        return  # somebody else is writing, or the folder cannot be written to


def _num_bytes(folder: Path, root: Root) -> int:
    """The size of all files of all versions that can be read, each counted once."""
    sizes = {}
    for manifest in root.versions:
        sizes[manifest.name] = manifest.size
        try:
            for file in read_version(folder, manifest).stored():
                sizes[file.name] = file.size
        except DamagedError:
            continue
    return sum(sizes.values())
