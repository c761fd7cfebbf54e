"""Quantise an ONNX graph to int8, if held-out images say that it costs little accuracy.

The first and the last layers stay in float: they are small, and they decide the accuracy. Needs the
extra `onnx`.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
from onnx import ModelProto
from onnxruntime.quantization import CalibrationDataReader, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from bic.data.batches import plain_batches
from bic.data.images import ImageSet
from bic.errors import UserError
from bic.model.export_module import quiet_torch
from bic.model.intervals import Drop, Share
from bic.model.model import Model
from bic.model.onnx_graph import session

MAX_DROP = 0.01  # of the accuracy: one point
MAX_CALIBRATED = 512  # images from which the ranges of activations are taken
LAYERS = ["Conv", "Gemm", "MatMul"]  # that are quantised


class Quantised(NamedTuple):
    """A graph in int8, its accuracy on held-out images, and how much that fell."""

    graph: ModelProto
    accuracy: Share
    drop: Drop


def quantised(core: ModelProto, model: Model, held_out: ImageSet) -> Quantised:
    """The graph with int8 weights and activations.

    The ranges of activations come from the held-out images, without their labels. Raises UserError
    if there is nothing to quantise, or if the accuracy on them drops by MAX_DROP or more.
    """
    held_out = replace(held_out, features=None)  # the graph takes images
    smaller = _quantise(core, held_out)
    before = correct(core, model, held_out)
    after = correct(smaller, model, held_out)
    lost = int((before & ~after).sum())
    gained = int((after & ~before).sum())
    drop = Drop(lost, gained, len(held_out))
    if drop.value >= MAX_DROP:
        raise UserError(
            f"int8 would lower the accuracy on {len(held_out):,} held-out images by "
            f"{100 * drop.value:.1f} points, so nothing was written",
            "leave out {int8}",
        )
    return Quantised(smaller, Share(int(after.sum()), len(held_out)), drop)


def correct(core: ModelProto, model: Model, images: ImageSet) -> npt.NDArray[np.bool_]:
    """Whether the largest logit of each image is that of its class."""
    runner = session(core)
    (source,) = runner.get_inputs()
    found = np.zeros(len(images), dtype=np.bool_)
    for pixels, indices in plain_batches(images, num_outputs=len(model.classes)):
        (logits,) = runner.run(["logits"], {source.name: pixels.numpy()})
        found[indices] = logits.argmax(axis=1) == images.labels[indices]
    return found


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    """Hands batches of images to onnxruntime."""

    def __init__(self, name: str, images: ImageSet) -> None:
        spaced = np.linspace(0, len(images) - 1, min(len(images), MAX_CALIBRATED))
        chosen = images.select(spaced.round().astype(np.int64))
        self.batches: Iterator[dict[str, Any]] = (
            {name: pixels.numpy()} for pixels, _ in plain_batches(chosen, num_outputs=1)
        )

    def get_next(self) -> dict[str, Any] | None:
        return next(self.batches, None)


def _quantise(core: ModelProto, held_out: ImageSet) -> ModelProto:
    (source,) = core.graph.input
    with TemporaryDirectory() as folder, quiet_torch():
        given = Path(folder) / "core.onnx"
        ready = Path(folder) / "ready.onnx"
        result = Path(folder) / "int8.onnx"
        onnx.save(core, given)
        quant_pre_process(given, ready, skip_symbolic_shape=True)  # folds normalisation into Conv
        inner = inner_layers(onnx.load(ready))
        if not inner:
            problem = "the network has no layer between its first and its last one to quantise"
            raise UserError(problem, "leave out {int8}")
        quantize_static(
            ready,
            result,
            _Reader(source.name, held_out),
            nodes_to_quantize=inner,
            op_types_to_quantize=LAYERS,
            per_channel=True,
        )
        return onnx.load(result)


def inner_layers(graph: ModelProto) -> list[str]:
    """The names of the layers that have another layer before them and another after them."""
    nodes = list(graph.graph.node)
    after_a_layer: set[str] = set()  # names of values
    has_before = set()
    for node in nodes:
        if after_a_layer.intersection(node.input):
            has_before.add(node.name)
        if node.name in has_before or node.op_type in LAYERS:
            after_a_layer.update(node.output)
    before_a_layer: set[str] = set()
    inner = []
    for node in reversed(nodes):
        has_after = bool(before_a_layer.intersection(node.output))
        if node.op_type in LAYERS and has_after and node.name in has_before:
            inner.append(node.name)
        if has_after or node.op_type in LAYERS:
            before_a_layer.update(node.input)
    return inner[::-1]
