"""The settings of a model: chosen when it is created, recorded, and the same ever after."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bic.data.fitting import holds_vectors
from bic.data.images import ImageSet
from bic.errors import UserError, unknown
from bic.learn.learning import Learning, MemoryBudget, default_recipe, merged
from bic.learn.measured_precision import measured_precision
from bic.learn.recipe import Recipe
from bic.progress import Progress
from bic.settings import checked, flat_settings

SMALLEST = 9  # pixels a side that the network of the default recipe needs

# Each setting that can be given, and where it is recorded.
SETTINGS: dict[str, Callable[[Learning], Any]] = {
    "method": lambda learning: learning.method,
    "recipe": lambda learning: learning.recipe,
    "memory": lambda learning: learning.memory,
    "held_out": lambda learning: learning.held_out,
    "exemplars": lambda learning: learning.exemplars,
    "image_size": lambda learning: learning.recipe.image_size,
    "backbone": lambda learning: learning.recipe.backbone,
    "tune": lambda learning: not learning.recipe.frozen,
    "epochs": lambda learning: learning.recipe.epochs,
    "seed": lambda learning: learning.seed,
    "random_features": lambda learning: getattr(learning.method_settings, "random_features", None),
}


def given(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are not None. Raises UserError for an unknown one."""
    for name in settings:
        if name not in SETTINGS:
            raise unknown("setting of a model", name, SETTINGS)
    return {name: value for name, value in settings.items() if value is not None}


def first_learning(asked: Mapping[str, Any], *, recipe: str = "fast") -> Learning:
    """The settings of a new model before its images are known. `recipe` is the default."""
    values = dict(asked)
    image_size = values.pop("image_size", None)
    resized = {} if image_size is None else {"image_size": image_size}
    random_features = values.pop("random_features", None)
    if random_features is not None:  # only ridge has them
        values.setdefault("method", "ridge")
        values["method_settings"] = {"random_features": random_features}
    tune = bool(values.get("tune"))
    default = default_recipe(values.get("backbone"), tune=tune, otherwise=recipe)
    chosen = values.get("recipe") or default
    if isinstance(chosen, Recipe):
        return checked(Learning, {**values, "recipe": chosen.model_copy(update=resized)})
    table = {"name": chosen} if isinstance(chosen, str) else {"name": default, **dict(chosen)}
    return checked(Learning, {**values, "recipe": {**table, **resized}})


def suited_learning(
    asked: Mapping[str, Any],
    images: ImageSet,
    progress: Progress,
    device: str,
    *,
    precision: str | None = None,
) -> Learning:
    """The settings of a new model for these images, with everything chosen that was left open.

    `precision` is what an interrupted learn has measured to be the quickest.
    """
    is_vectors = holds_vectors(images)
    learning = first_learning(asked, recipe="vectors" if is_vectors else "fast")
    size = images.preprocessing.size
    if size is None and not is_vectors:
        raise UserError("images must be square", "set {image_size=32} to resize them")
    if size is not None and size < SMALLEST and not _names_network(asked):
        learning = learning.with_recipe(backbone="small")
    learning = learning.with_recipe(image_size=None if is_vectors else size)
    if learning.precision != "quickest":
        return learning
    if precision in ("float32", "bfloat16"):
        return learning.with_recipe(precision=precision)
    num_classes = int(images.labels.max()) + 1
    measured = measured_precision(learning, images, num_classes, progress, device)
    return learning.with_recipe(precision=measured)


def _names_network(asked: Mapping[str, Any]) -> bool:
    """Whether a backbone was given, or a recipe, which has one."""
    recipe = asked.get("recipe", {})
    is_table = isinstance(recipe, Mapping)
    return "backbone" in asked or not is_table or bool({"name", "backbone"} & recipe.keys())


def refuse_changes(asked: Mapping[str, Any], learning: Learning, folder: Path) -> None:
    """Raise UserError if a setting was given that differs from the recorded one."""
    for name, value in asked.items():
        recorded = SETTINGS[name](learning)
        if name == "memory":
            value = checked(Learning, {"memory": value, "method": learning.method}).memory
        if name == "recipe":
            table = {"name": value} if isinstance(value, str) else _asked_settings(value)
            name, recorded, value = _differing(recorded.model_dump(), table)
        if value != recorded:
            raise UserError(
                f"{folder} was created with {name} {_in_words(recorded)}, got {_in_words(value)}",
                f"leave out {name.join('{}')}, or create another model",
            )


def _asked_settings(recipe: Mapping[str, Any] | Recipe) -> dict[str, Any]:
    """The settings that a recipe asks for, without those that a Recipe leaves open."""
    if not isinstance(recipe, Recipe):
        return dict(recipe)
    left_open = [("image_size", None), ("precision", "quickest")]
    settings = recipe.model_dump()
    return {name: value for name, value in settings.items() if (name, value) not in left_open}


def _differing(recorded: Mapping[str, Any], table: Mapping[str, Any]) -> tuple[str, Any, Any]:
    """The first setting of a recipe that differs: its name, recorded and given. Or equal values."""
    before = dict(flat_settings(recorded, "recipe."))
    for path, value in flat_settings(merged(recorded, table), "recipe."):
        if value != before.get(path):
            name = "recipe" if path == "recipe.name" else path
            return name, before.get(path), value
    return "recipe", None, None


def _in_words(value: Any) -> str:
    if isinstance(value, MemoryBudget):
        return f"{value.images:,} images" if value.bytes is None else f"{value.bytes:,} bytes"
    return str(value)[:200]
