"""One `learn` from beginning to end: lock, read, learn, judge, and make the version live."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bic.compute.devices import check_device
from bic.data.decode_pool import decoding, default_processes
from bic.model.version_files import has_lost_root, is_versioned, read_root, read_version
from bic.model.versions import FILES, UNFINISHED, VERSIONS, Action, Root, Version
from bic.progress import Progress
from bic.store.adopt import adopt, is_plain_learner, refuse_others, remove_plain
from bic.store.learn_report import LearnReport, counted, listed, percent
from bic.store.lesson_images import LessonImages, Source
from bic.store.model_settings import given
from bic.store.teaching import LearnOptions, Taught, Teaching
from bic.store.unfinished import clear_finished
from bic.store.version_writer import (
    DEFAULT_KEEP,
    README,
    SERVER_LOCK,
    WAITING,
    collect_garbage,
    commit,
    discard_unfinished,
    new_event,
    store_version,
    writing,
)

OURS = (".lock", SERVER_LOCK, README, UNFINISHED, FILES, VERSIONS, WAITING)


def learn_folder(
    folder: Path,
    source: Source,
    settings: Mapping[str, Any],
    options: LearnOptions,
    progress: Progress,
) -> LearnReport:
    """Learn from a source, as a new version of the model in the folder."""
    given(settings)
    check_device(options.device)
    with writing(folder), decoding(default_processes(options.device)):
        root = _opened(folder, options, progress)
        teaching = Teaching(folder, root, settings, options, progress)
        lesson = teaching.read(source)
        report = None if root is None else _without_training(folder, root, lesson, options)
        if report is not None:
            return report
        return _finished(folder, root, teaching.learn(lesson), options)


def _opened(folder: Path, options: LearnOptions, progress: Progress) -> Root | None:
    """The root of the folder, or None if it is new. What a killed writer has left is removed."""
    if is_versioned(folder) or has_lost_root(folder):
        root = read_root(folder)
        if is_plain_learner(folder):
            remove_plain(folder)
    elif is_plain_learner(folder):
        root = adopt(folder, options.keep or DEFAULT_KEEP, progress, trust=options.trust)
        remove_plain(folder)
    else:
        refuse_others(folder, OURS)
        return None
    collect_garbage(folder)
    clear_finished(folder, root.next)
    return root


def _without_training(
    folder: Path, root: Root, lesson: LessonImages, options: LearnOptions
) -> LearnReport | None:
    """The report if nothing has to be trained: all is known, or the candidate is the result."""
    if not len(lesson.images):
        _set_keep(folder, root, options.keep)
        note = f"all {counted(lesson.num_left_out, 'image')} were learned before"
        return LearnReport(
            version=root.live,
            is_live=True,
            is_changed=False,
            note=note,
            num_left_out=lesson.num_left_out,
        )
    manifest = None if root.candidate is None else root.manifest(root.candidate)
    if manifest is None:
        return None
    candidate = read_version(folder, manifest)
    if candidate.parent != root.live or candidate.fingerprint != lesson.fingerprint:
        return None
    refusal = None if options.force else candidate.verdict.reason(options.max_drop)
    report = LearnReport(
        version=candidate.number,
        is_live=refusal is None,
        is_changed=refusal is None,
        refusal=refusal,
        note="it was learned before and kept as a candidate",
        new_classes=lesson.new_classes,
        known_classes=lesson.known_classes,
        num_images=len(lesson.images),
        num_left_out=lesson.num_left_out,
        verdict=candidate.verdict,
    )
    if refusal is not None:
        _set_keep(folder, root, options.keep)
        return report
    event = new_event("promote", candidate.number, f"it was refused: {root.refusal}")
    commit(
        folder,
        replace(
            root,
            live=candidate.number,
            keep=options.keep or root.keep,
            history=(*root.history, event),
            candidate=None,
            refusal="",
        ),
    )
    collect_garbage(folder)
    return report


def _set_keep(folder: Path, root: Root, keep: int | None) -> None:
    """Keep another number of versions from now on, if one is given."""
    if keep is not None and keep != root.keep:
        commit(folder, replace(root, keep=keep))
        collect_garbage(folder)


def _finished(
    folder: Path, root: Root | None, taught: Taught, options: LearnOptions
) -> LearnReport:
    """Make the version live, or a candidate if the gate refuses it."""
    version = taught.version
    reason = version.verdict.reason(options.max_drop)
    refusal = None if options.force else reason
    manifest = store_version(folder, version)
    action: Action = "learn" if refusal is None else "refuse"
    text = _in_words(version, taught.report)
    if reason is not None:
        text += f"; {'refused' if refusal else 'forced'}: {reason}"
    event = new_event(action, version.number, text, taught.report.seconds)
    if root is None:
        keep = options.keep or DEFAULT_KEEP
        root = Root(live=version.number, next=1, keep=keep, versions=())
    others = tuple(kept for kept in root.versions if kept.number != root.candidate)
    commit(
        folder,
        replace(
            root,
            live=version.number if refusal is None else root.live,
            next=version.number + 1,
            keep=options.keep or root.keep,
            versions=(*others, manifest),
            history=(*root.history, event),
            candidate=None if refusal is None else version.number,
            refusal=refusal or "",
        ),
    )
    discard_unfinished(folder)
    collect_garbage(folder)
    return replace(taught.report, is_live=refusal is None, refusal=refusal)


def _in_words(version: Version, report: LearnReport) -> str:
    """What the history says about a version."""
    parts = []
    if report.new_classes:
        count = counted(len(report.new_classes), "new class", "new classes")
        parts.append(f"{count} ({listed(report.new_classes, 3)})")
    if report.known_classes:
        count = counted(len(report.known_classes), "known class", "known classes")
        parts.append(f"{count} ({listed(report.known_classes, 3)})")
    text = f"{' and '.join(parts)}, {counted(report.num_images, 'image')}"
    verdict = version.verdict
    if verdict.old_before is not None and verdict.old_after is not None:
        before = percent(verdict.old_before.value)
        text += f"; old classes {before} before, {percent(verdict.old_after.value)} after"
    if verdict.new_after is not None:
        text += f"; new classes {percent(verdict.new_after.value)}"
    return text
