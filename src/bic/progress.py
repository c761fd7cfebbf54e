"""Saying how far a long task is: bars on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

Mode = Literal["auto", "bars", "lines", "quiet"]

QUIET_SECONDS = 2.0  # a shorter task needs no line of its own
LINE_SECONDS = 10.0  # between two lines about the same task


class Task:
    """One long piece of work. `advance` counts what is done; notes are shown beside it."""

    def __init__(self, owner: Progress, name: str, total: int, unit: str) -> None:
        self.name, self.total, self.unit = name, total, unit
        self.done = 0
        self.notes = ""
        self._owner = owner
        self._started = self._last_line = time.monotonic()
        self._start_done = 0
        self._bar: TaskID | None = None
        if owner.bars is not None:
            self._bar = owner.bars.add_task(name, total=total, rate="", notes="")

    def skip(self, count: int) -> None:
        """Count work that an earlier process did, leaving it out of the rate."""
        self.done += count
        self._start_done += count

    def advance(self, count: int, **notes: float) -> None:
        self.done += count
        if notes:
            self.notes = "  ".join(f"{name} {value:.3f}" for name, value in notes.items())
        now = time.monotonic()
        if self._bar is not None and self._owner.bars is not None:
            self._owner.bars.update(
                self._bar,
                completed=self.done,
                description=self.name,
                rate=f"{self.rate(now):,.0f} {self.unit}/s",
                notes=self.notes,
            )
        elif now - self._last_line >= LINE_SECONDS:
            self._last_line = now
            left = (self.total - self.done) / max(self.rate(now), 1e-9)
            share = 100 * self.done / max(self.total, 1)
            self._owner.say(f"{self._summary(now)}, {share:.0f} %, {clock(left)} left")

    def rate(self, now: float) -> float:
        return (self.done - self._start_done) / max(now - self._started, 1e-9)

    def finish(self) -> None:
        now = time.monotonic()
        if self._bar is not None and self._owner.bars is not None:
            self._owner.bars.remove_task(self._bar)
        if now - self._started >= QUIET_SECONDS:
            self._owner.say(f"{self._summary(now)}, done in {clock(now - self._started)}")

    def _summary(self, now: float) -> str:
        notes = f"  {self.notes}" if self.notes else ""
        return f"{self.name}: {self.rate(now):,.0f} {self.unit}/s{notes}"


class Progress:
    """Where a run's progress goes.

    `mode` is `bars` (a terminal), `lines` (a log), `quiet`, or `auto`: bars if there is a
    terminal, else lines. Everything goes to standard error; results go to standard output.
    """

    def __init__(self, mode: Mode = "auto") -> None:
        self.console = Console(stderr=True, quiet=mode == "quiet", highlight=False)
        self.bars: RichProgress | None = None
        self._show_bars = mode == "bars" or (mode == "auto" and self.console.is_terminal)

    def say(self, message: str) -> None:
        self.console.print(message, soft_wrap=True, markup=False)

    @contextmanager
    def task(self, name: str, total: int, unit: str = "images") -> Iterator[Task]:
        """Announce a piece of work of `total` units; nested tasks share one display."""
        outermost = self._show_bars and self.bars is None
        if outermost:
            self.bars = RichProgress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.percentage:>3.0f} %"),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                TextColumn("[dim]{task.fields[notes]}"),
                console=self.console,
                transient=True,
            )
            self.bars.start()
        task = Task(self, name, total, unit)
        try:
            yield task
            task.finish()
        finally:
            if outermost and self.bars is not None:
                self.bars.stop()
                self.bars = None


def clock(seconds: float) -> str:
    """Seconds as people say them.

    >>> clock(4.2), clock(75), clock(7322)
    ('4.2 s', '1 min 15 s', '2 h 02 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
