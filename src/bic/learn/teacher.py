"""Teacher: the previous step's model, which the student learns to imitate on old classes."""

import copy
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node, symbolic_trace
from torch.nn.utils.fusion import fuse_conv_bn_eval

from bic.model.answers import Correction
from bic.model.network import Network


class Teacher:
    """A frozen copy of a network in evaluation mode, with its correction applied."""

    def __init__(self, network: Network, correction: Correction | None) -> None:
        self.network = copy.deepcopy(network).eval().requires_grad_(False)
        self.correction = correction
        self.folded = folded(self.network)
        self.forward: Callable[[Tensor], Tensor] = self.folded  # or its compiled form

    @torch.inference_mode()
    def __call__(self, images: Tensor) -> Tensor:
        logits = self.forward(images)
        return logits if self.correction is None else self.correction.apply_(logits)


def folded(network: Network) -> Network:
    """The network for inference only, with batch-norm folded into the convolutions before it.

    A backbone that cannot be traced stays as it is.
    """
    # The head is shared and not copied: with many classes it is most of the memory.
    network = copy.deepcopy(network, {id(network.head): network.head})
    try:
        traced = symbolic_trace(network.backbone)
    except Exception:  # tracing a user's backbone can raise anything
        return network
    modules = dict(traced.named_modules())
    num_calls = Counter(node.target for node in traced.graph.nodes)
    for node in list(traced.graph.nodes):
        _fold(node, traced, modules, num_calls)
    traced.recompile()
    network.backbone = traced.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


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
