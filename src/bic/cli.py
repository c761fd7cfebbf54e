"""The command line: parse, call, print."""

import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from cyclopts import App, CycloptsError, Parameter
from rich.console import Console

from bic.errors import LostError, UserError
from bic.learn.config import RunConfig, load_settings
from bic.progress import Progress
from bic.report import tables
from bic.version import __version__

app = App(
    name="bic",
    help="Teach an image classifier new classes batch by batch, without forgetting the old ones.",
    version=__version__,
    suppress_keyboard_interrupt=False,
    help_format="markdown",
    help_epilogue="Start with `bic demo`; every command's `--help` has examples.",
)
data_app = App(name="data", help="Fetch data sets.")
app.command(data_app)


def flag(text: str, name: str | None = None) -> Parameter:
    return Parameter(name, help=text, negative="", show_default=False)


Quiet = Annotated[bool, flag("Print results only, no progress.")]
Text: TypeAlias = str | None
Number: TypeAlias = int | None


@app.command
def demo(
    out: Annotated[Path, Parameter(help="Folder for all it writes.")] = Path("runs/demo"),
    *,
    seed: int = 0,
    quiet: Quiet = False,
) -> None:
    """Show the paper's story on handwritten digits: forgetting, bias, correction, upper bounds.

    Ten classes in five steps by every method, in well under a minute.

    Example: `bic demo --out runs/demo`
    """
    from bic.lab.demo import demo as run_demo

    results = run_demo(out, seed=seed, progress=Progress("quiet" if quiet else "auto"))
    console = Console()
    console.print(tables.comparison(results))
    console.print(tables.bias(next(result for result in results if result["method"] == "bic")))
    print(f"picture: {out / 'demo.png'}")
    print(f"run folders: {out}/*/ (try `bic show {out / 'bic'}`, or `bic report {out}` for a page)")


@app.command
def run(
    dataset: Annotated[
        str,
        Parameter(
            help="digits, cifar100, imagenet100, imagenet1000, or a path: .npz, Parquet, or image folders."
        ),
    ],
    *,
    data: Annotated[
        Path | None, flag("Where the named data set lies; its format is recognised.")
    ] = None,
    steps: Annotated[Number, flag("Number of equal steps.")] = None,
    step_sizes: Annotated[Text, flag("Classes per step instead, such as 50,10,10.")] = None,
    method: Annotated[
        Text, flag("bic, distill, finetune, lwf, icarl, eeil, fc-retrain or joint.")
    ] = None,
    recipe: Annotated[
        Text, flag("fast, best, characters, demo, vectors, paper-cifar100 or paper-imagenet.")
    ] = None,
    memory: Annotated[Text, flag("Budget over all classes: 2000 (images) or 64MB.")] = None,
    exemplars: Annotated[
        Literal["herding", "random"] | None, flag("How old images are chosen.")
    ] = None,
    held_out: Annotated[
        float | None, flag("Share of the exemplars held out for the correction.")
    ] = None,
    order_seed: Annotated[Number, flag("Seed of the class order; 1993 is the paper's.")] = None,
    seed: Annotated[Number, flag("Seed of everything else.")] = None,
    epochs: Annotated[
        Number, flag("Epochs per step; schedule and longer first steps scale with them.")
    ] = None,
    backbone: Annotated[
        Text,
        flag(
            "resnet32, resnet18, fast, wide, strokes, small, mlp or module:function; one+other side by side."
        ),
    ] = None,
    label: Annotated[Text, flag("Label column of Parquet files.")] = None,
    classes: Annotated[
        Text, flag("Only these classes: cat,dog, or a text file with one name a line.")
    ] = None,
    skip_bad: Annotated[bool | None, flag("Leave out broken images instead of stopping.")] = None,
    out: Annotated[
        Path | None, flag("The run folder; by default runs/ and the main settings.")
    ] = None,
    config: Annotated[Path | None, flag("A TOML file of settings.")] = None,
    set_: Annotated[
        tuple[str, ...], flag("A setting, as recipe.learning_rate=0.05; repeatable.", "--set")
    ] = (),
    threads: Annotated[Number, flag("Processor threads to use.")] = None,
    compile: Annotated[
        bool | None, Parameter(help="Compile the network; by default if that is measured to pay.")
    ] = None,
    workers: Annotated[
        Number, flag("Threads that prepare batches, or processes that decode files; 0: in line.")
    ] = None,
    device: Annotated[Text, flag("cpu or cuda; by default cuda if there is one.")] = None,
    quiet: Quiet = False,
) -> None:
    """Run one protocol with one method and leave a run folder.

    The same command again continues an unfinished run and does nothing for a finished one. A
    flag beats `--set` beats `--config`.

    For example:

    - `bic run digits --method bic`
    - `bic run cifar100 --data PATH --steps 5 --recipe fast`
    - `bic run photos/ --step-sizes 50,10,10 --memory 64MB --epochs 30`
    - `bic run cifar100 --config mine.toml --set recipe.learning_rate=0.05`
    - `torchrun --nproc-per-node 8 -m bic run imagenet1000 --data PATH --recipe paper-imagenet`
    """
    flags = {name: value for name, value in locals().items() if name in RunConfig.model_fields}
    settings = load_settings(config, set_, flags)
    from bic.lab.run import run as run_protocol

    progress = Progress("quiet" if quiet else "auto")
    result = run_protocol(
        settings, out, data=data, progress=progress, threads=threads, workers=workers, device=device
    )
    if (
        os.environ.get("RANK", "0") == "0"
    ):  # of several processes that torchrun started, one reports
        _print_run(result)


