"""Rolling back, retiring and renaming. Each change is complete, or has not happened."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from bic import files
from bic.errors import UserError, unknown
from bic.foreign_files import parse_json
from bic.model.version_files import (
    damages,
    live_version,
    manifests_on_disk,
    read_named,
    read_root,
    read_version,
)
from bic.model.versions import ClassRecord, DamagedError, Manifest, Root, Version
from bic.store.class_names import RETIRED, check_name, composed, retired_name
from bic.store.learn_report import counted, listed
from bic.store.retired_rows import without_rows
from bic.store.seen_images import without_classes
from bic.store.version_writer import (
    DEFAULT_KEEP,
    collect_garbage,
    commit,
    discard_unfinished,
    new_event,
    store,
    store_version,
)
from bic.store.waiting import remove_waiting, rename_waiting

DESCRIPTION = "model.json"


def roll_back(folder: Path, number: int | None) -> int:
    """Make an earlier version live again, by default the one before the live one.

    If `live.json` is damaged, it is written again from the manifests, without the history.
    """
    try:
        root = read_root(folder)
    except DamagedError:
        if number is None:
            raise
        root = _restored(folder, number)
    if number is None:
        number = _before(folder, root)
    if number == root.candidate:
        raise UserError(
            f"version {number} was refused by the gate", "run the same bic learn with {force}"
        )
    manifest = root.manifest(number)
    if manifest is None:
        numbers = [kept.number for kept in root.versions if kept.number != root.candidate]
        listing = ", ".join(map(str, numbers))
        raise UserError(f"version {number} is not kept", f"choose one of {listing}")
    found = damages(folder, manifest)
    if found:
        raise found[0]
    if number != root.live:
        from_where = f"from version {root.live}" if root.live else "from a damaged live.json"
        event = new_event("roll back", number, from_where)
        _commit(folder, replace(root, live=number, history=(*root.history, event)))
    return number


def _restored(folder: Path, number: int) -> Root:
    """A root made from the manifests that are in the folder."""
    manifests = manifests_on_disk(folder)
    numbers = [manifest.number for manifest in manifests]
    event = new_event("restore", number, "live.json was damaged; it was made again")
    return Root(
        live=0,
        next=max(numbers, default=0) + 1,
        keep=max(DEFAULT_KEEP, len(numbers)),
        versions=manifests,
        history=(event,),
    )


def _before(folder: Path, root: Root) -> int:
    """The version that the live one was learned on."""
    parent = live_version(folder, root).parent
    if parent is None or root.manifest(parent) is None:
        raise UserError(f"there is no kept version before version {root.live}", "name a version")
    return parent


def _commit(folder: Path, root: Root) -> None:
    """Replace `live.json`. An unfinished learn is given up: it was about another state."""
    discard_unfinished(folder)
    commit(folder, root)
    collect_garbage(folder)


def rename(folder: Path, old: str, new: str) -> None:
    """Give a class another name, in every kept version."""
    root = read_root(folder)
    old, new = composed(old), composed(new)
    check_name(new)
    _require([live_version(folder, root)], [old])
    if new == old:
        raise UserError(f"the class is called {old!r} already", "choose another name")
    versions = [read_version(folder, kept) for kept in root.versions]
    for version in versions:
        for record in version.classes:
            if record.name.casefold() == new.casefold() and record.name != old:
                problem = f"{record.name!r} is a class of version {version.number}"
                raise UserError(problem, "choose another name")

    def renamed(record: ClassRecord, taken: set[str]) -> ClassRecord:
        return replace(record, name=new)

    manifests = [_changed(folder, version, [old], renamed) for version in versions]
    event = new_event("rename", root.live, f"{old} is now {new}")
    _commit(folder, replace(root, versions=tuple(manifests), history=(*root.history, event)))
    rename_waiting(folder, old, new)


def retire(folder: Path, names: Sequence[str]) -> int:
    """Stop predicting classes, and delete their images from every kept version.

    A version that has no other class, or that is damaged, is no longer kept.
    Returns the number of images that were deleted.
    """
    root = read_root(folder)
    names = [composed(name) for name in names]
    live = live_version(folder, root)
    versions = _readable_versions(folder, root)
    _require(versions, names)
    if set(_active_names([live])) <= set(names):
        raise UserError("no class would be left", "keep one class, or delete the whole folder")

    def retired(record: ClassRecord, taken: set[str]) -> ClassRecord:
        name = retired_name(record.name, taken)
        return ClassRecord(name=name, added=record.added, seen=record.seen, retired=True)

    manifests = []
    for version in versions:
        try:
            if not set(_active_names([version])) <= set(names):  # else nothing would be left of it
                manifests.append(_changed(folder, version, names, retired))
        except DamagedError:
            if version.number == root.live:
                raise
    num_images = _num_images(versions, names)
    text = f"{listed(tuple(names))}: {counted(num_images, 'kept image')} deleted"
    event = new_event("retire", root.live, text)
    discard_unfinished(folder)
    remove_waiting(folder, names)
    commit(folder, replace(root, versions=tuple(manifests), history=(*root.history, event)))
    collect_garbage(folder, is_required=True)
    return num_images


def _readable_versions(folder: Path, root: Root) -> list[Version]:
    """The kept versions whose manifest is not damaged."""
    versions = []
    for kept in root.versions:
        with suppress(DamagedError):
            versions.append(read_version(folder, kept))
    return versions


def _active_names(versions: Sequence[Version]) -> list[str]:
    """The names of all classes that some version can predict."""
    names: dict[str, None] = {}
    for version in versions:
        names |= dict.fromkeys(record.name for record in version.active)
    return list(names)


def _num_images(versions: Sequence[Version], names: Sequence[str]) -> int:
    """The most images that a version keeps of each class: others keep some of these."""
    most = dict.fromkeys(names, 0)
    for version in versions:
        for record in version.active:
            if record.name in most:
                most[record.name] = max(most[record.name], record.kept + record.held_out)
    return sum(most.values())


def _require(versions: Sequence[Version], names: Sequence[str]) -> None:
    """Raise UserError for a name that is not a class of any version, or is of a retired class."""
    if not names:
        raise UserError("no class was named", "name one or more classes")
    known = _active_names(versions)
    known_names = set(known)
    retired = _names_before_retiring(versions)
    for name in names:
        if name in known_names:
            continue
        if name in retired:
            raise UserError(f"the class {name!r} is already retired", "name another class")
        raise unknown("class", name, known)


def _names_before_retiring(versions: Sequence[Version]) -> set[str]:
    """The names that the retired classes of the versions had."""
    records = [record for version in versions for record in version.classes]
    return {RETIRED.sub("", record.name) for record in records if record.retired}


def _changed(
    folder: Path,
    version: Version,
    names: Sequence[str],
    change: Callable[[ClassRecord, set[str]], ClassRecord],
) -> Manifest:
    """Write the version with some of its classes changed, and return its new manifest."""
    wanted = set(names)
    taken = {record.name for record in version.classes}
    records = list(version.classes)
    positions = []
    for position, record in enumerate(version.classes):
        if record.name in wanted and not record.retired:
            records[position] = change(record, taken)
            taken.add(records[position].name)
            positions.append(position)
    if not positions:
        return store_version(folder, version)
    gone = [position for position in positions if records[position].retired]
    learned = []
    for file in version.learned:
        rest = without_classes(folder, file, gone)
        learned.append(file if rest is None else store(folder, rest, ".parquet"))
    described = store(folder, _described(folder, version, records), ".json")
    emptied = without_rows(folder, version, gone) if gone else {}
    changed = replace(
        version,
        fingerprint="",  # of images of these classes, which are now other classes or new ones
        classes=tuple(records),
        learned=tuple(learned),
        files={**version.files, DESCRIPTION: described, **emptied},
    )
    return store_version(folder, changed)


def _described(folder: Path, version: Version, records: Sequence[ClassRecord]) -> bytes:
    """The content of `model.json` with the names and the retired classes of the records."""
    content = read_named(folder, version, DESCRIPTION)
    try:
        found: dict[str, Any] = dict(parse_json(content))
    except (ValueError, TypeError) as error:
        path = folder / version.files[DESCRIPTION].name
        raise DamagedError(path, "it does not describe a model") from error
    found["classes"] = [record.name for record in records]
    retired = [place for place, record in enumerate(records) if record.retired]
    if retired:
        found["retired"] = retired
    return files.to_json(found)
