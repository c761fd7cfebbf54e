"""Whether compiling the network pays for itself in a run, by measurement."""

import time
from collections.abc import Callable

import torch
from torch import Tensor

from bic.config import Plan
from bic.cost import images_trained_on, network_and_batch, seconds_per_image, with_teacher
from bic.data.images import Dataset
from bic.network import Network
from bic.progress import Progress
from bic.recipes import find_method
from bic.train import Teacher, Training

LONG_RUN = 60 * 60  # seconds of training below which the two minutes of compiling are not even tried
ROUNDS = 3
FEW_PIXELS = 200_000 * 32**2  # over all epochs: over before a measurement would be worth it


def compiled_forward(network: Network) -> Callable[[Tensor], Tensor]:
    """The network's forward pass with its backbone compiled. The head, which grows, is left as it is."""
    backbone = torch.compile(network.backbone, dynamic=True)
    return lambda images: network.scored(backbone(network.normalised(images)).float())


def compile_training(training: Training, network: Network, teacher: Teacher | None) -> None:
    """Let the training of a network use compiled forward passes, its own and its teacher's."""
    training.compiled = compiled_forward(network)
    if teacher is not None:
        teacher.forward = compiled_forward(teacher.folded)


def worth_compiling(plan: Plan, dataset: Dataset, progress: Progress, device: str) -> bool:
    """Whether a run will be over sooner with its network compiled. Says why."""
    images = _images_ahead(plan, dataset)
    few = images * (dataset.image_size or 1) ** 2 <= FEW_PIXELS
    if few or device != "cpu" or plan.recipe.precision == "bfloat16":
        return False
    network, batch = network_and_batch(plan, dataset)
    plain = seconds_per_image(network, batch)
    ahead = images * plain * with_teacher(find_method(plan.method))
    if ahead < LONG_RUN:
        progress.say(f"not compiling the network: about {ahead / 60:.0f} min of training ahead, too few to pay for it")
        return False
    progress.say(f"compiling the network, since about {ahead / 60:.0f} min of training are ahead")
    began = time.perf_counter()
    try:
        forward = compiled_forward(network)
        quick = seconds_per_image(network, batch, forward)
    except Exception as error:  # most often there is no C++ compiler
        progress.say(f"going on without: the network cannot be compiled here ({type(error).__name__})")
        return False
    took = time.perf_counter() - began
    for _ in range(ROUNDS):  # in turns, so that other work on the machine slows both alike
        plain = min(plain, seconds_per_image(network, batch))
        quick = min(quick, seconds_per_image(network, batch, forward))
    pays = images * (plain - quick) > took
    verdict = "compiled it" if pays else "not using it"
    progress.say(f"{verdict}: {plain / quick:.2f} × the speed, for {took:.0f} s of compiling")
    return pays


def _images_ahead(plan: Plan, dataset: Dataset) -> int:
    exemplars = plan.memory.images
    if exemplars is None:
        exemplars = int((plan.memory.bytes or 0) / dataset.train.sampled_bytes().mean())
    counts = {"num_images": len(dataset.train), "num_exemplars": exemplars}
    return images_trained_on(plan.recipe, find_method(plan.method), num_steps=len(plan.step_sizes), **counts)
