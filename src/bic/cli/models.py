"""`bic predict`: use a saved model."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bic.cli.app import Quiet, SkipBad, Whole, app, flag, progress_for


@app.command
def predict(
    model: Annotated[Path, Parameter(help="A complete run folder, or a model folder.")],
    images: Annotated[list[Path], Parameter(help="Image files, or folders of images.")],
    /,
    *,
    top: Annotated[Whole, Parameter(help="Number of classes to print for each image.")] = 1,
    out: Annotated[Path | None, flag("A CSV file to write; by default it is printed.")] = None,
    skip_bad: SkipBad = False,
    trust: Annotated[
        bool, flag("Import the backbone that the model names, if it is not one of bic's own.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Predict the class of each image with a saved model.

    Prints CSV. Each line has a file, its most likely class and the probability of that class; with
    `--top 3`, the three most likely classes. (iCaRL answers with distances: its figures only rank
    the classes and are not probabilities.)

    For example:

    - `bic predict runs/mine holiday.jpg`
    - `bic predict runs/mine photos/new/ --top 5 --out answers.csv`
    """
    from bic.files import write_file
    from bic.model.model import Model
    from bic.model.predict import as_csv, image_files, predictions

    loaded = Model.load(model, trust=trust)
    rows = predictions(
        loaded, image_files(images), top=top, skip_bad=skip_bad, progress=progress_for(quiet)
    )
    text = as_csv(rows)
    if out is None:
        print(text, end="")
    else:
        write_file(out, text.encode())
        print(f"answers: {out}")
