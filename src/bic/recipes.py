"""The paper's recipes and the fast ones, by name, and how a request becomes a plan."""

from typing import Any

import numpy as np

from bic.config import Choices, MemoryBudget, Plan, Recipe, RunConfig, checked
from bic.data.images import Dataset
from bic.errors import UserError, unknown
from bic.methods import METHODS, VARIANTS, Method
from bic.network import Network
from bic.randomness import seeded
from bic.steps import check_order, check_step_sizes, step_sizes

# Milestones are shares of the epochs: after 100, 150, 200 of 250; after 30, 60, 80, 90 of 100.
_CIFAR = {"learning_rate": 0.1, "milestones": (0.4, 0.6, 0.8), "weight_decay": 2e-4}
_IMAGENET = {"learning_rate": 0.1, "milestones": (0.3, 0.6, 0.8, 0.9), "weight_decay": 1e-4, "batch_size": 256}
_TRIANGLE = {"schedule": "triangle", "nesterov": True, "weight_decay": 5e-4}
_MUON = {"learning_rate": 0.1, "kernel_rate": 0.05, "later_rate": 0.3}
_SMALL_CROP = {"crop_padding": 2, "crop_fill": "mirror", "flip": True}
_FAST = {"batch_size": 64, **_TRIANGLE, **_MUON, **_SMALL_CROP}
# An hour on two processor cores that multiply bfloat16.
_BEST = {"precision": "quickest", "crop_padding": 4, "later_muon": False, "previous_share": 0.5}
_BLACK_CROP = {"crop_fill": "black", "flip": False}
_CROP = {"crop_padding": 4, "flip": True}
_VGG = {"image_size": 224, "resize": 256, "random_resize": (256, 512), "flip": True}

RECIPES: dict[str, dict[str, Any]] = {
    # §6.2 of the paper. The authors' code also scales weight decay by the step; the paper doesn't.
    "paper-cifar100": {"backbone": "resnet32", "epochs": 250, **_CIFAR, **_CROP},
    "paper-imagenet": {"backbone": "resnet18", "epochs": 100, **_IMAGENET, **_VGG},
    "fast": {"backbone": "fast", "epochs": 5, "first_epochs": 8, **_FAST},
    "best": {"backbone": "wide+wide", "epochs": 16, "first_epochs": 24, **_FAST, **_BEST},
    # No flips and no colours: drawn or printed characters, thousands of them, white on black.
    "characters": {"backbone": "strokes", "epochs": 5, "first_epochs": 8, **_FAST, **_BLACK_CROP},
    # Short enough that the bias towards new classes shows on data as easy as digits.
    "demo": {"backbone": "mlp", "epochs": 2, "batch_size": 32, "learning_rate": 0.15, **_TRIANGLE},
    "vectors": {"backbone": "mlp", "epochs": 20, "batch_size": 64, "learning_rate": 0.05, **_TRIANGLE},
}

# The compared methods' own published schedules, which the paper's figures for them stand on.
_ICARL = {"learning_rate": 2.0, "decay": 0.2, "weight_decay": 1e-5, "batch_size": 128}
_EEIL = {"epochs": 40, "learning_rate": 0.1, "milestones": (0.25, 0.5, 0.75), "weight_decay": 1e-4, "batch_size": 128}
_EEIL |= {"balanced_epochs": 30, "balanced_milestones": (1 / 3, 2 / 3)}
OWN_SCHEDULES: dict[tuple[str, str], dict[str, Any]] = {
    ("paper-cifar100", "icarl"): {**_ICARL, "epochs": 70, "milestones": (0.7, 0.9)},
    ("paper-imagenet", "icarl"): {**_ICARL, "epochs": 60, "milestones": (2 / 6, 3 / 6, 4 / 6, 5 / 6)},
    ("paper-cifar100", "eeil"): _EEIL,
    ("paper-imagenet", "eeil"): _EEIL,
}


