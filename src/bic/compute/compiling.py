"""Whether compiling the network saves time in a run, by measurement."""

import time
from collections.abc import Callable

from torch import Tensor, nn

from bic.compute.cost import seconds_per_image
from bic.progress import Progress

Forward = Callable[[Tensor], Tensor]

LONG_RUN = 60 * 60  # seconds; compiling takes two minutes and is not tried for less training
ROUNDS = 3


def worth_compiling(
    network: nn.Module,
    images: Tensor,
    compiled: Callable[[], Forward],
    *,
    num_images: int,
    update_cost: float,
    progress: Progress,
) -> bool:
    """Whether a run finishes sooner with its network compiled. The reason is shown as progress.

    `compiled` compiles the network and returns its forward pass. `num_images` is the number of
    images to train on, over all epochs. `update_cost` is the cost of an update relative to a
    student's forward and backward pass.
    """
    plain_seconds = seconds_per_image(network, images)
    seconds_ahead = num_images * plain_seconds * update_cost
    minutes = f"about {seconds_ahead / 60:.0f} min of training ahead"
    if seconds_ahead < LONG_RUN:
        progress.say(f"not compiling the network: {minutes}, too short to save time")
        return False
    progress.say(f"compiling the network: {minutes}")
    start = time.perf_counter()
    try:
        forward = compiled()
        compiled_seconds = seconds_per_image(network, images, forward)
    except Exception as error:  # most often there is no C++ compiler
        reason = type(error).__name__
        progress.say(f"the network cannot be compiled here ({reason}); training without compiling")
        return False
    compile_seconds = time.perf_counter() - start
    for _ in range(ROUNDS):  # alternating, so that other work on the machine slows both down
        plain_seconds = min(plain_seconds, seconds_per_image(network, images))
        compiled_seconds = min(compiled_seconds, seconds_per_image(network, images, forward))
    pays = num_images * (plain_seconds - compiled_seconds) > compile_seconds
    verdict = "using the compiled network" if pays else "not using the compiled network"
    speedup = plain_seconds / compiled_seconds
    progress.say(f"{verdict}: {speedup:.2f} × the speed, {compile_seconds:.0f} s to compile")
    return pays
