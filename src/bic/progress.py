"""Progress of long tasks: bars on a terminal, plain lines in a log, or nothing."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.table import Column

from bic.text import printable

QUIET_SECONDS = 2.0  # a shorter task gets no line
LINE_SECONDS = 10.0  # between two lines about the same task


class Task:
    """One long task. `advance` counts finished units; notes are shown next to the rate."""

    def __init__(self, owner: "Progress", name: str, total: int, unit: str, done: int) -> None:
        self.name = printable(name)
        self.total = total
        self.unit = unit
        self.notes = ""
        self.done = done
        self.done_before = done
        self._owner = owner
        self._start = time.monotonic()
        self._last_line = self._start
        self._bar = None
        if owner.bars is not None:
            self._bar = owner.bars.add_task(self.name, total=total, about="")

    def advance(self, count: int, **notes: float) -> None:
        self.done += count
        if notes:
            self.notes = "".join(f"  {name} {value:.3f}" for name, value in notes.items())
        now = time.monotonic()
        if self._owner.bars is not None and self._bar is not None:
            self._owner.bars.update(
                self._bar,
                completed=self.done,
                description=printable(self.name),
                about=self._rate(now),
            )
        elif now - self._last_line >= LINE_SECONDS:
            self._last_line = now
            self._owner.say(self._line(now))

    def finish(self) -> None:
        now = time.monotonic()
        seconds = now - self._start
        if seconds >= QUIET_SECONDS:
            self._owner.say(f"{self.name}: done in {clock(seconds)}, {self._rate(now)}")

    def _line(self, now: float) -> str:
        done_here = max(self.done - self.done_before, 1)
        seconds_left = (self.total - self.done) * (now - self._start) / done_here
        percent = 100 * self.done / max(self.total, 1)
        return f"{self.name}: {percent:.0f} %, {clock(seconds_left)} left, {self._rate(now)}"

    def _rate(self, now: float) -> str:
        rate = (self.done - self.done_before) / max(now - self._start, 1e-9)
        return f"{rate:,.0f} {self.unit}/s{self.notes}"


class Progress:
    """Where progress is shown: `bars` on a terminal, `lines` in a log, `quiet`, or `auto`.

    Everything goes to standard error; results go to standard output.
    """

    def __init__(self, mode: Literal["auto", "bars", "lines", "quiet"] = "auto") -> None:
        self.console = Console(stderr=True, quiet=mode == "quiet", highlight=False, emoji=False)
        self.bars: RichProgress | None = None
        self._shows_bars = mode == "bars" or (mode == "auto" and self.console.is_terminal)

    def say(self, message: str) -> None:
        self.console.print(printable(message), soft_wrap=True, markup=False)

    @contextmanager
    def task(self, name: str, total: int, unit: str = "images", *, done: int = 0) -> Iterator[Task]:
        """Show a task of `total` units. An earlier process has finished `done` of them."""
        if not self._shows_bars:
            task = Task(self, name, total, unit, done)
            yield task
        else:
            with self._new_bars() as self.bars:
                task = Task(self, name, total, unit, done)
                yield task
            self.bars = None
        task.finish()

    def _new_bars(self) -> RichProgress:
        return RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(12),
            "{task.percentage:>3.0f} %",
            TimeRemainingColumn(),
            TextColumn("[dim]{task.fields[about]}", table_column=Column(ratio=1, no_wrap=True)),
            console=self.console,
            transient=True,
            expand=True,
        )


def clock(seconds: float) -> str:
    """Seconds in words.

    >>> clock(4.2), clock(75), clock(7320), clock(12 * 86400)
    ('4.2 s', '1 min 15 s', '2 h 02 min', '12 days')
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 72 * 60:
        return f"{round(minutes / 60 / 24):,} days"
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{seconds:.1f} s"