# What a protocol takes where the user says nothing: steps, images in the memory, share of them held out.
PROTOCOLS = {
    "cifar100": (5, 2000, 0.1),
    "imagenet100": (10, 2000, 0.1),
    "imagenet1000": (10, 20_000, 0.1),
    "celeb10000": (10, 50_000, 0.2),
    "digits": (5, 120, 0.25),
}


def find_method(name: str) -> Method:
    known = METHODS | VARIANTS
    if name not in known:
        raise unknown("method", name, METHODS)
    return known[name]


def find_recipe(config: RunConfig, *, default: str = "fast", num_classes: int = 1) -> Recipe:
    """The recipe a request names, with the method's own parts and then the user's changes."""
    method = find_method(config.method)
    name = str(config.recipe.get("name") or ("demo" if config.dataset == "digits" else default))
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    chosen = dict(RECIPES[name])
    scale = method.rate_per_class * num_classes if method.rate_per_class else 1.0
    chosen |= {"learning_rate": chosen["learning_rate"] * scale, "weight_decay": chosen["weight_decay"] / scale}
    chosen |= {**method.recipe, **OWN_SCHEDULES.get((name, method.name), {}), **config.recipe, "name": name}
    for part in ("balanced_epochs", "first_epochs"):
        if config.epochs is not None and chosen.get(part):
            chosen[part] = max(1, round(chosen[part] * config.epochs / chosen["epochs"]))
    chosen |= {key: value for key in ("epochs", "backbone") if (value := getattr(config, key)) is not None}
    return checked(Recipe, chosen, under="recipe.")


def make_plan(config: RunConfig, dataset: Dataset) -> Plan:
    """Decide everything a request leaves open, and refuse what cannot work."""
    pixels = dataset.train.pixels
    if dataset.image_size is None and (pixels is None or pixels.ndim != 2):
        raise UserError("images must be square; bring them to a size with --set recipe.image_size=32")
    steps, images, held_out = PROTOCOLS.get(dataset.name, PROTOCOLS["cifar100"])
    num_classes = len(dataset.classes)
    recipe = find_recipe(config, default="fast" if dataset.image_size else "vectors", num_classes=num_classes)
    given = config.step_sizes
    sizes = step_sizes(num_classes, steps=config.steps or steps) if given is None else given
    check_step_sizes(sizes, num_classes)
    if config.class_order is not None:
        check_order(config.class_order, num_classes)
    plan = Plan(
        **{**{name: getattr(config, name) for name in Choices.model_fields}, "dataset": dataset.name},
        fingerprint=dataset.fingerprint,
        step_sizes=sizes,
        memory=config.memory or MemoryBudget(images=images),
        held_out=config.held_out or held_out,
        compile=config.compile or False,
        recipe=recipe.model_copy(update={"image_size": dataset.image_size}),
    )
    _check_every_class_fits(plan, find_method(config.method), dataset)
    with seeded("check"):  # that the network can be built
        Network(recipe.backbone, channels=dataset.train.view.channels, image_size=dataset.image_size)
    return plan


def _check_every_class_fits(plan: Plan, method: Method, dataset: Dataset) -> None:
    """A class needs one image, in the data and in the memory; two where one of them is held out."""
    per_class, words = (2, "two images") if method.corrects else (1, "one image")
    counts = np.bincount(dataset.train.labels)
    if counts.min() < per_class:
        found = f"class {dataset.classes[counts.argmin()]!r} has only {counts.min()} training image"
        raise UserError(f"{found} and {method.name} needs {words}, one of them held out; add images or leave it out")
    if (counts.min() - method.corrects) * min(plan.step_sizes) < 2:
        raise UserError("every step needs two images to train on, beside those held out; make the steps larger")
    needed, have, unit = per_class * len(dataset.classes), plan.memory.images, "images"
    if plan.memory.bytes is not None:
        needed, have, unit = int(needed * dataset.train.sampled_bytes().max()), plan.memory.bytes, "bytes"
    if method.keeps_exemplars and have is not None and have < needed:
        wanted = f"{words} per class seen ({needed} {unit} for {len(dataset.classes)} classes)"
        raise UserError(f"memory must hold {wanted}, got {have}; raise --memory")
