"""What `bic learn` says before it starts, and about the change on old classes."""

from pathlib import Path

import pytest

from bic.model.intervals import Drop, Share
from bic.model.versions import Verdict
from bic.report.model_tables import change_in_words, expectation_lines, report_lines
from bic.store.learn_report import Expectation, LearnReport


@pytest.mark.parametrize(
    ("seconds", "line"),
    [
        (0.04, "expected: less than a second of training, up to 2.0 MB"),
        (4.25, "expected: about 4.2 s of training, up to 2.0 MB"),
        (None, "expected: up to 2.0 MB"),
    ],
)
def test_expected_time(seconds: float | None, line: str) -> None:
    expected = Expectation(
        version=2,
        new_classes=("cup",),
        known_classes=(),
        num_images=6,
        num_left_out=0,
        seconds=seconds,
        num_bytes=2_000_000,
        work="training",
        epochs_done=0,
    )
    assert list(expectation_lines(expected))[-1] == line


def test_a_rise_in_accuracy_is_a_gain() -> None:
    verdict = Verdict(
        is_judged=True,
        old_before=Share(70, 100),
        old_after=Share(55, 100),
        drop=Drop(lost=20, gained=5, total=100),
        restricted_drop=Drop(lost=5, gained=20, total=100),
    )
    report = LearnReport(version=2, is_live=True, new_classes=("cup",), verdict=verdict)
    lines = list(report_lines(report, Path("shop")))
    assert (
        "change on old classes: a drop of 15.0 points (5.1 to 24.3); if only old classes can be "
        "answered, as the gate judges, a gain of 15.0 points (5.1 to 24.3)" in lines
    )
    unchanged = change_in_words(Drop(lost=2, gained=2, total=100))
    assert unchanged == "no change (-4.7 to 4.7)"
