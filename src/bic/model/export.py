"""Model.export: a model in a file that runs without bic. It is compared with the model first."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from bic import files
from bic.data.images import ImageSet
from bic.errors import UserError
from bic.model.intervals import Drop, Share
from bic.model.model import Model
from bic.model.saved import tensors

SUFFIX = ".onnx"
PACKAGES = ("onnx", "onnxruntime", "onnxscript")
MAX_BYTES = 1_900_000_000  # of weights; a file in ONNX's format has at most 2 GB


@dataclass(frozen=True)
class Exported:
    """What was written. `difference` is that of the logits, divided by the largest logit.

    With int8, `accuracy` is the share of held-out images that the written model classifies
    correctly, and `drop` is how much that share fell.
    """

    path: Path
    num_bytes: int
    difference: float
    accuracy: Share | None = None
    drop: Drop | None = None


def export_onnx(
    model: Model, path: Path, *, int8: bool = False, held_out: ImageSet | None = None
) -> Exported:
    """Write the model to an ONNX file, after comparing the two on random images.

    `int8` quantises weights and activations. `held_out` has images that were never trained on;
    their labels are positions in `model.classes`. Raises UserError if packages are missing, if the
    path does not end in .onnx, and if int8 costs a point of held-out accuracy or more.
    """
    if path.suffix != SUFFIX:
        raise UserError(
            f"{path} does not end in {SUFFIX}",
            f"name the file {path.name}{SUFFIX}, or set {{safetensors}} to write a folder",
        )
    if int8 and not held_out:
        raise UserError(
            "there are no held-out images on which the cost of int8 can be measured",
            "leave out {int8}, or give labelled images as {images}",
        )
    if sum(tensor.nbytes for tensor in tensors(model).values()) > MAX_BYTES:
        problem = "the model has more than 1.9 GB of weights, which an ONNX file cannot hold"
        raise UserError(problem, "set {safetensors}")
    require_onnx()
    from bic.model.export_checks import check_logits, check_preprocessing, check_whole
    from bic.model.onnx_graph import core_graph, whole_graph
    from bic.model.onnx_int8 import quantised

    core = core_graph(model)
    difference = check_logits(model, core)
    accuracy = None
    drop = None
    if int8 and held_out:
        core, accuracy, drop = quantised(core, model, held_out)
    whole = whole_graph(model, core)
    if model.preprocessing.size is not None:
        check_preprocessing(model.preprocessing, core)
    check_whole(model, core, whole)
    content: bytes = whole.SerializeToString()
    files.write_file(path, content)
    return Exported(path, len(content), difference, accuracy, drop)


def require_onnx() -> None:
    """Raise UserError unless the packages of the extra `onnx` are installed."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        problem = f"exporting to ONNX needs {', '.join(missing)}"
        raise UserError(problem, "install the extra onnx, as in pip install '.[onnx]'")
