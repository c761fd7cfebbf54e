"""What `bic learn` and the commands about a model folder print. Imports no torch."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from rich.table import Table

from bic.model.intervals import Drop, Share
from bic.model.versions import Event, Verdict
from bic.progress import clock
from bic.report.tables import new_table, number
from bic.store.check import FolderCheck
from bic.store.learn_report import Expectation, LearnReport, counted, listed
from bic.store.overview import ClassSummary, VersionDiff

MOST = 20  # classes that are listed
# Settings that the history shows, in this order.
SHOWN = (
    *("method", "recipe.name", "recipe.backbone", "recipe.epochs", "recipe.image_size"),
    *("memory.images", "memory.bytes", "held_out", "exemplars", "seed"),
)


def size(num_bytes: int) -> str:
    """
    >>> size(812), size(64_000), size(1_250_000)
    ('812 B', '64.0 KB', '1.2 MB')
    """
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "KB")):
        if num_bytes >= unit:
            return f"{num_bytes / unit:.1f} {name}"
    return f"{num_bytes} B"


def accuracy(share: Share | None) -> str:
    """
    >>> accuracy(Share(9, 10)), accuracy(None)
    ('90.0 % (59.6 to 98.2)', '–')
    """
    if share is None:
        return "–"
    low, high = share.interval
    return f"{100 * share.value:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def _short_accuracy(share: Share | None) -> str:
    if share is None:
        return "–"
    low, high = share.interval
    return f"{100 * share.value:.0f} ({100 * low:.0f} to {100 * high:.0f})"


def _counted_accuracy(share: Share | None) -> str:
    return "–" if share is None else f"{accuracy(share)} of {counted(share.total, 'image')}"


def change_in_words(drop: Drop) -> str:
    """A drop or, if the accuracy rose, a gain. Below 0, the interval of one means the other.

    >>> change_in_words(Drop(lost=20, gained=5, total=100))
    'a drop of 15.0 points (5.1 to 24.3)'
    >>> change_in_words(Drop(lost=5, gained=20, total=100))
    'a gain of 15.0 points (5.1 to 24.3)'
    >>> change_in_words(Drop(lost=2, gained=2, total=100))
    'no change (-4.7 to 4.7)'
    """
    low, high = drop.interval
    if drop.value < 0:
        return f"a gain of {-100 * drop.value:.1f} points ({-100 * high:.1f} to {-100 * low:.1f})"
    words = f"a drop of {100 * drop.value:.1f} points" if drop.value else "no change"
    return f"{words} ({100 * low:.1f} to {100 * high:.1f})"


def expectation_lines(expected: Expectation) -> Iterator[str]:
    """What `bic learn` says before it starts."""
    classes = _classes(expected.new_classes, expected.known_classes)
    yield f"version {expected.version}: {classes}, {counted(expected.num_images, 'image')}"
    if expected.num_left_out:
        count = counted(expected.num_left_out, "image")
        yield f"left out: {count} learned before, or there twice"
    if expected.epochs_done:
        count = counted(expected.epochs_done, "finished epoch")
        yield f"continuing an interrupted learn after {count}"
    cost = f"up to {size(expected.num_bytes)}"
    if expected.seconds is not None:
        seconds = expected.seconds
        time = "less than a second" if seconds < 1 else f"about {clock(seconds)}"
        cost = f"{time} of {expected.work}, {cost}"
    yield f"expected: {cost}"


def _classes(new: Sequence[str], known: Sequence[str]) -> str:
    parts = []
    if new:
        parts.append(f"{counted(len(new), 'new class', 'new classes')} ({listed(tuple(new))})")
    if known:
        count = counted(len(known), "known class", "known classes")
        parts.append(f"{count} ({listed(tuple(known))})")
    return " and ".join(parts)


def report_lines(report: LearnReport, folder: Path) -> Iterator[str]:
    """What `bic learn` says at the end."""
    if not report.is_changed and report.refusal is None:
        yield f"nothing to learn: {report.note}; --again learns them again"
        return
    state = "is live" if report.is_live else "is a candidate and not live"
    classes = _classes(report.new_classes, report.known_classes)
    images = counted(report.num_images, "image")
    yield f"version {report.version} {state}: {classes}, {images}"
    if report.verdict is not None:
        yield from _verdict_lines(report.verdict, is_first=report.version == 1)
    if report.alpha is not None and report.beta is not None:
        yield f"correction: α {report.alpha:.3f}, β {report.beta:.3f}"
    if report.memory_images:
        memory = f"{counted(report.memory_images, 'image')}, {size(report.memory_bytes)}"
        yield f"memory: {memory}; time: {clock(report.seconds)}"
    if report.is_live:
        yield f"next: bic predict {folder} IMAGE, or bic classes {folder}"


def _verdict_lines(verdict: Verdict, *, is_first: bool) -> Iterator[str]:
    if verdict.old_before is not None and verdict.old_after is not None:
        images = counted(verdict.old_before.total, "held-out image")
        before = accuracy(verdict.old_before)
        yield f"old classes: {before} before, {accuracy(verdict.old_after)} after, on {images}"
    if verdict.new_after is not None:
        images = counted(verdict.new_after.total, "held-out image")
        yield f"new classes: {accuracy(verdict.new_after)}, on {images}"
    if verdict.drop is not None and verdict.restricted_drop is not None:
        restricted = change_in_words(verdict.restricted_drop)
        yield (
            f"change on old classes: {change_in_words(verdict.drop)}; "
            f"if only old classes can be answered, as the gate judges, {restricted}"
        )
    if not verdict.is_judged and not is_first:
        yield "the gate cannot judge this version: no images of old classes are held out"


def classes_table(classes: Sequence[ClassSummary], folder: Path, version: int) -> Table:
    """A row per class."""
    title = f"{folder}, version {version}: {counted(len(classes), 'class', 'classes')}"
    columns = ["since", "seen", "kept", "held out", "accuracy", "trend"]
    table = new_table(title, "class", columns)
    for column in table.columns[-2:]:
        column.no_wrap = True
    for summary in classes:
        trend = [number(None if share is None else 100 * share.value, 0) for share in summary.trend]
        cells = [summary.added, summary.seen, summary.kept, summary.held_out]
        texts = [f"{cell:,}" for cell in cells]
        texts += [_short_accuracy(summary.accuracy), "→".join(trend)]
        table.add_row(_plain(summary.name), *texts)
    table.caption = (
        "since: the version that added the class; seen: images learned; kept: images in the memory"
        " (some held out)\naccuracy: in %, with its 95 % interval, on the images that were held out"
        " when the version was made; trend: the accuracy in kept versions"
    )
    return table


def history_table(events: Sequence[Event], folder: Path, live: int) -> Table:
    """A row per event, oldest first."""
    table = new_table(f"{folder}, version {live} is live", "time (UTC)", [])
    table.add_column("what")
    table.add_column("version", justify="right")
    table.add_column("")
    for event in events:
        text = event.text
        if event.seconds:
            text += f" ({clock(event.seconds)})"
        table.add_row(event.time, event.action, str(event.version), _plain(text))
    return table


def settings_line(settings: Mapping[str, Any]) -> str:
    """The main settings in one line."""
    parts = []
    for name in SHOWN:
        value = settings.get(name)
        if value is not None:
            words = name.removeprefix("recipe.") if name != "recipe.name" else "recipe"
            parts.append(f"{words} {value}")
    return f"settings: {', '.join(parts)}"


def diff_lines(diff: VersionDiff) -> Iterator[str]:
    yield f"from version {diff.first} to version {diff.second}"
    for title, names in (("added", diff.added), ("no longer there", diff.removed)):
        if names:
            yield f"{title}: {listed(names, MOST)}"
    for name, (seen, kept, seen_after, kept_after) in islice(diff.counts.items(), MOST):
        yield f"{name}: seen {seen:,} → {seen_after:,}, kept {kept:,} → {kept_after:,}"
    if len(diff.counts) > MOST:
        yield f"{len(diff.counts) - MOST:,} more classes have other counts"
    for path, (before, after) in diff.settings.items():
        yield f"{path}: {before} → {after}"
    first, second = map(_counted_accuracy, diff.accuracy)
    yield f"held-out accuracy, each version on its own images: {first} → {second}"


def check_line(found: FolderCheck, folder: Path) -> str:
    """The result for a folder without damage."""
    versions = counted(len(found.versions), "version")
    files = counted(found.num_files, "file")
    return f"{folder} is intact: {versions}, {files}, {size(found.num_bytes)}"


def _plain(text: str) -> str:
    """Text that rich does not read as markup."""
    return text.replace("[", r"\[")