@app.command
def show(run: Path) -> None:
    """Print the tables of a run folder, or of its `result.json` alone.

    Example: `bic show runs/demo/bic`
    """
    from bic.store.results import read_config, read_result

    run = run.parent if run.is_file() else run
    if not (run / "config.json").exists() and len(inside := sorted(run.glob("*/result.json"))) > 1:
        raise UserError(
            f"{run} holds several runs; show one of them, such as {inside[0].parent}, or try bic report {run}"
        )
    if (run / "config.json").exists() or not (run / "result.json").exists():
        read_config(run)
    _print_run(read_result(run))


@app.command
def predict(
    run: Annotated[Path, Parameter(help="A complete run folder, or its `model` folder.")],
    images: Annotated[list[Path], Parameter(help="Image files, or folders of them.")],
    /,
    *,
    top: Annotated[int, Parameter(help="How many classes to name for each image.")] = 1,
    out: Annotated[Path | None, flag("A CSV file to write; by default it is printed.")] = None,
    skip_bad: Annotated[bool, flag("Leave out broken images instead of stopping.")] = False,
    quiet: Quiet = False,
) -> None:
    """Say which class each image is of, by the model that a run has left.

    Gives CSV: the file, its likeliest class, that class's probability, and so on for `--top` classes. (iCaRL answers by
    distances, which make no probabilities: its figures tell the order alone.)

    For example:

    - `bic predict runs/mine holiday.jpg`
    - `bic predict runs/mine photos/new/ --top 5 --out answers.csv`
    """
    from bic.files import write_file
    from bic.model.predict import answer, as_csv, image_files
    from bic.store.run_folder import load_model

    progress = Progress("quiet" if quiet else "auto")
    text = as_csv(
        answer(load_model(run), image_files(images), top=top, skip_bad=skip_bad, progress=progress)
    )
    if out is None:
        print(text, end="")
        return
    try:
        write_file(out, text.encode())
    except OSError as error:
        raise UserError(f"cannot write {out} ({error.strerror}); choose another --out") from error
    print(f"answers: {out}")


