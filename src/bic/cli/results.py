"""`bic show` and `bic report`: tables and pages of recorded runs."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from bic.cli.app import app, flag
from bic.errors import UserError
from bic.report import tables
from bic.store.results import Result, read_config, read_result


@app.command
def show(run: Path) -> None:
    """Print the tables of a run folder, or of its `result.json` alone.

    Example: `bic show runs/demo/bic`
    """
    folder = run.parent if run.is_file() else run
    has_config = (folder / "config.json").exists()
    runs_inside = sorted(folder.glob("*/result.json"))
    if not has_config and len(runs_inside) > 1:
        first = runs_inside[0].parent
        raise UserError(
            f"{folder} holds several runs",
            f"show one of them, such as {first}, or try bic report {folder}",
        )
    if has_config or not (folder / "result.json").exists():
        read_config(folder)
    print_run(read_result(folder))


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
