"""Compare an exported graph with its model before anything is written. Needs the extra `onnx`."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from onnx import ModelProto
from torch import Tensor

from bic.data.preprocessing import Preprocessing
from bic.errors import LostError
from bic.model.export_module import (
    CHECKED,
    TOLERANCE,
    logit_difference,
    random_inputs,
    refuse_difference,
)
from bic.model.model import Model
from bic.model.onnx_graph import IMAGES, OUTPUTS, preprocessing_graph, session

PIXEL_TOLERANCE = 1e-3  # mean difference of resized pixels in 0..1
# Sides of images in units of `resize` that are resized: larger, smaller, and of other shapes.
SHAPES = ((1.0, 1.0), (2.3, 1.7), (1.2, 3.1), (0.6, 0.9))


def check_logits(model: Model, core: ModelProto) -> float:
    """The largest difference between the graph's logits and the model's, per largest logit.

    Raises LostError if it is too large, or if the probabilities differ by as much.
    """
    largest = 0.0
    for count in CHECKED:
        inputs = random_inputs(model, count)
        logits, probabilities = outputs(core, inputs.numpy())
        found = logit_difference(model, inputs, logits)
        expected = model.probabilities(logits)
        largest = max(largest, found, float((probabilities - expected).abs().max()))
    refuse_difference(largest)
    return largest


def outputs(graph: ModelProto, inputs: npt.NDArray[Any]) -> tuple[Tensor, Tensor]:
    """Logits and probabilities."""
    runner = session(graph)
    (source,) = runner.get_inputs()
    logits, probabilities = runner.run(list(OUTPUTS), {source.name: inputs})
    return torch.from_numpy(logits), torch.from_numpy(probabilities)


def check_preprocessing(preprocessing: Preprocessing, core: ModelProto) -> None:
    """Raise LostError if the graph resizes images in another way than the model does."""
    runner = session(preprocessing_graph(preprocessing, core))
    side = preprocessing.resize or preprocessing.size
    assert side is not None
    draws = np.random.default_rng(0)
    for height, width in SHAPES:
        shape = (max(1, round(height * side)), max(1, round(width * side)), preprocessing.channels)
        image = draws.integers(0, 256, shape, dtype=np.uint8)
        expected = preprocessing.scale(image).numpy().astype(np.float64)
        (squares,) = runner.run(None, {IMAGES: image[None]})
        mean = np.abs(squares[0] - expected).mean() / 255
        if mean > PIXEL_TOLERANCE:
            raise LostError(
                f"the exported model resizes images differently (by {mean:.1e} of 255 grey levels)",
                "report this with the version of onnxruntime",
            )


def check_whole(model: Model, core: ModelProto, whole: ModelProto) -> None:
    """Raise LostError unless the whole graph answers as its core for images of the right size.

    Nothing is scaled in them, so the two must agree as well as the core agrees with the model.
    """
    inputs = random_inputs(model, CHECKED[0]).numpy()
    expected, _ = outputs(core, inputs)
    preprocessing = model.preprocessing
    if preprocessing.size is not None:
        margin = (preprocessing.resize or preprocessing.size) - preprocessing.size
        before = (margin + 1) // 2
        edges = (before, margin - before)
        inputs = np.pad(inputs, ((0, 0), (0, 0), edges, edges)).transpose(0, 2, 3, 1)
    logits, _ = outputs(whole, inputs)
    finite = expected.isfinite()
    largest = expected[finite].abs().max()
    if not (logits[finite] - expected[finite]).abs().max() <= TOLERANCE * largest:
        raise LostError(
            "the exported model and its preprocessing do not fit together, so nothing was written",
            "report this with the version of onnx",
        )