@app.command
def paper(
    experiment: Annotated[
        Text, Parameter(help="Such as table3; left out: what there is, and its cost here.")
    ] = None,
    *,
    recipe: Annotated[
        Text, flag("Such as fast; by default the paper's own, which takes days.")
    ] = None,
    seeds: Annotated[int, Parameter(help="Seeds 0, 1 … of every run.")] = 1,
    data: Annotated[
        tuple[str, ...], flag("Where the data lies: PATH, or NAME=PATH where several are needed.")
    ] = (),
    out: Annotated[Path, Parameter(help="Folder for all runs; shared ones are done once.")] = Path(
        "runs/paper"
    ),
    threads: Annotated[Number, flag("Processor threads to use.")] = None,
    quiet: Quiet = False,
) -> None:
    """Repeat one of the paper's experiments: its runs, and a table with ours beside the paper's.

    Interrupted, the same command goes on.

    For example:

    - `bic paper`
    - `bic paper table3 --recipe fast --seeds 3 --data PATH`
    - `bic paper fig6 --data imagenet1000=PATH --data celeb10000=PATH`
    """
    from bic.lab.paper import experiment_folder, overview, run_experiment
    from bic.lab.run import set_threads
    from bic.report import paper as paper_tables

    progress, console = Progress("quiet" if quiet else "auto"), Console()
    if experiment is None:
        set_threads(threads)
        console.print(paper_tables.overview(overview(out, recipe, seeds), recipe, seeds))
        return
    content = run_experiment(
        experiment, out, recipe=recipe, seeds=seeds, data=data, threads=threads, progress=progress
    )
    for table in paper_tables.tables(content, console.width):
        console.print(table)
    console.print(f"The paper: {content['claim']}.", highlight=False)
    if content["note"]:
        console.print(content["note"], highlight=False)
    print(f"written: {experiment_folder(out, experiment, recipe)}/ (Markdown, JSON, figures)")


@app.command
def report(
    *runs: Annotated[Path, Parameter(help="Run folders, folders that hold some, or result files.")],
    out: Annotated[
        Path | None, flag("The page; by default report.html in the folder given.")
    ] = None,
    single_file: Annotated[bool, flag("Put plotly's script into the page, to mail it.")] = False,
) -> None:
    """Make one HTML page of runs: accuracy, the bias and its correction, confusions, classes, calibration.

    The page needs no network. Runs of different protocols are compared within each.

    For example:

    - `bic report runs/demo`
    - `bic report runs/mine runs/other --out compared.html`
    - `bic report results/ --single-file`
    """
    from bic.report.page import write_report

    page = write_report(runs, out, single_file=single_file)
    print(f"report: {page} ({page.stat().st_size / 1e6:.1f} MB)")


@data_app.command
def get(name: str, *, out: Path | None = None, quiet: Quiet = False) -> None:
    """Download a data set, continuing a download that broke.

    Example: `bic data get cifar100`
    """
    from bic.data.download import data_home
    from bic.data.download import get as download

    print(download(name, out or data_home(), Progress("quiet" if quiet else "auto")))


def _print_run(result: tables.Result) -> None:
    console = Console()
    console.print(tables.steps(result))
    if any(step["alpha"] is not None for step in result["steps"]):
        console.print(tables.bias(result))


def _is_out_of_memory(error: Exception) -> bool:
    """In the words of Python, numpy and torch, which is not imported for it."""
    kind, words = type(error).__name__, ("can't allocate memory", "not enough memory")
    return (
        isinstance(error, MemoryError)
        or kind == "OutOfMemoryError"
        or any(each in str(error) for each in words)
    )


def main() -> None:
    """Run a command: exit code 2 for a user's mistake, 1 for a failure, no traceback."""
    errors = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)

    rank = os.environ.get(
        "RANK"
    )  # of several processes that torchrun started; the first speaks for them
    if rank in (None, "0"):
        warnings.showwarning = lambda message, *_, **__: errors.print(
            f"warning: {message}", markup=False
        )
    else:
        warnings.simplefilter("ignore")
    try:
        app(sys.argv[1:], exit_on_error=False, print_error=False)
        return
    except UserError as error:
        message, code = str(error), 2
    except CycloptsError as error:
        command = " ".join(["bic", *(error.command_chain or ())])
        message, code = f"{str(error).rstrip('.')}; {command} --help tells more", 2
    except KeyboardInterrupt:
        message, code = "stopped; the same command goes on from here", 130
    except LostError as error:
        message, code = str(error), 1
    except Exception as error:
        if os.environ.get("BIC_TRACEBACK"):
            raise
        message, code = f"failed: {type(error).__name__}: {error}; BIC_TRACEBACK=1 shows where", 1
        if _is_out_of_memory(error):
            then = "free some and run the same command again, or lower recipe.batch_size in another --out"
            message = f"the memory ran out ({str(error).splitlines()[0][:120]}); {then}"
    who = "bic" if rank is None else f"bic (process {rank})"
    errors.print(f"{who}: {' '.join(message.split())}", markup=False)
    sys.exit(code)
