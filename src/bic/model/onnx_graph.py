"""ONNX graphs: a model for square images, and the preprocessing in front of it.

Needs the extra `onnx`. Only `export.py` imports this module, after it has looked for the extra.
"""

import json

import onnx
import onnxruntime
import torch
from onnx import ModelProto, compose, parser

from bic.data.preprocessing import Preprocessing
from bic.model.export_module import quiet_torch, temperature_of, traced
from bic.model.model import Model
from bic.version import __version__

IMAGES = "images"  # uint8 [batch, height, width, channels], of any size
SQUARES = "squares"  # uint8 [batch, channels, size, size]
VECTORS = "vectors"  # float32 [batch, dim]
OUTPUTS = ("logits", "probabilities")
BATCH = "batch"

# Preprocessing.scale in the words of ONNX. Resize on uint8 with `antialias` and `exclude_outside`
# computes what torch and Pillow compute; a pixel may differ by one grey level where they round.
# Its `sizes` have four numbers because onnxruntime mistakes two of them for four.
PREPROCESSING = """
<ir_version: {ir_version}, opset_import: ["" : {opset}]>
preprocessing (uint8[batch, height, width, {channels}] images)
    => (uint8[batch, {channels}, {size}, {size}] squares)
<double size = {{{size}}}, double side = {{{side}}}, int64[1] one = {{1}}, int64[1] two = {{2}},
 int64[2] axes = {{2, 3}}, int64[2] target = {{{size}, {size}}}>
{{
    planes = Transpose <perm = [0, 3, 1, 2]> (images)
    sides = Shape <start = 2, end = 4> (planes)
    shorter = ReduceMin <keepdims = 1> (sides)
    shorter_double = Cast <to = 11> (shorter)
    scaled = Mul (shorter_double, size)
    exact = Div (scaled, side)
    rounded = Round (exact)
    whole = Cast <to = 7> (rounded)
    length = Max (whole, one)
    room = Sub (sides, length)
    room_and_one = Add (room, one)
    start = Div (room_and_one, two)
    end = Add (start, length)
    cut = Slice (planes, start, end, axes)
    batch_and_channels = Shape <start = 0, end = 2> (planes)
    sizes = Concat <axis = 0> (batch_and_channels, target)
    squares = Resize <mode = "{mode}", cubic_coeff_a = -0.5, antialias = 1, exclude_outside = 1>
        (cut, , , sizes)
}}
"""


def core_graph(model: Model) -> ModelProto:
    """Square images (or vectors) → logits and probabilities, for any number of images."""
    program = traced(model)
    name = VECTORS if model.preprocessing.size is None else SQUARES
    with quiet_torch():
        exported = torch.onnx.export(
            program, dynamo=True, verbose=False, input_names=[name], output_names=list(OUTPUTS)
        )
    assert exported is not None
    graph: ModelProto = exported.model_proto
    del graph.graph.value_info[:]
    for node in graph.graph.node:  # torch's notes have the paths of source files in them
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
    for value in (*graph.graph.input, *graph.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = BATCH
    return graph


def preprocessing_graph(preprocessing: Preprocessing, like: ModelProto) -> ModelProto:
    """Images of any size → square images, in the version of ONNX that `like` has."""
    assert preprocessing.size is not None
    (opset,) = (used.version for used in like.opset_import if used.domain == "")
    return parser.parse_model(
        PREPROCESSING.format(
            ir_version=like.ir_version,
            opset=opset,
            channels=preprocessing.channels,
            size=preprocessing.size,
            side=preprocessing.resize or preprocessing.size,
            mode="cubic" if preprocessing.bicubic else "linear",
        )
    )


def whole_graph(model: Model, core: ModelProto) -> ModelProto:
    """The graph to be written: the preprocessing, the core, and what a user has to know."""
    graph = core
    if model.preprocessing.size is not None:
        front = preprocessing_graph(model.preprocessing, core)
        for domain in core.opset_import:
            if domain.domain:
                front.opset_import.append(domain)
        graph = compose.merge_models(front, core, io_map=[(SQUARES, SQUARES)])
        del graph.opset_import[:]  # merging lists them twice
        graph.opset_import.extend(core.opset_import)
    graph.producer_name = "bic"
    graph.producer_version = __version__
    onnx.helper.set_model_props(graph, metadata(model))
    onnx.checker.check_model(graph)
    return graph


def metadata(model: Model) -> dict[str, str]:
    """What goes with the outputs, as JSON: `labels[i]` is the class of output i."""
    found = {
        "labels": list(model.classes),
        "retired": [model.classes[position] for position in model.retired],
        "temperature": temperature_of(model),
        "calibrated": model.calibration is not None,
    }
    return {name: json.dumps(value, ensure_ascii=False) for name, value in found.items()}


def session(graph: ModelProto) -> onnxruntime.InferenceSession:
    """The graph, ready to run on the CPU."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    threads = torch.get_num_threads()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(
        graph.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
