"""Weights and a list of operations that plain torch can run: `--safetensors`.

`config.json` has one row for each operation: the name of its result, the function, its arguments
and its options. A text among the arguments names an earlier result, a tensor of
`weights.safetensors`, the input `images`, or a constant of torch such as `torch.float32`.
"""

import math
import operator
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node

from bic import files
from bic.errors import UserError
from bic.model.export import Exported
from bic.model.export_module import (
    CHECKED,
    logit_difference,
    quiet_torch,
    random_inputs,
    refuse_difference,
    temperature_of,
    traced,
)
from bic.model.model import Model, Tensors
from bic.model.saved import WEIGHTS
from bic.model.tensor_files import write_tensors

CONFIG = "config.json"
INPUT = "images"
# Options that say where a tensor is, not what is in it.
PLACES = {"device", "layout", "pin_memory"}

Row = tuple[str, str, list[Any], dict[str, Any]]


def export_weights(model: Model, folder: Path) -> Exported:
    """Write weights and config to a new folder, after comparing them with the model.

    Raises UserError if the folder exists or the network has operations that JSON cannot hold.
    """
    if folder.exists():
        raise UserError(f"{folder} exists already", "choose another folder")
    with quiet_torch():
        program = traced(model).run_decompositions({})
    values = _weights(program)
    config = _config(model, program)
    difference = 0.0
    for count in CHECKED:
        images = random_inputs(model, count)
        logits = run_operations(config, values, images)
        difference = max(difference, logit_difference(model, images, logits))
    refuse_difference(difference)

    def write_weights(path: Path) -> None:
        write_tensors(values, path)

    files.write_folder(folder, {CONFIG: files.to_json(config), WEIGHTS: write_weights})
    return Exported(folder, (folder / WEIGHTS).stat().st_size, difference)


@torch.no_grad()
def run_operations(config: dict[str, Any], weights: Tensors, images: Tensor) -> Tensor:
    """The final logits, computed as the documents say."""
    values: dict[str, Any] = {**weights, INPUT: images}
    tools = SimpleNamespace(aten=torch.ops.aten, operator=operator)

    def read(item: Any) -> Any:
        if isinstance(item, list):
            return [read(part) for part in item]
        if not isinstance(item, str):
            return item
        return getattr(torch, item[6:]) if item.startswith("torch.") else values[item]

    for name, function, arguments, options in config["operations"]:
        named = {option: read(value) for option, value in options.items()}
        values[name] = operator.attrgetter(function)(tools)(*read(arguments), **named)
    result: Tensor = values[config["output"]]
    return result


def _config(model: Model, program: ExportedProgram) -> dict[str, Any]:
    preprocessing = model.preprocessing
    output = program.graph_signature.user_outputs[0]
    return {
        "labels": list(model.classes),
        "retired": list(model.retired),
        "temperature": temperature_of(model),
        "backbone": model.backbone,
        "preprocessing": {
            "channels": preprocessing.channels,
            "size": preprocessing.size,
            "resize": preprocessing.resize,
            "bicubic": preprocessing.bicubic,
        },
        "operations": _operations(program, str(output)),
        "output": str(output),
    }


def _weights(program: ExportedProgram) -> Tensors:
    """The tensors that the operations use, by their names in the model.

    Constants are tensors that a saved model does not have: they are computed when it is built.
    """
    known = {**program.state_dict, **program.constants}
    names = [name for name in _names(program).values() if name != INPUT]
    return {name: known[name].detach().clone() for name in names}


def _names(program: ExportedProgram) -> dict[str, str]:
    """How the operations call the inputs of the graph: tensors by their names in the model."""
    signature = program.graph_signature
    (images,) = signature.user_inputs
    used = {node.name for node in program.graph.nodes if node.op == "placeholder" and node.users}
    tensors = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    names = {name: tensor for name, tensor in tensors.items() if name in used}
    return {**names, str(images): INPUT}


def _operations(program: ExportedProgram, output: str) -> list[Row]:
    """The operations that the output needs, in order."""
    names = _names(program)
    rows = []
    for node in _needed(program, output):
        function, plain = _without_mode(node)
        arguments = [_written(argument, names) for argument in plain]
        options = {
            name: _written(value, names)
            for name, value in node.kwargs.items()
            if name not in PLACES
        }
        rows.append((node.name, function, arguments, options))
    return rows


def _without_mode(node: Node) -> tuple[str, Sequence[Any]]:
    """The function and its arguments. Padding with a constant has a function without a mode."""
    function = _function(node)
    if function == "aten.pad.default" and node.args[2:3] in ((), ("constant",)):
        return "aten.constant_pad_nd.default", (*node.args[:2], *(node.args[3:] or (0,)))
    return function, node.args


def _needed(program: ExportedProgram, output: str) -> list[Node]:
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    needed = {output}
    for node in reversed(nodes):
        if node.name in needed:
            needed.update(source.name for source in node.all_input_nodes)
    return [node for node in nodes if node.name in needed]


def _function(node: Node) -> str:
    name = str(node.target)
    if isinstance(node.target, torch._ops.OpOverload) and name.startswith("aten."):
        return name
    if getattr(operator, getattr(node.target, "__name__", ""), None) is node.target:
        return f"operator.{node.target.__name__}"
    raise _not_listable(name)


def _written(value: Any, names: dict[str, str]) -> Any:
    """An argument as JSON holds it."""
    if isinstance(value, Node):
        return names.get(value.name, value.name)
    if isinstance(value, list | tuple):
        return [_written(part, names) for part in value]
    if isinstance(value, torch.dtype | torch.memory_format):
        return str(value)
    if value is None or (isinstance(value, int | float) and math.isfinite(value)):
        return value
    raise _not_listable(f"the argument {value!r}")


def _not_listable(what: str) -> UserError:
    problem = f"the network has {what}, which a list of operations cannot hold"
    return UserError(problem, "export it to an .onnx file")
