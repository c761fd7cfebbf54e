"""`bic run` and `bic demo`: run protocols."""

import os
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.console import Console

from bic.cli.app import Number, Quiet, Text, Whole, app, flag, progress_for
from bic.cli.results import print_run
from bic.lab.plan import load_settings
from bic.learn.methods import METHODS
from bic.learn.recipes import RECIPES

DEFAULT_METHOD = "By default bic for the paper's data sets, and bic-means for all others."


def one_of(names: list[str]) -> str:
    """
    >>> one_of(["a", "b", "c"])
    'a, b or c.'
    """
    return f"{', '.join(names[:-1])} or {names[-1]}."


@app.command
def run(
    dataset: Annotated[
        str,
        Parameter(
            help="digits, cifar100, imagenet100, imagenet1000, or a path: .npz, Parquet, folders."
        ),
    ],
    *,
    data: Annotated[Path | None, flag("Path of the named data set, in any known format.")] = None,
    steps: Annotated[Number, flag("Number of equal steps.")] = None,
    step_sizes: Annotated[Text, flag("Number of classes in each step, such as 50,10,10.")] = None,
    method: Annotated[Text, flag(f"{one_of(list(METHODS))} {DEFAULT_METHOD}")] = None,
    recipe: Annotated[Text, flag(one_of(list(RECIPES)))] = None,
    memory: Annotated[Text, flag("Budget over all classes: 2000 (images) or 64MB.")] = None,
    exemplars: Annotated[
        Literal["herding", "random"] | None, flag("How exemplars are chosen.")
    ] = None,
    held_out: Annotated[
        float | None, flag("Share of the exemplars held out for the correction.")
    ] = None,
    held_out_limit: Annotated[
        Text, flag("Most held-out images of old classes, and of new ones; none: no limit.")
    ] = None,
    order_seed: Annotated[Number, flag("Seed of the class order; 1993 is the paper's.")] = None,
    seed: Annotated[Number, flag("Seed of every random draw except the class order.")] = None,
    epochs: Annotated[
        Number, flag("Epochs per step; the schedule and the first step's epochs scale with it.")
    ] = None,
    backbone: Annotated[
        Text,
        flag(
            "resnet32, resnet18, fast, wide, strokes, small, mlp, lite0, lite2, hf:NAME_OR_FOLDER "
            "or module:function; fast+fast is an ensemble of two."
        ),
    ] = None,
    tune: Annotated[bool | None, flag("Train a pretrained backbone too.")] = None,
    random_features: Annotated[Number, flag("Random features of ridge; 2000 by default.")] = None,
    label: Annotated[Text, flag("Label column of Parquet files or CIFAR-100.")] = None,
    classes: Annotated[
        Text, flag("Only these classes: cat,dog, or a text file with one name per line.")
    ] = None,
    skip_bad: Annotated[bool | None, flag("Leave out broken images instead of stopping.")] = None,
    out: Annotated[
        Path | None, flag("The run folder; by default in runs/, named by the main settings.")
    ] = None,
    config: Annotated[Path | None, flag("A TOML file of settings.")] = None,
    set_: Annotated[
        tuple[str, ...], flag("A setting: recipe.learning_rate=0.05; can be repeated.", "--set")
    ] = (),
    threads: Annotated[Number, flag("CPU threads to use.")] = None,
    compile: Annotated[
        bool | None, Parameter(help="Compile the network; by default only if this saves time.")
    ] = None,
    workers: Annotated[
        Number, flag("Threads that prepare batches, or processes that decode files; 0 for none.")
    ] = None,
    device: Annotated[Text, flag("cpu or cuda; by default cuda if there is one.")] = None,
    quiet: Quiet = False,
) -> None:
    """Learn the classes of a data set in steps, test after each step, and write a run folder.

    Run the same command again to continue an unfinished run; a finished run is only shown. A flag
    overrides `--set`, which overrides `--config`.

    For example:

    - `bic run digits --method bic`
    - `bic run cifar100 --data PATH --steps 5 --recipe fast`
    - `bic run photos/ --step-sizes 50,10,10 --memory 64MB --epochs 30`
    - `bic run cifar100 --config mine.toml --set recipe.learning_rate=0.05`
    - `torchrun --nproc-per-node 8 -m bic run imagenet1000 --data PATH --recipe paper-imagenet`
    """
    flags = {
        "dataset": dataset,
        "steps": steps,
        "step_sizes": step_sizes,
        "method": method,
        "recipe": recipe,
        "memory": memory,
        "exemplars": exemplars,
        "held_out": held_out,
        "held_out_limit": held_out_limit,
        "order_seed": order_seed,
        "seed": seed,
        "epochs": epochs,
        "backbone": backbone,
        "tune": tune,
        "label": label,
        "classes": classes,
        "skip_bad": skip_bad,
        "compile": compile,
    }
    if random_features is not None:
        set_ = (*set_, f"method_settings.random_features={random_features}")
    settings = load_settings(config, set_, flags)
    from bic.lab.run import run as run_protocol

    result = run_protocol(
        settings,
        out,
        data=data,
        progress=progress_for(quiet),
        threads=threads,
        workers=workers,
        device=device,
    )
    if os.environ.get("RANK", "0") == "0":  # of the processes that torchrun started, one prints
        print_run(result)


@app.command
def demo(
    out: Annotated[Path, Parameter(help="Folder for the runs and the picture.")] = Path(
        "runs/demo"
    ),
    *,
    seed: Whole = 0,
    quiet: Quiet = False,
) -> None:
    """Show the paper's findings on handwritten digits: forgetting, bias, correction, upper bounds.

    Ten classes in five steps with the methods of the paper, in well under a minute.

    Example: `bic demo --out runs/demo`
    """
    from bic.lab.demo import demo as run_demo
    from bic.report import tables
    from bic.report.plots import draw_demo

    results = run_demo(out, seed=seed, progress=progress_for(quiet))
    picture = draw_demo(results, out)
    console = Console()
    console.print(tables.comparison(results))
    console.print(tables.bias(next(result for result in results if result.method == "bic")))
    print(f"picture: {picture}")
    print(f"run folders: {out}/*/ (try `bic show {out / 'bic'}`, or `bic report {out}` for a page)")
