"""The application object, flags that several commands share, and how errors are printed."""

import os
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, TypeAlias

from cyclopts import App, CycloptsError, Parameter, Token
from rich.console import Console

from bic.errors import BicError, LostError, show_warnings
from bic.files import file_error
from bic.progress import Progress
from bic.report.command import WITHOUT_FLAG
from bic.text import printable
from bic.version import __version__

SIGPIPE_CODE = 141  # what a shell reports for a program that SIGPIPE has ended
MAX_PATH_SHOWN = 200  # characters

app = App(
    name="bic",
    help="Teach an image classifier new classes batch by batch, with few old images or none.",
    version=__version__,
    suppress_keyboard_interrupt=False,
    help_format="markdown",
    help_epilogue="Start with `bic demo`. The `--help` of every command has examples.",
)


def flag(text: str, name: str | None = None) -> Parameter:
    """A flag with a help text, without a --no- form and without a default in the help."""
    return Parameter(name, help=text, negative="", show_default=False)


def whole_number(_: object, tokens: Sequence[Token]) -> int:
    """A whole number as it is written; cyclopts would round 3.7 to 4."""
    text = tokens[0].value
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"must be a whole number, got {text}") from None


Quiet = Annotated[bool, flag("Print results only, no progress.")]
SkipBad = Annotated[bool, flag("Leave out broken images instead of stopping.")]
Text: TypeAlias = str | None
Whole = Annotated[int, Parameter(converter=whole_number)]
Number = Annotated[int | None, Parameter(converter=whole_number)]


def progress_for(quiet: bool) -> Progress:
    return Progress("quiet" if quiet else "auto")


def as_flag(name: str, value: str | None) -> str:
    """A setting as the command line writes it.

    >>> as_flag("held_out", "0.2"), as_flag("memory", None)
    ('--held-out 0.2', '--memory')
    >>> as_flag("recipe.learning_rate", None), as_flag("recipe.image_size", "32")
    ('recipe.learning_rate (--set recipe.learning_rate=VALUE)', '--set recipe.image_size=32')
    >>> as_flag("method_settings.random_features", None)
    '--random-features'
    """
    if name == "method_settings.random_features":  # the one setting of a method with a flag
        name = "random_features"
    if "." in name or name in WITHOUT_FLAG:
        if value is None:
            return f"{name} (--set {name}=VALUE)"
        return f"--set {name}={value}"
    written = f"--{name.replace('_', '-')}"
    return written if value is None else f"{written} {value}"


def main() -> None:
    """Run a command. Exit code 2 for a user's mistake, 1 for a failure; no traceback."""
    console = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
    rank = os.environ.get("RANK")  # set by torchrun; only rank 0 prints warnings
    if rank in (None, "0"):
        show_warnings(lambda text: console.print(printable(f"warning: {text}"), markup=False))
    else:
        warnings.simplefilter("ignore")
    try:
        app(sys.argv[1:], exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
        return
    except BicError as error:
        message = error.phrased(as_flag)
        code = exit_code(error)
    except CycloptsError as error:
        command = " ".join(["bic", *(error.command_chain or ())])
        message = f"{_short_sentence(str(error))} see {command} --help"
        code = 2
    except BrokenPipeError:  # what reads the output, such as head, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for Python's last flush
        sys.exit(SIGPIPE_CODE)
    except KeyboardInterrupt:
        message = "stopped; run the same command again to continue"
        code = 130
    except Exception as error:
        if os.environ.get("BIC_TRACEBACK"):
            raise
        message, code = _failure(error)
    speaker = "bic" if rank is None else f"bic (process {rank})"
    console.print(printable(f"{speaker}: {' '.join(message.split())}"), markup=False)
    sys.exit(code)


def _short_sentence(text: str) -> str:
    """What cyclopts says, without its list of commands, which it cuts anywhere.

    >>> _short_sentence('Unknown command "lern". Did you mean "learn"? Available commands: show, ')
    'Unknown command "lern". Did you mean "learn"? Or'
    >>> _short_sentence("Unknown option: --x.")
    'Unknown option: --x;'
    """
    text = text.partition(" Available commands:")[0].rstrip(". ")
    return f"{text} Or" if text.endswith("?") else f"{text};"


def exit_code(error: BicError) -> int:
    return 1 if isinstance(error, LostError) else 2


def _failure(error: Exception) -> tuple[str, int]:
    """The sentence and the exit code for an error that no command expected."""
    if _is_out_of_memory(error):
        reason = f" ({str(error).splitlines()[0][:120]})" if str(error) else ""
        sentence = (
            f"out of memory{reason}; free some and run the same command again, "
            "or use a new folder and lower recipe.batch_size (--set recipe.batch_size=VALUE)"
        )
        return sentence, 1
    if isinstance(error, OSError) and error.filename is not None:
        known = file_error(error, f"cannot use {_short(error.filename)}", "check the path")
        return str(known), exit_code(known)
    reason = f"{type(error).__name__}: {error}"
    return f"failed: {reason}; set BIC_TRACEBACK=1 to see the traceback", 1


def _short(filename: object) -> str:
    """A path as a sentence shows it: the beginning of one that is too long to be a path."""
    text = str(filename)
    return text if len(text) <= MAX_PATH_SHOWN else f"{text[:MAX_PATH_SHOWN]}…"


def _is_out_of_memory(error: Exception) -> bool:
    """Whether Python, numpy or torch ran out of memory. Does not import torch."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return any(text in str(error) for text in ("can't allocate memory", "not enough memory"))
