"""Folding: batch-norm becomes a part of the convolution before it. For inference only."""

import copy
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Node, Proxy, Tracer
from torch.nn.utils.fusion import fuse_conv_bn_eval

TRACING = threading.Lock()  # two traces at once would not undo what they change in nn.Module


def folded(backbone: nn.Module) -> nn.Module:
    """A copy of a backbone in evaluation mode, with batch-norm folded into the convolutions.

    A backbone that has no batch-norm or cannot be traced stays as it is.
    """
    if not any(isinstance(module, nn.BatchNorm2d) for module in backbone.modules()):
        return backbone.eval()
    backbone = copy.deepcopy(backbone).eval()
    try:
        traced = _traced(backbone)
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


class OneThreadTracer(Tracer):
    """A tracer that leaves other threads alone.

    While it traces, torch.fx replaces `nn.Module.__call__` and `__getattr__` for all threads. A
    model that predicts or is loaded in another thread must still compute.
    """

    def __init__(self) -> None:
        super().__init__()
        self.thread = threading.get_ident()

    def call_module(
        self,
        m: nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        if threading.get_ident() != self.thread:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Proxy]) -> Any:
        if threading.get_ident() != self.thread:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)


def _traced(backbone: nn.Module) -> GraphModule:
    """The backbone as a graph of calls. Raises anything if it cannot be traced."""
    tracer = OneThreadTracer()
    with TRACING:
        graph = tracer.trace(backbone)
    return GraphModule(tracer.root, graph, type(backbone).__name__)


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
