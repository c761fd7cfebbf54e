"""The time of a training update, measured on this machine."""

import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MIN_UPDATES = 3
MIN_SECONDS = 0.3


def seconds_per_image(
    network: nn.Module, images: Tensor, forward: Callable[[Tensor], Tensor] | None = None
) -> float:
    """Time of a forward and backward pass per image: the fastest of several on this batch.

    `forward` replaces the network's own forward pass, for example by a compiled one.
    """
    forward = forward or network
    network.train()
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    times: list[float] = []
    while len(times) < MIN_UPDATES or sum(times) < MIN_SECONDS:
        start = time.perf_counter()
        logits = forward(images)
        labels = torch.zeros(len(logits), dtype=torch.int64)
        torch.autograd.grad(F.cross_entropy(logits, labels), trained)
        times.append(time.perf_counter() - start)
    return min(times) / len(images)
