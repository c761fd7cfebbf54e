"""In which precision a network trains faster here, by measurement."""

import torch

from bic.config import Plan
from bic.cost import network_and_batch, seconds_per_image
from bic.data.images import Dataset
from bic.network import computing_in
from bic.progress import Progress

ROUNDS = 3
WORTH_IT = 1.1  # times the speed of float32 from which on bfloat16 is taken


def quickest_precision(plan: Plan, dataset: Dataset, progress: Progress, device: str) -> str:
    """bfloat16 where that is faster, else float32. Says why.

    Processors that multiply bfloat16 have nearly twice the speed in it; on others it is many times slower.
    """
    if device != "cpu":
        return "bfloat16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "float32"
    network, batch = network_and_batch(plan, dataset)
    seconds = dict.fromkeys(("float32", "bfloat16"), float("inf"))
    for _ in range(ROUNDS):  # in turns, so that other work on the machine slows both alike
        for precision in seconds:
            with computing_in(precision, device):
                seconds[precision] = min(seconds[precision], seconds_per_image(network, batch))
    speed = seconds["float32"] / seconds["bfloat16"]
    chosen = "bfloat16" if speed > WORTH_IT else "float32"
    progress.say(f"training in {chosen}: here bfloat16 has {speed:.2f} × the speed of float32")
    return chosen
