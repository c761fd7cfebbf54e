"""`bic predict` and `bic evaluate`: use a saved model."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from bic.cli.app import Quiet, SkipBad, Text, Whole, app, flag, progress_for
from bic.errors import UserError
from bic.files import to_json
from bic.text import printable

ModelFolder = Annotated[Path, Parameter(help="A model folder, or a complete run folder.")]
Trust = Annotated[
    bool, flag("Import the backbone that the model names, if it is not one of bic's own.")
]
Device = Annotated[Text, flag("cpu or cuda; by default cuda if there is one.")]
Reject = Annotated[
    float | None,
    flag("Answer `none of these` at the price of wrongly rejecting this share, such as 0.05."),
]


@app.command
def predict(
    model: ModelFolder,
    /,
    *images: Annotated[
        Path,
        Parameter(
            help="Image files, folders of images, or - for standard input.",
            allow_leading_hyphen=True,  # so that - is not an option
        ),
    ],
    top: Annotated[Whole, Parameter(help="Number of classes to print for each image.")] = 1,
    reject: Reject = None,
    json: Annotated[bool, flag("Print JSON.")] = False,
    csv: Annotated[bool, flag("Print CSV.")] = False,
    out: Annotated[Path | None, flag("A file to write: JSON if it ends in .json, or CSV.")] = None,
    skip_bad: SkipBad = False,
    device: Device = None,
    trust: Trust = False,
    quiet: Quiet = False,
) -> None:
    """Predict the class of each image with a saved model.

    Prints one line per image: the file, its most likely class and the probability of that class;
    with `--top 3`, the three most likely classes. With `-`, the bytes of one image are read from
    standard input.

    With `--reject 0.05` the answer is "none of these" for an image about which the model is less
    certain than about 95 % of the images that it held out when it learned.

    For example:

    - `bic predict shop holiday.jpg --top 3`
    - `bic predict shop photos/new/ --reject 0.05 --out answers.csv`
    - `curl -s https://example.com/a.jpg | bic predict shop - --json`
    """
    if json and csv:
        raise UserError("answers cannot be JSON and CSV", "leave out {json} or {csv}")
    from bic.compute.devices import chosen_device
    from bic.files import write_file
    from bic.model.model import Model
    from bic.model.predict import STANDARD_INPUT, image_files, predictions, read_image
    from bic.model.prediction_text import as_csv, as_json, as_text, printable_names

    if not images:
        raise UserError("no image was given", "give image files, folders, or - for standard input")
    for place in images:
        _refuse_option(place)
    loaded = Model.load(model, trust=trust).to(chosen_device(device))
    files: list[str | bytes] = []
    for place in images:
        if str(place) == STANDARD_INPUT:
            files.append(read_image(sys.stdin.buffer, loaded.preprocessing))
        else:
            files += image_files([place])
    rows = list(
        predictions(
            loaded, files, top=top, reject=reject, skip_bad=skip_bad, progress=progress_for(quiet)
        )
    )
    if json or (out is not None and out.suffix == ".json" and not csv):
        text = as_json(rows)
    elif csv or out is not None:
        to_terminal = out is None and sys.stdout.isatty()
        shown = printable_names(rows) if to_terminal else rows
        text = as_csv(shown, with_answer=reject is not None)
    else:
        text = as_text(rows)
    content = text.encode(errors="surrogateescape")  # names of files can be any bytes
    if out is None:
        sys.stdout.buffer.write(content)
        sys.stdout.flush()
    else:
        write_file(out, content)
        print(f"answers: {out}")


@app.command
def evaluate(
    model: ModelFolder,
    test: Annotated[
        Path,
        Parameter(
            help="Labelled images: a folder with CLASS/*.jpg, Parquet files, or an .npz file."
        ),
    ],
    /,
    *,
    reject: Reject = None,
    report: Annotated[Path | None, flag("An HTML page to write.")] = None,
    json: Annotated[bool, flag("Print JSON.")] = False,
    label: Annotated[Text, flag("Label column of Parquet files.")] = None,
    skip_bad: SkipBad = False,
    device: Device = None,
    trust: Trust = False,
    quiet: Quiet = False,
) -> None:
    """Evaluate a saved model on labelled test images.

    Prints the accuracy with its 95 % interval, the worst classes, the most confused pairs, and how
    well the probabilities agree with the accuracy before and after the temperature. Images of
    classes that the model does not know are counted apart; with `--reject`, "none of these" is the
    right answer for them.

    For example:

    - `bic evaluate shop photos/test/`
    - `bic evaluate shop photos/test/ --reject 0.05 --report page.html`
    - `bic evaluate shop test.npz --json`
    """
    from bic.compute.devices import chosen_device
    from bic.data.labelled_images import open_labelled_images
    from bic.model.evaluate_model import evaluate_model
    from bic.model.model import Model
    from bic.report.evaluation_page import check_name, write_page
    from bic.report.evaluation_tables import sentences, tables

    loaded = Model.load(model, trust=trust).to(chosen_device(device))
    if report is not None:
        check_name(report)
    images, classes = open_labelled_images(
        test, loaded.preprocessing, label=label, skip_bad=skip_bad
    )
    evaluation = evaluate_model(
        loaded, images, classes, reject=reject, progress=progress_for(quiet)
    )
    if json:
        print(to_json(evaluation.as_dict()).decode(), end="")
    else:
        console = Console(highlight=False, emoji=False)
        for sentence in sentences(evaluation):
            console.print(printable(sentence), markup=False, soft_wrap=True)
        for table in tables(evaluation):
            console.print(table)
    if report is not None:
        pictures = {mistake.image: images.encoded(mistake.image) for mistake in evaluation.mistakes}
        facts = {"model": str(model), "test images": str(test), "device": chosen_device(device)}
        page = write_page(evaluation, report, facts=facts, pictures=pictures)
        print(f"report: {page}", file=sys.stderr if json else sys.stdout)


def _refuse_option(place: Path) -> None:
    """Raise UserError for a mistyped option, which was taken for a file."""
    if str(place).startswith("-") and str(place) != "-" and not place.exists():
        raise UserError(f"unknown option {place}", "see {help}")
