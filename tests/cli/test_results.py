"""`bic show` and `bic report`: recorded runs, alone or several."""

import shutil
from pathlib import Path

import pytest
from support.command_line import Command, assert_refused

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")


@pytest.fixture
def printed(bic: Command) -> str:
    """What `bic run` prints about a run in the folder `here`."""
    outcome = bic("run", "digits", "--epochs", "1", "--quiet", "--out", "here")
    assert outcome.code == 0
    return outcome.out


def test_show_prints_what_the_run_printed(bic: Command, tmp_path: Path, printed: str) -> None:
    assert bic("show", "here").out == printed
    assert bic("show", "here/result.json").out == printed
    (tmp_path / "alone").mkdir()
    shutil.copy(tmp_path / "here" / "result.json", tmp_path / "alone")
    assert bic("show", "alone").out == printed
    assert bic("show", "alone/result.json").out == printed


def test_show_wants_one_run(bic: Command, tmp_path: Path, printed: str) -> None:
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    assert_refused(
        bic("show", tmp_path),
        f"{tmp_path} holds several runs; show one of them, such as {tmp_path}/here, or try "
        f"bic report {tmp_path}",
    )


def test_show_names_what_is_not_a_run(bic: Command, tmp_path: Path, printed: str) -> None:
    give = "is not a run; give a run folder or its result.json"
    (tmp_path / "empty").mkdir()
    assert_refused(bic("show", "empty"), f"bic: empty {give}\n")
    assert_refused(bic("show", "here/config.json"), f"bic: here/config.json {give}\n")
    assert_refused(bic("show", tmp_path), f"bic: {tmp_path} {give}, such as {tmp_path}/here\n")
    missing = "does not exist; give a folder that bic run has written"
    assert_refused(bic("show", "empty/result.json"), f"bic: empty/result.json {missing}\n")


def test_report_writes_one_page(bic: Command, tmp_path: Path, printed: str) -> None:
    outcome = bic("report", "here", "--out", "page.html")
    assert outcome.code == 0
    assert outcome.out.startswith("report: page.html (")
    assert "digits" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert_refused(bic("report", "nowhere"), "nowhere")
