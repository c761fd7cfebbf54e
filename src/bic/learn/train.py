"""fit(): the only training loop."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from bic.compute.distributed import share_buffers
from bic.compute.precision import computing_in
from bic.compute.seeding import seeded
from bic.data.batches import Batches
from bic.errors import UserError
from bic.learn.lesson import Tensors
from bic.learn.losses import Losses
from bic.learn.optimiser import Muon
from bic.learn.recipe import Recipe
from bic.learn.teacher import Teacher
from bic.model.network import Network, compiled_forward
from bic.progress import Task
from bic.randomness import generator

# (logits, labels, teacher's logits or None) → named terms
BatchLoss = Callable[[Tensor, Tensor, Tensor | None], Losses]


def learning_rate(recipe: Recipe, epoch: int, done: float = 0.0) -> float:
    """The learning rate in an epoch (counted from 0). `done` is the finished share of the epoch."""
    schedule = recipe.schedule
    if schedule.kind == "milestones":
        passed = sum(epoch >= round(share * recipe.epochs) for share in schedule.milestones)
        return recipe.learning_rate * schedule.decay**passed
    progress = (epoch + done) / recipe.epochs
    rising = progress / schedule.warmup if schedule.warmup else 1.0
    return recipe.learning_rate * min(rising, (1 - progress) / (1 - schedule.warmup))


@dataclass
class Training:
    """A module in training, with the state that is needed to continue after an interruption."""

    module: nn.Module
    optimiser: torch.optim.SGD
    epoch: int = 0  # finished epochs
    compiled: Callable[[Tensor], Tensor] | None = None  # the compiled forward pass, if there is one

    @classmethod
    def start(cls, module: nn.Module, recipe: Recipe) -> Self:
        rate = recipe.learning_rate
        settings = recipe.optimiser
        options = settings.model_dump(include={"momentum", "nesterov", "weight_decay"})
        if settings.muon_rate is not None:
            return cls(module, Muon(module, muon_rate=settings.muon_rate, lr=rate, **options))
        return cls(module, torch.optim.SGD(module.parameters(), lr=rate, foreach=True, **options))

    def compile(self, network: Network, teacher: Teacher | None) -> None:
        """Compile the forward passes of the network and of its teacher."""
        self.compiled = compiled_forward(network)
        if teacher is not None:
            teacher.forward = compiled_forward(teacher.folded)

    def tensors(self) -> Tensors:
        """Weights under `module.`, momentum under `momentum.`. A frozen backbone is left out."""
        named = {f"module.{name}": tensor for name, tensor in trained_state(self.module).items()}
        for name, parameter in self.module.named_parameters():
            momentum = self.optimiser.state[parameter].get("momentum_buffer")
            if momentum is not None:
                named[f"momentum.{name}"] = momentum
        return named

    def restore(self, tensors: Tensors, epoch: int) -> None:
        """Continue from `tensors()`, taken after `epoch` epochs.

        Momentum gets the memory layout of its parameter, as the optimiser would give it, so that
        the resumed arithmetic is the same to the last bit.
        """
        load_state(self.module, without_prefix(tensors, "module."))
        for name, parameter in self.module.named_parameters():
            if f"momentum.{name}" in tensors:
                saved = tensors[f"momentum.{name}"]
                if saved.shape != parameter.shape:
                    raise wrong_checkpoint(f"the momentum of {name} has another shape")
                momentum = torch.empty_like(parameter).copy_(saved)
                self.optimiser.state[parameter]["momentum_buffer"] = momentum.detach()
        self.epoch = epoch


def trained_state(module: nn.Module) -> Tensors:
    """The state of a module without its frozen backbone, which never changes."""
    state: Tensors = module.state_dict()
    if not getattr(module, "frozen", False):
        return state
    return {name: tensor for name, tensor in state.items() if not name.startswith("backbone.")}


def load_state(module: nn.Module, state: Tensors) -> None:
    """Give a module the weights of a checkpoint. Raises UserError if they are not its own."""
    unchanged = {}
    for name, tensor in module.state_dict().items():
        if name not in trained_state(module):
            unchanged[name] = tensor
    try:
        module.load_state_dict({**state, **unchanged})
    except RuntimeError as error:
        raise wrong_checkpoint(str(error).splitlines()[-1].strip()) from error


def wrong_checkpoint(reason: str) -> UserError:
    return UserError(
        f"the checkpoint of this step does not fit its network ({reason})",
        "restore it from a copy, or delete it to repeat the step",
    )


def without_prefix(tensors: Tensors, prefix: str) -> Tensors:
    """The tensors whose names start with `prefix`, without it."""
    start = len(prefix)
    return {name[start:]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def fit(
    training: Training,
    batches: Batches,
    loss: BatchLoss,
    recipe: Recipe,
    *,
    teacher: Teacher | None = None,
    gradient_noise: float = 0.0,
    after_epoch: Callable[[], None] = lambda: None,
    task: Task | None = None,
) -> None:
    """Train the module for the recipe's remaining epochs, one update per batch."""
    module = training.module
    optimiser = training.optimiser
    num_processes = batches.world.size
    module.train()
    forward: Callable[[Tensor], Tensor] = training.compiled or module
    if num_processes > 1:
        forward = DistributedDataParallel(module)
    device = next(module.parameters()).device
    for epoch in range(training.epoch, recipe.epochs):
        # The seed is for backbones that draw random numbers, as dropout does.
        with seeded(*batches.address, "network", epoch, *batches.world.own_address):
            for number, (images, labels) in enumerate(batches.epoch(epoch)):
                images = images.to(device, non_blocking=True)
                labels = labels.to(device)
                for group in optimiser.param_groups:
                    group["lr"] = learning_rate(recipe, epoch, (number + 0.5) / len(batches))
                with computing_in(recipe.precision, device):
                    targets = None if teacher is None else teacher(images)
                    logits = forward(images)
                num_members = len(logits) // len(labels)  # an ensemble gives each member's logits
                if targets is not None:
                    targets = targets.repeat(num_members, 1)
                losses = loss(logits, labels.repeat(num_members), targets)
                del logits, targets  # frees their memory before the backward pass
                total = num_members * torch.stack(list(losses.values())).sum()
                if num_processes > 1:  # uneven shards are weighted by size
                    total = total * batches.weight_of(number, len(labels))
                if not torch.isfinite(total):
                    raise diverged(epoch)
                optimiser.zero_grad()
                torch.autograd.backward(total)
                if gradient_noise:
                    draws = generator(*batches.address, "noise", epoch, number)
                    batch_size = batches.size_of(number, len(labels))
                    std = gradient_noise / (1 + epoch) ** 0.55 / batch_size
                    add_gradient_noise(module, std, draws)
                optimiser.step()
                if task is not None:
                    notes = {name: float(term.detach()) for name, term in losses.items()}
                    task.advance(len(labels), **notes)
            # The last update is followed by no loss that would show it.
            if not all(torch.isfinite(weights).all() for weights in module.parameters()):
                raise diverged(epoch)
            share_buffers(module)  # DistributedDataParallel does it only before a forward pass
            training.epoch = epoch + 1
            after_epoch()


def diverged(epoch: int) -> UserError:
    return UserError(f"training diverged in epoch {epoch + 1}", "lower {recipe.learning_rate}")


def add_gradient_noise(module: nn.Module, std: float, draws: np.random.Generator) -> None:
    """EEIL's gradient noise, published as 0.3/(1+epoch)^0.55 on gradients summed over the batch.

    Our gradients are means over the batch, so the caller divides `std` by the batch size. The
    authors' code adds the noise first and divides afterwards, with the same result.
    """
    for parameter in module.parameters():
        if parameter.grad is not None:
            noise = draws.standard_normal(parameter.shape, dtype=np.float32) * np.float32(std)
            parameter.grad += torch.from_numpy(noise).to(parameter.grad.device)
