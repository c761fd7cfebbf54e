"""The command line itself: failures, warnings, and how it writes settings."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command_line import Command, Outcome

from bic import LostError, RunConfig, UserError, __version__
from bic.cli.app import as_flag

Failing = Callable[[BaseException], Outcome]


@pytest.fixture
def failing(bic: Command, monkeypatch: pytest.MonkeyPatch) -> Failing:
    """Calls `bic run` and makes it raise an error."""

    def call(error: BaseException) -> Outcome:
        def fail(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr("bic.lab.run.run", fail)
        return bic("run", "digits")

    return call


def test_a_reader_that_has_enough_is_no_failure() -> None:
    """As in `bic history shop | head -1`."""
    code = (
        "import sys, bic.data.download\n"
        "bic.data.download.get = lambda *_: 'line\\n' * 10**5\n"
        "from bic.cli import main\n"
        "sys.argv = ['bic', 'data', 'get', 'cifar100']\n"
        "main()"
    )
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            LostError("another process was lost", "run again, or choose another {out}"),
            "bic: another process was lost; run again, or choose another --out\n",
        ),
        (
            MemoryError("Unable to allocate 8 GiB"),
            "bic: out of memory (Unable to allocate 8 GiB); free some",
        ),
        (MemoryError(), "bic: out of memory; free some and run the same command again"),
        (
            OSError(errno.ENOSPC, "No space left on device", "here/x"),
            "bic: cannot use here/x (No space left on device); check the path\n",
        ),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory"),
            "bic: out of memory (DefaultCPUAlloc",
        ),
        (
            RuntimeError("broken"),
            "bic: failed: RuntimeError: broken; set BIC_TRACEBACK=1 to see the traceback\n",
        ),
        (
            RuntimeError("\x1b[31mred"),
            "bic: failed: RuntimeError: \\x1b[31mred; set BIC_TRACEBACK=1",
        ),
        (ZeroDivisionError("division\nby zero"), "bic: failed: ZeroDivisionError: division by"),
    ],
)
def test_failure_is_one_sentence_and_exit_code_1(
    failing: Failing, error: Exception, sentence: str
) -> None:
    outcome = failing(error)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith(sentence)
    assert outcome.err.count("\n") == 1


def test_path_that_cannot_be_used_is_a_mistake(failing: Failing) -> None:
    outcome = failing(OSError(errno.ENAMETOOLONG, "File name too long", "x" * 300))
    sentence = f"bic: cannot use {'x' * 200}… (File name too long); check the path\n"
    assert outcome == Outcome(2, "", sentence)


def test_traceback_is_shown_on_request(failing: Failing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIC_TRACEBACK", "1")
    with pytest.raises(RuntimeError, match="broken"):
        failing(RuntimeError("broken"))
    assert failing(UserError("wrong", "fix it")).err == "bic: wrong; fix it\n"


def test_interrupt_has_its_own_exit_code(failing: Failing) -> None:
    outcome = failing(KeyboardInterrupt())
    assert outcome.code == 130
    assert outcome.err == "bic: stopped; run the same command again to continue\n"


@pytest.mark.parametrize(
    ("remedy", "python", "command_line"),
    [
        ("raise {memory}", "raise memory", "raise --memory"),
        ("use {backbone=small}", 'use backbone="small"', "use --backbone small"),
        ("use {step_sizes=4,3,3}", "use step_sizes=(4, 3, 3)", "use --step-sizes 4,3,3"),
        ("set {skip_bad}", "set skip_bad", "set --skip-bad"),
        ("use {held_out=0.2}", "use held_out=0.2", "use --held-out 0.2"),
        ("pass {data=PATH}", 'pass data="PATH"', "pass --data PATH"),
        ("pass {data=cifar100=PATH}", 'pass data="cifar100=PATH"', "pass --data cifar100=PATH"),
        ("use {label=None of these}", 'use label="None of these"', "use --label None of these"),
        (
            "lower {recipe.learning_rate} and choose another {out}",
            "lower recipe.learning_rate and choose another out",
            "lower recipe.learning_rate (--set recipe.learning_rate=VALUE) and "
            "choose another --out",
        ),
        (
            "use {recipe.image_size=32}",
            "use recipe.image_size=32",
            "use --set recipe.image_size=32",
        ),
        ("fix {class_order}", "fix class_order", "fix class_order (--set class_order=VALUE)"),
        ("add images", "add images", "add images"),
    ],
)
def test_every_face_writes_settings_its_own_way(
    failing: Failing, remedy: str, python: str, command_line: str
) -> None:
    error = UserError("it is too small", remedy)
    assert str(error) == f"it is too small; {python}"
    outcome = failing(error)
    assert outcome.code == 2
    assert outcome.err == f"bic: it is too small; {command_line}\n"


# Without the data set, which is an argument, and the table of a method's own settings.
SETTINGS = sorted(RunConfig.model_fields.keys() - {"dataset", "method_settings"})


@pytest.mark.parametrize("name", SETTINGS)
def test_setting_without_its_own_flag_is_written_with_set(bic: Command, name: str) -> None:
    flag = f"--{name.replace('_', '-')}"
    has_flag = f"{flag} " in bic("run", "--help").out
    assert as_flag(name, None) == (flag if has_flag else f"{name} (--set {name}=VALUE)")


@pytest.mark.filterwarnings("always::bic.HeldOutWarning")
def test_warning_is_one_line(bic: Command) -> None:
    outcome = bic("run", "digits", "--memory", "20", "--epochs", "1", "--quiet")
    assert outcome.code == 0
    lines = outcome.err.splitlines()
    assert lines
    for line in lines:
        assert line.startswith("warning: the held-out set is too small to trust (")


def test_installed_command_starts(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bic", "--version"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0
    assert done.stdout.strip() == __version__
