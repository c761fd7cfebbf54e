"""What a model folder knows about its classes, and how two versions differ. Imports no torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bic.errors import UserError
from bic.foreign_files import parse_json
from bic.model.intervals import Share
from bic.model.version_files import consistent, live_version, read_named, read_version
from bic.model.versions import DamagedError, Root, StoredFile, Version
from bic.settings import flat_settings

LEARNING = "learning.json"


@dataclass(frozen=True)
class ClassSummary:
    """One class. `trend` has its held-out accuracy in each kept version, oldest first.

    `trend` ends with the live version; None where no held-out image is known. `memory` is the file
    with the images that are kept.
    """

    name: str
    added: int
    seen: int
    kept: int
    held_out: int
    accuracy: Share | None
    trend: tuple[Share | None, ...]
    memory: StoredFile | None = None


@dataclass(frozen=True)
class VersionDiff:
    """What differs between two versions.

    `counts` has, for each class of both versions whose counts differ, the images seen and kept in
    the first and in the second. `settings` has the path and both values of each setting that
    differs. `accuracy` is that on the held-out images of each version.
    """

    first: int
    second: int
    added: tuple[str, ...]
    removed: tuple[str, ...]
    counts: dict[str, tuple[int, int, int, int]]
    settings: dict[str, tuple[Any, Any]]
    accuracy: tuple[Share | None, Share | None]


def class_summaries(folder: Path) -> tuple[ClassSummary, ...]:
    """The active classes of the live version."""
    return consistent(folder, lambda root: summaries_of(folder, root))


def summaries_of(folder: Path, root: Root) -> tuple[ClassSummary, ...]:
    """The active classes of the version that `root` calls live, for use with `consistent`."""
    live = live_version(folder, root)
    lineage = _lineage(folder, root, live)
    summaries = []
    for position, record in enumerate(live.classes):
        if record.retired:
            continue
        trend = []
        for version in lineage:
            known = position < len(version.classes)
            trend.append(version.classes[position].accuracy if known else None)
        summaries.append(
            ClassSummary(
                name=record.name,
                added=record.added,
                seen=record.seen,
                kept=record.kept + record.held_out,
                held_out=record.held_out,
                accuracy=record.accuracy,
                trend=tuple(trend),
                memory=record.memory,
            )
        )
    return tuple(summaries)


def _lineage(folder: Path, root: Root, live: Version) -> list[Version]:
    """The kept versions that the live one was learned on, oldest first, and the live one."""
    versions = [live]
    parent = live.parent
    while parent is not None:
        manifest = root.manifest(parent)
        if manifest is None:
            break
        versions.append(read_version(folder, manifest))
        parent = versions[-1].parent
    return versions[::-1]


def diff(folder: Path, first: int | None, second: int | None) -> VersionDiff:
    """What differs between two kept versions; by default the live one and the one before it."""

    def read(root: Root) -> VersionDiff:
        after = _version(folder, root, root.live if second is None else second)
        before_number = after.parent if first is None else first
        if before_number is None:
            problem = f"there is no version before version {after.number}"
            raise UserError(problem, "name two versions")
        if before_number == after.number:
            problem = f"version {after.number} would be compared with itself"
            raise UserError(problem, "name another version")
        return _diff(folder, _version(folder, root, before_number), after)

    return consistent(folder, read)


def _version(folder: Path, root: Root, number: int) -> Version:
    manifest = root.manifest(number)
    if manifest is None:
        kept = ", ".join(str(kept.number) for kept in root.versions)
        raise UserError(f"version {number} is not kept", f"choose among {kept}")
    return read_version(folder, manifest)


def _diff(folder: Path, before: Version, after: Version) -> VersionDiff:
    old = {record.name: record for record in before.active}
    new = {record.name: record for record in after.active}
    counts = {}
    for name, record in new.items():
        if name in old:
            earlier = (old[name].seen, old[name].kept + old[name].held_out)
            later = (record.seen, record.kept + record.held_out)
            if earlier != later:
                counts[name] = (*earlier, *later)
    settings = {}
    flat_before = dict(flat_settings(_learning(folder, before)))
    flat_after = dict(flat_settings(_learning(folder, after)))
    for path in {**flat_before, **flat_after}:
        if flat_before.get(path) != flat_after.get(path):
            settings[path] = (flat_before.get(path), flat_after.get(path))
    return VersionDiff(
        first=before.number,
        second=after.number,
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        counts=counts,
        settings=settings,
        accuracy=(_accuracy(before), _accuracy(after)),
    )


def _accuracy(version: Version) -> Share | None:
    """On all held-out images of the version."""
    correct = 0
    total = 0
    for record in version.active:
        if record.accuracy is not None:
            correct += record.accuracy.correct
            total += record.accuracy.total
    return Share(correct, total) if total else None


def live_settings(folder: Path) -> dict[str, Any]:
    """The settings of learning of the live version, flat, by their paths."""

    def read(root: Root) -> dict[str, Any]:
        return dict(flat_settings(_learning(folder, live_version(folder, root))))

    return consistent(folder, read)


def _learning(folder: Path, version: Version) -> dict[str, Any]:
    content = read_named(folder, version, LEARNING)
    try:
        return dict(parse_json(content))
    except (ValueError, TypeError) as error:
        path = folder / version.files[LEARNING].name
        raise DamagedError(path, "it has no settings") from error
