"""Folding: batch-norm becomes a part of the convolution before it. For inference only."""

import copy
from collections import Counter
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Node, symbolic_trace
from torch.nn.utils.fusion import fuse_conv_bn_eval


def folded(backbone: nn.Module) -> nn.Module:
    """A copy of a backbone in evaluation mode, with batch-norm folded into the convolutions.

    A backbone that cannot be traced stays as it is.
    """
    backbone = copy.deepcopy(backbone).eval()
    try:
        traced = symbolic_trace(backbone)
    except Exception:  # tracing a user's backbone can raise anything
        return backbone
    modules = dict(traced.named_modules())
    num_calls = Counter(node.target for node in traced.graph.nodes)
    for node in list(traced.graph.nodes):
        _fold(node, traced, modules, num_calls)
    traced.recompile()
    layout = torch.channels_last
    module: nn.Module = traced.to(memory_format=layout)  # type: ignore[call-overload]
    return module


def _fold(
    node: Node, traced: GraphModule, modules: dict[str, nn.Module], num_calls: Counter[Any]
) -> None:
    """Fold a batch-norm into the convolution before it, if nothing else uses its output."""
    if node.op != "call_module" or not node.args:
        return
    before = node.args[0]
    if not isinstance(before, Node) or before.op != "call_module":
        return
    if len(before.users) != 1 or num_calls[before.target] != 1:
        return
    conv = modules[str(before.target)]
    norm = modules[str(node.target)]
    if not isinstance(conv, nn.Conv2d) or not isinstance(norm, nn.BatchNorm2d):
        return
    if norm.track_running_stats:
        traced.set_submodule(str(before.target), fuse_conv_bn_eval(conv, norm))
        node.replace_all_uses_with(before)
        traced.graph.erase_node(node)
