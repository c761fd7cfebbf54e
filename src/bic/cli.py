"""The command line: parse, call, print."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

from cyclopts import App, CycloptsError, Parameter
from rich.console import Console

from bic.config import load_settings
from bic.errors import UserError
from bic.progress import Progress
from bic.report import tables
from bic.report.tables import Result
from bic.version import __version__

app = App(
    name="bic",
    help="Teach an image classifier new classes batch by batch, without forgetting the old ones.",
    version=__version__,
    help_format="markdown",
    help_epilogue="Start with `bic demo`; every command has its own `--help` with examples.",
)
data_app = App(name="data", help="Fetch data sets.")
app.command(data_app)

Quiet = Annotated[bool, Parameter(negative="", help="Print results only, no progress.")]
Out = Annotated[Path, Parameter(help="Folder for everything it writes.")]


@app.command
def demo(out: Out = Path("runs/demo"), *, seed: int = 0, quiet: Quiet = False) -> None:
    """Show the paper's story on handwritten digits: forgetting, bias, correction, upper bounds.

    Ten classes in five steps by every method, about a minute on two cores.

    Example: `bic demo --out runs/demo`
    """
    from bic.demo import demo as run_demo

    results = run_demo(out, seed=seed, progress=_progress(quiet))
    console = Console()
    console.print(tables.comparison(results))
    console.print(tables.bias(next(result for result in results if result["method"] == "bic")))
    print(f"picture: {out / 'demo.png'}")
    print(f"run folders: {out}/*/ (try `bic show {out / 'bic'}`)")


@app.command
def run(
    dataset: str,
    *,
    data: Path | None = None,
    steps: int | None = None,
    step_sizes: str | None = None,
    method: str | None = None,
    recipe: str | None = None,
    memory: str | None = None,
    exemplars: Literal["herding", "random"] | None = None,
    held_out: float | None = None,
    order_seed: int | None = None,
    seed: int | None = None,
    epochs: int | None = None,
    backbone: str | None = None,
    label: str | None = None,
    skip_bad: Annotated[bool | None, Parameter(negative="")] = None,
    out: Path | None = None,
    config: Path | None = None,
    set_: Annotated[tuple[str, ...], Parameter(name="--set", negative="")] = (),
    threads: int | None = None,
    device: str | None = None,
    quiet: Quiet = False,
) -> None:
    """Run one protocol with one method and leave a run folder.

    The same command again continues an unfinished run and does nothing for a finished one. A
    flag beats `--set` beats `--config`.

    Examples:

    - `bic run digits --method bic`
    - `bic run cifar100 --data PATH --steps 5 --recipe fast`
    - `bic run photos/ --step-sizes 50,10,10 --memory 64MB --epochs 30`
    - `bic run cifar100 --config mine.toml --set recipe.learning_rate=0.05`

    Parameters
    ----------
    dataset
        A name (digits, cifar100) or a path: an .npz file, a folder of Parquet files, or a folder
        with train/CLASS/ and test/CLASS/ of images.
    data
        Where the named data set lies; its format is recognised by looking.
    steps
        Number of equal steps.
    step_sizes
        Classes per step instead, such as 50,10,10,10,10,10.
    method
        bic (default), distill, finetune, lwf, icarl, eeil, or an upper bound: fc-retrain, joint.
    recipe
        Network and schedule: demo, fast, vectors, paper-cifar100, paper-imagenet.
    memory
        Budget for old images over all classes: 2000 (images) or 64MB (bytes).
    exemplars
        How they are chosen.
    held_out
        Share of the exemplars held out for the correction.
    order_seed
        Seed of the class order; 1993 is the paper's.
    seed
        Seed of everything else.
    epochs
        Epochs per step; the schedule is scaled with them.
    backbone
        Another network: resnet32, resnet18, fast, small, mlp, or module:function.
    label
        Label column of Parquet files.
    skip_bad
        Leave out broken images instead of stopping.
    out
        The run folder; by default runs/ and a name made of the main settings.
    config
        A TOML file of settings.
    set_
        One setting, such as recipe.learning_rate=0.05; may be repeated.
    threads
        Processor threads to use.
    device
        cpu or cuda; by default cuda if there is one.
    """
    from bic.run import run as run_protocol

    flags: dict[str, Any] = {
        "dataset": dataset,
        "steps": steps,
        "step_sizes": None if step_sizes is None else step_sizes.split(","),
        "method": method,
        "recipe.name": recipe,
        "memory": memory,
        "exemplars": exemplars,
        "held_out": held_out,
        "order_seed": order_seed,
        "seed": seed,
        "epochs": epochs,
        "backbone": backbone,
        "label": label,
        "skip_bad": skip_bad,
    }
    settings = load_settings(config, set_, flags)
    result = run_protocol(
        settings, out, data=data, progress=_progress(quiet), threads=threads, device=device
    )
    _print_run(result)


@app.command
def show(run: Path) -> None:
    """Print the tables of a run folder.

    Example: `bic show runs/demo/bic`
    """
    from bic.run_folder import read_config, read_result

    read_config(run)
    _print_run(read_result(run))


@data_app.command
def get(name: str, *, out: Path | None = None, quiet: Quiet = False) -> None:
    """Download a data set, continuing a download that broke.

    Example: `bic data get cifar100`
    """
    from bic.data.download import data_home
    from bic.data.download import get as download

    print(download(name, out or data_home(), _progress(quiet)))


def _progress(quiet: bool) -> Progress:
    return Progress("quiet" if quiet else "auto")


def _print_run(result: Result) -> None:
    console = Console()
    console.print(tables.steps(result))
    if any(step["alpha"] is not None for step in result["steps"]):
        console.print(tables.bias(result))
    if result["complete"]:
        console.print(
            f"final {result['final_top1']:.2f} %, average over all steps "
            f"{result['average_top1']:.2f} %"
        )


def main() -> None:
    """Run a command: exit code 2 for a user's mistake, 1 for a failure, no traceback."""
    errors = Console(stderr=True, highlight=False, soft_wrap=True)

    def stop(message: str, code: int) -> NoReturn:
        errors.print(f"bic: {message}", markup=False)
        sys.exit(code)

    def warn(message: Warning | str, *_: object) -> None:
        errors.print(f"warning: {message}", markup=False)

    warnings.showwarning = warn
    try:
        app(exit_on_error=False, print_error=False)
    except (UserError, CycloptsError) as error:
        stop(" ".join(str(error).split()), 2)
    except KeyboardInterrupt:
        stop("stopped; the same command goes on from here", 130)
    except Exception as error:
        if os.environ.get("BIC_TRACEBACK"):
            raise
        stop(f"failed: {type(error).__name__}: {error}; BIC_TRACEBACK=1 shows where", 1)
