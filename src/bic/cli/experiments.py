"""`bic paper`: repeat the paper's experiments."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from bic.cli.app import Number, Quiet, Text, Whole, app, flag, progress_for


@app.command
def paper(
    experiment: Annotated[
        Text, Parameter(help="Such as table3; without it, all are listed with their cost here.")
    ] = None,
    *,
    recipe: Annotated[
        Text, flag("Such as fast; by default the paper's own, which takes days.")
    ] = None,
    seeds: Annotated[Whole, Parameter(help="Number of seeds: 0, 1 and so on.")] = 1,
    data: Annotated[
        tuple[str, ...], flag("Path of the data: PATH, or NAME=PATH if several are needed.")
    ] = (),
    out: Annotated[
        Path,
        Parameter(help="Folder for all runs; a run that several experiments need is done once."),
    ] = Path("runs/paper"),
    threads: Annotated[Number, flag("CPU threads to use.")] = None,
    quiet: Quiet = False,
) -> None:
    """Repeat an experiment of the paper, and print its results next to the paper's.

    Run the same command again to continue an interrupted experiment.

    For example:

    - `bic paper`
    - `bic paper table3 --recipe fast --seeds 3 --data PATH`
    - `bic paper fig6 --data imagenet1000=PATH --data celeb10000=PATH`
    """
    from bic.lab.paper import experiment_folder, overview, run_experiment
    from bic.lab.run import set_threads
    from bic.report import experiments as pages

    console = Console()
    if experiment is None:
        set_threads(threads)
        console.print(pages.overview(overview(out, recipe, seeds), recipe, seeds))
        return
    content = run_experiment(
        experiment,
        out,
        recipe=recipe,
        seeds=seeds,
        data=data,
        threads=threads,
        progress=progress_for(quiet),
    )
    folder = experiment_folder(out, experiment, recipe)
    pages.write(content, folder, out)
    for table in pages.tables(content, console.width):
        console.print(table)
    console.print(f"The paper: {content['claim']}.", highlight=False)
    if content["note"]:
        console.print(content["note"], highlight=False)
    print(f"written: {folder}/ (Markdown, JSON, figures)")
