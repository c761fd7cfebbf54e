"""Turn a request into a plan: choose what it leaves open, and refuse what cannot work."""

import torch

from bic.compute.compiling import worth_compiling
from bic.compute.distributed import gathered_objects, world
from bic.compute.seeding import seeded
from bic.data.images import Dataset
from bic.errors import UserError
from bic.lab.plan import Plan, RunConfig, learning_for
from bic.lab.protocol import Protocol, defaults_for
from bic.lab.steps import check_order, check_step_sizes, step_sizes
from bic.learn.effort import images_trained_on, update_cost
from bic.learn.learning import Learning
from bic.learn.measured_precision import measured_precision, timed_network
from bic.learn.methods import find_method
from bic.learn.requirements import check_images, check_memory, num_held_out_of_class
from bic.model.network import Network, compiled_forward
from bic.progress import Progress

FEW_PIXELS = 200_000 * 32**2  # over all epochs; with fewer, a measurement saves no time


def make_plan(config: RunConfig, dataset: Dataset) -> Plan:
    """Choose everything that a request leaves open, and refuse what cannot work."""
    pixels = dataset.train.pixels
    if dataset.image_size is None and (pixels is None or pixels.ndim != 2):
        raise UserError("images must be square", "set {recipe.image_size=32} to resize them")
    num_classes = len(dataset.classes)
    defaults = defaults_for(dataset.name)
    sizes = config.step_sizes
    if sizes is None:
        sizes = step_sizes(num_classes, steps=config.steps or defaults.steps)
    check_step_sizes(sizes, num_classes)
    if config.class_order is not None:
        check_order(config.class_order, num_classes)
    learning = learning_for(
        config,
        defaults=defaults,
        default_recipe_name="fast" if dataset.image_size else "vectors",
        num_classes=num_classes,
    )
    learning = learning.with_recipe(image_size=dataset.image_size)
    protocol = Protocol(
        dataset=dataset.name,
        label=config.label,
        classes=config.classes,
        fingerprint=dataset.fingerprint,
        class_order=config.class_order,
        order_seed=config.order_seed,
        step_sizes=sizes,
    )
    plan = Plan(protocol, learning)
    _check(plan, dataset)
    return plan


def _check(plan: Plan, dataset: Dataset) -> None:
    """Raise UserError before training for what would fail in some step."""
    learning = plan.learning
    counts = torch.bincount(torch.from_numpy(dataset.train.labels)).numpy()
    check_images(learning, counts, dataset.classes)
    fewest = int(counts.min()) - num_held_out_of_class(learning)
    if fewest * min(plan.protocol.step_sizes) < 2:
        raise UserError(
            "every step needs two images to train on, not counting held-out images",
            "make the steps larger",
        )
    check_memory(learning, len(dataset.classes), dataset.train)
    preprocessing = dataset.train.preprocessing
    with seeded("check"):  # that the network can be built
        Network(
            learning.recipe.backbone, channels=preprocessing.channels, image_size=preprocessing.size
        )


def measured(
    plan: Plan,
    config: RunConfig,
    recorded: Plan | None,
    dataset: Dataset,
    progress: Progress,
    device: str,
) -> Plan:
    """The plan with precision and compiling chosen by their speed here, or as recorded."""
    learning = plan.learning
    if recorded is not None and config.held_out_limit is None:
        # The default of the version that started the run.
        limit = recorded.learning.held_out_limit
        learning = learning.model_copy(update={"held_out_limit": limit})
    if learning.precision == "quickest":
        if config.compile:
            choice = "float32"  # a compiled network trains in float32 only
        elif recorded is not None:
            choice = recorded.learning.precision
        else:
            num_classes = plan.protocol.step_sizes[0]
            choice = measured_precision(learning, dataset.train, num_classes, progress, device)
        everywhere = set(gathered_objects(choice))
        precision = "bfloat16" if everywhere == {"bfloat16"} else "float32"
        learning = learning.with_recipe(precision=precision)
    if config.compile is None and world().size == 1:
        if recorded is not None:
            compiles = recorded.learning.compile
        else:
            compiles = _worth_compiling(plan.protocol, learning, dataset, progress, device)
        learning = learning.model_copy(update={"compile": compiles})
    return Plan(plan.protocol, learning)


def _worth_compiling(
    protocol: Protocol, learning: Learning, dataset: Dataset, progress: Progress, device: str
) -> bool:
    """Whether the run finishes sooner with its network compiled."""
    if learning.recipe.frozen:
        return False
    method = find_method(learning.method)
    num_exemplars = learning.memory.images
    if num_exemplars is None:
        image_bytes = dataset.train.sampled_bytes().mean()
        num_exemplars = int((learning.memory.bytes or 0) / image_bytes)
    num_images = images_trained_on(
        learning.recipe,
        method,
        num_images=len(dataset.train),
        num_exemplars=num_exemplars,
        num_steps=len(protocol.step_sizes),
    )
    is_short = num_images * (dataset.image_size or 1) ** 2 <= FEW_PIXELS
    if is_short or device != "cpu" or learning.precision == "bfloat16":
        return False
    network, batch = timed_network(learning, dataset.train, protocol.step_sizes[0])
    return worth_compiling(
        network,
        batch,
        lambda: compiled_forward(network),
        num_images=num_images,
        update_cost=update_cost(method),
        progress=progress,
    )
