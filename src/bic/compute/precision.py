"""The precision of training: float32, or bfloat16 if it is measured to be faster."""

from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from bic.compute.cost import seconds_per_image
from bic.progress import Progress

ROUNDS = 3
MIN_SPEEDUP = 1.1  # over float32, below which bfloat16 is not used


def computing_in(precision: str, device: torch.device | str) -> AbstractContextManager[None]:
    """In this context backbones compute in `precision`. Weights, logits and losses stay float32."""
    device_type = torch.device(device).type
    return torch.autocast(device_type, torch.bfloat16, enabled=precision == "bfloat16")


def quickest_precision(
    network: nn.Module, images: Tensor, progress: Progress, device: str, *, rounds: int = ROUNDS
) -> str:
    """`bfloat16` if training on this batch is faster in it, else `float32`. The choice is shown.

    CPUs with native bfloat16 train up to twice as fast in it; others are many times slower.
    """
    if device != "cpu":
        supported = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
        return "bfloat16" if supported else "float32"
    seconds = {"float32": float("inf"), "bfloat16": float("inf")}
    for _ in range(rounds):  # alternating, so that other work on the machine slows both down
        for precision in seconds:
            with computing_in(precision, device):
                measured = seconds_per_image(network, images)
            seconds[precision] = min(seconds[precision], measured)
    speedup = seconds["float32"] / seconds["bfloat16"]
    chosen = "bfloat16" if speedup > MIN_SPEEDUP else "float32"
    progress.say(f"training in {chosen}: bfloat16 has {speedup:.2f} × the speed of float32 here")
    return chosen
