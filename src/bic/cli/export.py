"""`bic export`: write a model to a file that runs without bic."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bic.cli.app import app, flag
from bic.cli.models import ModelFolder, Trust
from bic.errors import UserError


@app.command
def export(
    model: ModelFolder,
    out: Annotated[Path, Parameter(help="The .onnx file to write, or a folder.")],
    /,
    *,
    int8: Annotated[bool, flag("Quantise, if it costs less than a point of accuracy.")] = False,
    images: Annotated[
        Path | None,
        flag("Labelled images to measure that on; by default the model's held-out images."),
    ] = None,
    safetensors: Annotated[
        bool, flag("Write a folder with the weights and the operations instead.")
    ] = False,
    trust: Trust = False,
) -> None:
    """Export a model to a file that runs without bic.

    The ONNX file takes images of any size and has the outputs `logits` and `probabilities`. Its
    metadata has the class names (`labels`) and the `temperature`. Before it is written, it is
    compared with the model on random images. With `--int8` it is smaller and faster; the drop in
    accuracy is printed, and a drop of a point or more is refused.

    For example:

    - `bic export shop shop.onnx`
    - `bic export shop shop.onnx --int8`
    - `bic export shop shop-weights --safetensors`
    """
    if images is not None and not int8:
        raise UserError("images are needed for int8 only", "leave out {images}, or add {int8}")
    from bic.model.model import Model
    from bic.report.model_tables import change_in_words
    from bic.store.held_out import labelled_for, model_and_held_out

    held_out = None
    if int8 and images is None:
        loaded, held_out = model_and_held_out(model, trust=trust)
    else:
        loaded = Model.load(model, trust=trust)
    if images is not None:
        held_out = labelled_for(loaded, images)
    written = loaded.export(out, int8=int8, held_out=held_out, safetensors=safetensors)
    when = "" if written.drop is None else "before int8, "
    print(
        f"{written.path}: {len(loaded.active):,} classes, {written.num_bytes / 1e6:.1f} MB; "
        f"{when}its logits differ from the model's by {written.difference:.0e} of the largest"
    )
    if written.drop is not None and written.accuracy is not None:
        print(
            f"int8: {100 * written.accuracy.value:.1f} % of {written.accuracy.total:,} images are "
            f"right, {change_in_words(written.drop)}"
        )
