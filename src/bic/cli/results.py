"""`bic show` and `bic report`: tables and pages of recorded runs."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from bic.cli.app import app, flag
from bic.errors import UserError
from bic.report import tables
from bic.store.results import GIVE_A_RUN, Result, read_config, read_result


@app.command
def show(run: Path) -> None:
    """Print the tables of a run folder, or of its `result.json` alone.

    Example: `bic show runs/demo/bic`
    """
    folder = _run_folder(run)
    if (folder / "config.json").exists():
        read_config(folder)
    print_run(read_result(folder))


def _run_folder(run: Path) -> Path:
    """The folder of the run to show. Raises UserError for what is not a run."""
    folder = run.parent if run.name == "result.json" else run
    if (folder / "config.json").exists() or (folder / "result.json").exists():
        return folder
    if not run.exists():
        raise UserError(f"{run} does not exist", GIVE_A_RUN)
    runs_inside = [result.parent for result in sorted(run.glob("*/result.json"))]
    if len(runs_inside) > 1:
        raise UserError(
            f"{run} holds several runs",
            f"show one of them, such as {runs_inside[0]}, or try bic report {run}",
        )
    example = f", such as {runs_inside[0]}" if runs_inside else ""
    raise UserError(f"{run} is not a run", f"give a run folder or its result.json{example}")


@app.command
def report(
    *runs: Annotated[
        Path, Parameter(help="Run folders, folders that hold run folders, or result files.")
    ],
    out: Annotated[
        Path | None, flag("The page; by default report.html in the given folder.")
    ] = None,
    single_file: Annotated[bool, flag("Put plotly's script into the page, to mail it.")] = False,
) -> None:
    """Write one HTML page of runs: accuracy, bias, correction, confusions, classes, calibration.

    The page works offline. Runs are compared with runs of the same protocol.

    For example:

    - `bic report runs/demo`
    - `bic report runs/mine runs/other --out compared.html`
    - `bic report results/ --single-file`
    """
    from bic.report.page import write_report

    page = write_report(runs, out, single_file=single_file)
    print(f"report: {page} ({page.stat().st_size / 1e6:.1f} MB)")


def print_run(result: Result) -> None:
    """The tables of one run."""
    console = Console()
    console.print(tables.steps(result))
    if any(step.alpha is not None for step in result.steps):
        console.print(tables.bias(result))
