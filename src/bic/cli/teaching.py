"""`bic learn`: teach a model new classes."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from bic.cli.app import Number, Quiet, SkipBad, Text, app, flag, progress_for
from bic.cli.runs import one_of
from bic.errors import LostError
from bic.learn.methods import METHODS
from bic.learn.recipes import RECIPES
from bic.settings import assigned

ModelPath = Annotated[Path, Parameter(help="The folder of the model.")]
DEFAULT_METHOD = "By default ridge for photographs, and bic-means for all others."
TEACHABLE = [name for name, method in METHODS.items() if not method.is_upper_bound]


@app.command
def learn(
    model: Annotated[Path, Parameter(help="The folder of the model; it is created if missing.")],
    images: Annotated[
        Path, Parameter(help="A folder with one folder per class, a Parquet file or an .npz file.")
    ],
    /,
    *,
    recipe: Annotated[Text, flag(one_of(list(RECIPES)))] = None,
    method: Annotated[Text, flag(f"{one_of(TEACHABLE)} {DEFAULT_METHOD}")] = None,
    memory: Annotated[Text, flag("Budget over all classes: 2000 (images) or 64MB.")] = None,
    image_size: Annotated[Number, flag("Pixels a side to which images are brought.")] = None,
    held_out: Annotated[float | None, flag("Share of the exemplars that is held out.")] = None,
    exemplars: Annotated[
        Literal["herding", "random"] | None, flag("How exemplars are chosen.")
    ] = None,
    epochs: Annotated[Number, flag("Epochs per version; more for the first one.")] = None,
    backbone: Annotated[
        Text, flag("The network, such as resnet32; by default the recipe's.")
    ] = None,
    tune: Annotated[bool, flag("Train a pretrained backbone too.")] = False,
    random_features: Annotated[Number, flag("Random features of ridge; 2000 by default.")] = None,
    seed: Annotated[Number, flag("Seed of every random draw.")] = None,
    set_: Annotated[
        tuple[str, ...],
        flag("A setting of the recipe: recipe.learning_rate=0.05; can be repeated.", "--set"),
    ] = (),
    max_drop: Annotated[
        float, Parameter(help="Points by which the accuracy on old classes may fall.")
    ] = 10.0,
    force: Annotated[bool, flag("Let the version go live whatever the gate says.")] = False,
    again: Annotated[bool, flag("Also learn images that were learned before.")] = False,
    keep: Annotated[Number, flag("Number of versions to keep; 5 by default.")] = None,
    label: Annotated[Text, flag("Label column of Parquet files.")] = None,
    skip_bad: SkipBad = False,
    trust: Annotated[bool, flag("Import the backbone that the model names.")] = False,
    threads: Annotated[Number, flag("CPU threads to use.")] = None,
    device: Annotated[Text, flag("cpu or cuda; by default cuda if there is one.")] = None,
    quiet: Quiet = False,
) -> None:
    """Teach a model new classes, or more images of known classes.

    The first call creates the model. The settings from `--recipe` to `--set` are chosen then and
    stay. Run the same command again to continue an interrupted lesson.

    For example:

    - `bic learn shop photos/`
    - `bic learn shop photos/ --memory 64MB --image-size 96`
    - `bic learn shop photos/ --set recipe.learning_rate=0.05`
    - `bic learn shop more-photos/ --max-drop 5`
    """
    import torch

    from bic.lab.run import set_threads
    from bic.report.model_tables import expectation_lines, report_lines
    from bic.store.learn_report import Expectation
    from bic.store.model_folder import open_model

    progress = progress_for(quiet)
    set_threads(threads)

    def announce(expected: Expectation) -> None:
        for line in expectation_lines(expected):
            progress.say(line)

    flags = {
        "recipe": recipe,
        "method": method,
        "memory": memory,
        "image_size": image_size,
        "held_out": held_out,
        "exemplars": exemplars,
        "epochs": epochs,
        "backbone": backbone,
        "tune": tune or None,
        "random_features": random_features,
        "seed": seed,
    }
    taught = open_model(
        model,
        progress=progress,
        device=device or ("cuda" if torch.cuda.is_available() else "cpu"),
        trust=trust,
        **assigned(set_, flags),
    )
    report = taught.learn(
        images,
        again=again,
        force=force,
        max_drop=max_drop,
        keep=keep,
        label=label,
        skip_bad=skip_bad,
        announce=None if quiet else announce,
    )
    for line in report_lines(report, model):
        print(line)
    if report.refusal is not None:
        raise LostError(
            f"version {report.version} was refused: {report.refusal}",
            "run the same command with {force} to let it go live all the same",
        )
