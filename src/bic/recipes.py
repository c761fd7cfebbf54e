"""The paper's recipes and the fast ones, by name, and how a request becomes a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bic.config import MemoryBudget, Plan, Recipe, RunConfig, checked
from bic.data.images import Dataset
from bic.errors import UserError, unknown
from bic.methods import METHODS, Method
from bic.steps import check_order, check_step_sizes, step_sizes

RECIPES: dict[str, dict[str, Any]] = {
    # §6.2 of the paper. The authors' code also scales weight decay by the step; the paper doesn't.
    "paper-cifar100": {
        "backbone": "resnet32",
        "epochs": 250,
        "learning_rate": 0.1,
        "milestones": (100 / 250, 150 / 250, 200 / 250),
        "weight_decay": 2e-4,
        "crop_padding": 4,
        "flip": True,
    },
    # §6.2; VGG's preprocessing.
    "paper-imagenet": {
        "backbone": "resnet18",
        "image_size": 224,
        "resize": 256,
        "random_resize": (256, 512),
        "epochs": 100,
        "batch_size": 256,
        "learning_rate": 0.1,
        "milestones": (0.3, 0.6, 0.8, 0.9),
        "weight_decay": 1e-4,
        "flip": True,
    },
    "fast": {
        "backbone": "fast",
        "epochs": 10,
        "learning_rate": 0.1,
        "schedule": "triangle",
        "nesterov": True,
        "weight_decay": 5e-4,
        "crop_padding": 4,
        "flip": True,
    },
    "demo": {
        "backbone": "small",
        "epochs": 20,
        "batch_size": 32,
        "learning_rate": 0.05,
        "schedule": "triangle",
        "nesterov": True,
        "weight_decay": 5e-4,
        "crop_padding": 1,
    },
    "vectors": {
        "backbone": "mlp",
        "epochs": 20,
        "batch_size": 64,
        "learning_rate": 0.05,
        "schedule": "triangle",
        "nesterov": True,
        "weight_decay": 5e-4,
    },
}

# The compared methods' own published schedules, which the paper's figures for them stand on.
_ICARL = {"learning_rate": 2.0, "decay": 0.2, "weight_decay": 1e-5, "batch_size": 128}
_EEIL = {
    "epochs": 40,
    "learning_rate": 0.1,
    "milestones": (0.25, 0.5, 0.75),
    "balanced_epochs": 30,
    "balanced_milestones": (1 / 3, 2 / 3),
    "weight_decay": 1e-4,
    "batch_size": 128,
}
PUBLISHED: dict[tuple[str, str], dict[str, Any]] = {
    ("paper-cifar100", "icarl"): {**_ICARL, "epochs": 70, "milestones": (0.7, 0.9)},
    ("paper-imagenet", "icarl"): {
        **_ICARL,
        "epochs": 60,
        "milestones": (20 / 60, 30 / 60, 40 / 60, 50 / 60),
    },
    ("paper-cifar100", "eeil"): _EEIL,
    ("paper-imagenet", "eeil"): _EEIL,
}


@dataclass(frozen=True)
class Defaults:
    """What a protocol takes where the user says nothing."""

    steps: int = 5
    memory: int = 2000
    held_out: float = 0.1


PROTOCOLS = {
    "cifar100": Defaults(),
    "imagenet100": Defaults(steps=10),
    "imagenet1000": Defaults(steps=10, memory=20_000),
    "celeb10000": Defaults(steps=10, memory=50_000, held_out=0.2),
    "digits": Defaults(memory=100, held_out=0.3),
}


def find_recipe(config: RunConfig, method: Method) -> Recipe:
    """The recipe a request names, with the method's own parts and then the user's changes."""
    name = config.recipe.get("name") or ("demo" if config.dataset == "digits" else "fast")
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    base = dict(RECIPES[name])
    base["learning_rate"] *= method.learning_rate_scale
    chosen = {**base, **method.recipe, **PUBLISHED.get((name, method.name), {}), **config.recipe}
    for setting in ("epochs", "backbone"):
        if getattr(config, setting) is not None:
            chosen[setting] = getattr(config, setting)
    return checked(Recipe, {**chosen, "name": name})


def find_method(name: str) -> Method:
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]


def make_plan(config: RunConfig, dataset: Dataset) -> Plan:
    """Decide everything a request leaves open, and refuse what cannot work."""
    method = find_method(config.method)
    recipe = find_recipe(config, method)
    if dataset.train.pixels is not None and dataset.train.pixels.ndim == 2:
        if "name" not in config.recipe and config.backbone is None:
            recipe = find_recipe(
                config.model_copy(update={"recipe": {**config.recipe, "name": "vectors"}}), method
            )
    elif recipe.image_size is None:
        recipe = recipe.model_copy(update={"image_size": dataset.image_size})
    defaults = PROTOCOLS.get(dataset.name, Defaults())
    num_classes = len(dataset.classes)
    sizes = (
        check_step_sizes(config.step_sizes, num_classes)
        if config.step_sizes is not None
        else step_sizes(num_classes, steps=config.steps or defaults.steps)
    )
    explicit = config.class_order
    if explicit is not None:
        check_order(explicit, num_classes)
    plan = Plan(
        dataset=dataset.name,
        fingerprint=dataset.fingerprint,
        label=config.label,
        method=method.name,
        seed=config.seed,
        step_sizes=sizes,
        order_seed=config.order_seed if explicit is None else None,
        class_order=explicit,
        memory=config.memory or MemoryBudget(images=defaults.memory),
        exemplars=config.exemplars,
        held_out=config.held_out or defaults.held_out,
        correction_penalty=config.correction_penalty,
        recipe=recipe,
    )
    _check_memory(plan, method, dataset)
    return plan


def _check_memory(plan: Plan, method: Method, dataset: Dataset) -> None:
    """Every class must fit: one image a class, two where one of them is held out."""
    per_class = method.images_per_class
    words = "two images" if per_class == 2 else "one image"
    counts = np.bincount(dataset.train.labels)
    if counts.min() < per_class:
        name = dataset.classes[int(counts.argmin())]
        raise UserError(
            f"class {name!r} has {counts.min()} training image, {method.name} needs {words} of "
            "each class (one of them is held out); add images or leave the class out"
        )
    if not method.keeps_exemplars:
        return
    num_classes = len(dataset.classes)
    needed, unit = num_classes * per_class, "images"
    have = plan.memory.images
    if plan.memory.bytes is not None:
        some = np.linspace(0, len(dataset.train) - 1, 100).astype(int)
        mean = np.mean([len(dataset.train.encoded(int(index))) for index in some])
        needed, unit, have = int(needed * mean), "bytes", plan.memory.bytes
    assert have is not None
    if have < needed:
        raise UserError(
            f"memory must hold {words} per class seen ({needed} {unit} for {num_classes} classes), "
            f"got {have}; raise --memory"
        )
