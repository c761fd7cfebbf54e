"""Saying how far a long task is: bars on a terminal, plain lines elsewhere, or nothing."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.table import Column

QUIET_SECONDS = 2.0  # a shorter task needs no line of its own
LINE_SECONDS = 10.0  # between two lines about the same task


class Task:
    """One long piece of work. `advance` counts what is done; notes are shown beside it."""

    def __init__(self, owner: "Progress", name: str, total: int, unit: str, done: int) -> None:
        self.name, self.total, self.unit, self.notes = name, total, unit, ""
        self.done = self.skipped = done
        self._owner = owner
        self._started = self._last_line = time.monotonic()
        self._bar = None if owner.bars is None else owner.bars.add_task(name, total=total, about="")

    def advance(self, count: int, **notes: float) -> None:
        self.done += count
        if notes:
            self.notes = "".join(f"  {name} {value:.3f}" for name, value in notes.items())
        now = time.monotonic()
        if self._owner.bars is not None and self._bar is not None:
            about = self._rate(now)
            self._owner.bars.update(
                self._bar, completed=self.done, description=self.name, about=about
            )
        elif now - self._last_line >= LINE_SECONDS:
            self._last_line = now
            left = (
                (self.total - self.done) * (now - self._started) / max(self.done - self.skipped, 1)
            )
            share = f"{100 * self.done / max(self.total, 1):.0f} %"
            self._owner.say(f"{self.name}: {share}, {clock(left)} left, {self._rate(now)}")

    def finish(self) -> None:
        now = time.monotonic()
        if now - self._started >= QUIET_SECONDS:
            self._owner.say(f"{self.name}: done in {clock(now - self._started)}, {self._rate(now)}")

    def _rate(self, now: float) -> str:
        rate = (self.done - self.skipped) / max(now - self._started, 1e-9)
        return f"{rate:,.0f} {self.unit}/s{self.notes}"


class Progress:
    """Where progress goes: `bars` on a terminal, `lines` for a log, `quiet`, or `auto`.

    Everything goes to standard error; results go to standard output.
    """

    def __init__(self, mode: Literal["auto", "bars", "lines", "quiet"] = "auto") -> None:
        self.console = Console(stderr=True, quiet=mode == "quiet", highlight=False, emoji=False)
        self.bars: RichProgress | None = None
        self._show_bars = mode == "bars" or (mode == "auto" and self.console.is_terminal)

    def say(self, message: str) -> None:
        self.console.print(message, soft_wrap=True, markup=False)

    @contextmanager
    def task(self, name: str, total: int, unit: str = "images", *, done: int = 0) -> Iterator[Task]:
        """Announce a piece of work of `total` units, of which an earlier process has `done` some."""
        columns = (
            "{task.description}",
            BarColumn(12),
            "{task.percentage:>3.0f} %",
            TimeRemainingColumn(),
        )
        rest = TextColumn("[dim]{task.fields[about]}", table_column=Column(ratio=1, no_wrap=True))
        if not self._show_bars:
            yield (task := Task(self, name, total, unit, done))
        else:
            with RichProgress(
                *columns, rest, console=self.console, transient=True, expand=True
            ) as self.bars:
                yield (task := Task(self, name, total, unit, done))
            self.bars = None
        task.finish()


def clock(seconds: float) -> str:
    """Seconds as people say them: 4.2 s, 1 min 15 s, 2 h 02 min, 12 days."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 72 * 60:
        return f"{round(minutes / 60 / 24):,} days"
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{seconds:.1f} s"
