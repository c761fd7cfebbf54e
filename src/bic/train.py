"""fit(): the only optimisation loop."""

import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.fx import Node, symbolic_trace
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.fusion import fuse_conv_bn_eval

from bic.config import Recipe
from bic.correction import Correction
from bic.data.loader import Batches
from bic.errors import UserError
from bic.methods import Losses
from bic.network import Network, computing_in
from bic.optimiser import Muon
from bic.progress import Task
from bic.randomness import generator, seeded

Tensors = dict[str, Tensor]
BatchLoss = Callable[[Tensor, Tensor, Tensor | None], Losses]  # (scores, labels, teacher's scores) → named terms


class Teacher:
    """The previous step's model, frozen in evaluation mode, with its correction applied."""

    def __init__(self, network: Network, correction: Correction | None) -> None:
        self.network = copy.deepcopy(network).eval().requires_grad_(False)
        self.correction = correction
        self.folded = folded(self.network)
        self.forward: Callable[[Tensor], Tensor] = self.folded  # or the same, compiled

    @torch.inference_mode()
    def __call__(self, images: Tensor) -> Tensor:
        scores = self.forward(images)
        return scores if self.correction is None else self.correction.apply_(scores)


def folded(network: Network) -> Network:
    """The network for inference alone: batch-norm folded into the convolutions before it, where they can be traced."""
    # But for the head, which is shared: with many classes it is most of the memory.
    network = copy.deepcopy(network, {id(network.head): network.head})
    try:
        traced = symbolic_trace(network.backbone)
    except Exception:  # tracing fails in as many ways as there are backbones; it then stays as it is
        return network
    modules = dict(traced.named_modules())
    calls = Counter(node.target for node in traced.graph.nodes)
    for node in list(traced.graph.nodes):
        before = node.args[0] if node.op == "call_module" and node.args else None
        if isinstance(before, Node) and before.op == "call_module" and len(before.users) == calls[before.target] == 1:
            conv, norm = modules[str(before.target)], modules[str(node.target)]
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d) and norm.track_running_stats:
                traced.set_submodule(str(before.target), fuse_conv_bn_eval(conv, norm))
                node.replace_all_uses_with(before)
                traced.graph.erase_node(node)
    traced.recompile()
    network.backbone = traced.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def learning_rate(recipe: Recipe, epoch: int, done: float = 0.0) -> float:
    """The rate in an epoch (counted from 0) of which a share is `done`.

    `milestones`: the rate times `decay` for every milestone passed. `triangle`: up over the first `warmup` of all
    epochs, then down to zero.
    """
    if recipe.schedule == "milestones":
        passed = sum(epoch >= round(milestone * recipe.epochs) for milestone in recipe.milestones)
        return recipe.learning_rate * recipe.decay**passed
    progress = (epoch + done) / recipe.epochs
    up = progress / recipe.warmup if recipe.warmup else 1.0
    return recipe.learning_rate * min(up, (1 - progress) / (1 - recipe.warmup))


@dataclass
class Training:
    """A module in training: what must be kept to go on after an interruption."""

    module: nn.Module
    optimiser: torch.optim.SGD
    epoch: int = 0  # epochs done
    compiled: Callable[[Tensor], Tensor] | None = None  # the module's forward pass, if it is compiled

    @classmethod
    def start(cls, module: nn.Module, recipe: Recipe) -> Self:
        options = recipe.model_dump(include={"momentum", "nesterov", "weight_decay"})
        if recipe.kernel_rate is not None:
            return cls(module, Muon(module, kernel_rate=recipe.kernel_rate, lr=recipe.learning_rate, **options))
        return cls(module, torch.optim.SGD(module.parameters(), lr=recipe.learning_rate, foreach=True, **options))

    def tensors(self) -> Tensors:
        """Weights under `module.`, momentum under `momentum.`."""
        named = {f"module.{name}": value for name, value in self.module.state_dict().items()}
        for name, parameter in self.module.named_parameters():
            if (momentum := self.optimiser.state[parameter].get("momentum_buffer")) is not None:
                named[f"momentum.{name}"] = momentum
        return named

    def restore(self, tensors: Tensors, epoch: int) -> None:
        """Go on from `tensors()`, taken after `epoch` epochs.

        Momentum is laid out in memory like its parameter, as the optimiser would have, so that the resumed arithmetic
        is the same to the last bit.
        """
        self.module.load_state_dict(unprefixed(tensors, "module."))
        for name, parameter in self.module.named_parameters():
            if f"momentum.{name}" in tensors:
                momentum = torch.empty_like(parameter).copy_(tensors[f"momentum.{name}"])
                self.optimiser.state[parameter]["momentum_buffer"] = momentum.detach()
        self.epoch = epoch


def unprefixed(tensors: Tensors, prefix: str) -> Tensors:
    """The tensors whose names start with `prefix`, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def fit(
    training: Training,
    batches: Batches,
    loss: BatchLoss,
    recipe: Recipe,
    *,
    teacher: Teacher | None = None,
    after_epoch: Callable[[], None] = lambda: None,
    task: Task | None = None,
) -> None:
    """Train the module for the recipe's remaining epochs; each update sees one batch."""
    module, optimiser = training.module, training.optimiser
    module.train()
    forward: Callable[[Tensor], Tensor] = training.compiled or module
    if batches.world.size > 1:
        forward = DistributedDataParallel(module)
    device = next(module.parameters()).device
    for epoch in range(training.epoch, recipe.epochs):
        # For backbones that draw, such as dropout.
        with seeded(*batches.address, "network", epoch, *batches.world.own_address):
            for number, (images, labels) in enumerate(batches.epoch(epoch)):
                images, labels = images.to(device, non_blocking=True), labels.to(device)
                for group in optimiser.param_groups:
                    group["lr"] = learning_rate(recipe, epoch, (number + 0.5) / len(batches))
                with computing_in(recipe.precision, device):
                    targets = None if teacher is None else teacher(images)
                    scores = forward(images)
                members = len(scores) // len(labels)  # backbones side by side, each with its own scores
                targets = targets if targets is None else targets.repeat(members, 1)
                losses = loss(scores, labels.repeat(members), targets)
                del scores, targets  # gone before the backward pass
                total = members * torch.stack(list(losses.values())).sum()
                if batches.world.size > 1:  # gradients are averaged over processes: so it is the whole batch's mean
                    total = total * batches.weight_of(number, len(labels))
                if not torch.isfinite(total):
                    raise UserError(
                        f"training diverged in epoch {epoch + 1}; lower recipe.learning_rate, in another --out"
                    )
                optimiser.zero_grad()
                torch.autograd.backward(total)
                if recipe.gradient_noise:
                    draws = generator(*batches.address, "noise", epoch, number)
                    add_gradient_noise(module, recipe.gradient_noise / (1 + epoch) ** 0.55 / len(labels), draws)
                optimiser.step()
                if task is not None:
                    task.advance(len(labels), **{name: float(term.detach()) for name, term in losses.items()})
            training.epoch = epoch + 1
            after_epoch()


def add_gradient_noise(module: nn.Module, deviation: float, draws: np.random.Generator) -> None:
    """EEIL's noise, published as 0.3/(1+epoch)^0.55 on gradients summed over the batch.

    Ours are means, so the caller divides by the batch size, as the authors' code does afterwards.
    """
    for parameter in module.parameters():
        if parameter.grad is not None:
            noise = draws.standard_normal(parameter.shape, dtype=np.float32) * np.float32(deviation)
            parameter.grad += torch.from_numpy(noise).to(parameter.grad.device)
