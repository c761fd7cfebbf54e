"""Progress: bars on a terminal, few lines in a log, and nothing if quiet."""

import io
import re

import pytest
from rich.console import Console
from support.lines import Lines

from bic import Progress
from bic import progress as progress_module
from bic.progress import clock


class Clock:
    """A clock that tests move by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress_module, "time", made)
    return made


def test_long_task_says_a_line_every_ten_seconds(time: Clock) -> None:
    lines = Lines()
    with lines.task("step 1", 1000) as task:
        for _ in range(4):
            time.now += 6
            task.advance(100, loss=0.5)
    assert lines.said == [
        "step 1: 20 %, 48.0 s left, 17 images/s  loss 0.500",
        "step 1: 40 %, 36.0 s left, 17 images/s  loss 0.500",
        "step 1: done in 24.0 s, 17 images/s  loss 0.500",
    ]


def test_short_task_says_nothing(time: Clock) -> None:
    lines = Lines()
    with lines.task("short", 10) as task:
        time.now += 1.9
        task.advance(10)
    assert lines.said == []


def test_work_of_an_earlier_process_does_not_count_for_the_rate(time: Clock) -> None:
    lines = Lines()
    with lines.task("resumed", 1000, "rows", done=500) as task:
        time.now += 10
        task.advance(100)
    assert lines.said == [
        "resumed: 60 %, 40.0 s left, 10 rows/s",
        "resumed: done in 10.0 s, 10 rows/s",
    ]


def test_task_without_work_does_not_divide_by_zero(time: Clock) -> None:
    lines = Lines()
    with lines.task("empty", 0) as task:
        time.now += 20
        task.advance(0)
    assert lines.said[0].startswith("empty: 0 %, 0.0 s left, 0 images/s")


def shown(mode: str, *, is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a task writes to standard error."""
    stream = io.StringIO()

    def console(**options: object) -> Console:
        return Console(
            file=stream, force_terminal=is_terminal, width=100, quiet=bool(options["quiet"])
        )

    monkeypatch.setattr(progress_module, "Console", console)
    progress = Progress(mode)  # type: ignore[arg-type]
    with progress.task("step 1", 10) as task:
        task.advance(10)
        progress.say("a [bold] line")
    return stream.getvalue()


def test_terminal_gets_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown("auto", is_terminal=True, monkeypatch=monkeypatch)
    assert "\x1b[" in text
    assert re.search(r"step 1.*100 %", text)
    assert "\x1b[" in shown("bars", is_terminal=True, monkeypatch=monkeypatch)


def test_log_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    for mode in ("auto", "lines"):
        text = shown(mode, is_terminal=False, monkeypatch=monkeypatch)
        assert text == "a [bold] line\n"


def test_quiet_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown("quiet", is_terminal=True, monkeypatch=monkeypatch) == ""


def test_progress_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    Progress("lines").say("a line")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "a line\n")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"),
        (59.4, "59.4 s"),
        (59.6, "1 min 00 s"),
        (3599.6, "1 h 00 min"),
        (72 * 3600 - 60, "71 h 59 min"),
        (72 * 3600, "3 days"),
        (4000 * 86400, "4,000 days"),
    ],
)
def test_clock_in_words(seconds: float, words: str) -> None:
    assert clock(seconds) == words
