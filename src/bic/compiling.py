"""Whether compiling the network pays for itself in a run, by measurement."""

import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from bic.config import Plan
from bic.data.images import Dataset
from bic.network import Network
from bic.progress import Progress
from bic.randomness import seeded
from bic.recipes import find_method

LONG_RUN = 20 * 60  # seconds of training below which the minute or two of compiling is not even tried
FEW_IMAGES = 200_000  # over all epochs: over before a measurement would be worth it


def compiled_forward(network: Network) -> Callable[[Tensor], Tensor]:
    """The network's forward pass with its backbone compiled. The head, which grows, is left as it is."""
    backbone = torch.compile(network.backbone, dynamic=True)
    return lambda images: network.head(backbone(network.normalised(images)))


def worth_compiling(plan: Plan, dataset: Dataset, progress: Progress, device: str) -> bool:
    """Whether a run will be over sooner with its network compiled. Says why."""
    images = _images_trained_on(plan, dataset)
    if images <= FEW_IMAGES or device != "cpu":
        return False
    plain = _seconds_per_image(plan, dataset, compiled=False)
    ahead = images * plain
    if ahead < LONG_RUN:
        progress.say(f"not compiling the network: about {ahead / 60:.0f} min of training ahead, too few to pay for it")
        return False
    progress.say(f"compiling the network, since about {ahead / 60:.0f} min of training are ahead")
    began = time.perf_counter()
    try:
        quick = _seconds_per_image(plan, dataset, compiled=True)
    except Exception as error:  # most often there is no C++ compiler
        progress.say(f"going on without: the network cannot be compiled here ({type(error).__name__})")
        return False
    took = time.perf_counter() - began
    pays = images * (plain - quick) > took
    verdict = "compiled it" if pays else "not using it"
    progress.say(f"{verdict}: {plain / quick:.2f} × the speed, for {took:.0f} s of compiling")
    return pays


def _images_trained_on(plan: Plan, dataset: Dataset) -> int:
    """Roughly: every image once an epoch, and the memory once an epoch in every later step."""
    exemplars = (plan.memory.images or 0) * (len(plan.step_sizes) - 1)
    if find_method(plan.method).sees_old_data == "network":
        exemplars = len(dataset.train) * (len(plan.step_sizes) - 1) // 2
    return plan.recipe.epochs * (len(dataset.train) + exemplars)


def _seconds_per_image(plan: Plan, dataset: Dataset, *, compiled: bool) -> float:
    recipe, view = plan.recipe, dataset.train.view
    with seeded("check"):
        network = Network(recipe.backbone, channels=view.channels, image_size=view.size)
        network.head.grow(plan.step_sizes[0])
        size = min(recipe.batch_size, len(dataset.train))
        images, readable = dataset.train.take_readable(dataset.train.everything[:size])
        labels = torch.zeros(len(readable), dtype=torch.int64)
        forward = compiled_forward(network.train()) if compiled else network.train()
        times = []
        for _ in range(5):
            began = time.perf_counter()
            torch.autograd.grad(F.cross_entropy(forward(images), labels), list(network.parameters()))
            times.append(time.perf_counter() - began)
    return min(times) / size
