"""The settings of a model: chosen when it is created, recorded, and the same ever after."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bic.compute.precision import quickest_precision
from bic.data.fitting import holds_vectors
from bic.data.images import ImageSet
from bic.errors import UserError, unknown
from bic.learn.learning import Learning, MemoryBudget, merged
from bic.learn.recipe import Recipe
from bic.model.network import fresh_network
from bic.progress import Progress
from bic.settings import checked

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
    "epochs": lambda learning: learning.recipe.epochs,
    "seed": lambda learning: learning.seed,
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
    chosen = values.get("recipe") or recipe
    resized = {} if image_size is None else {"image_size": image_size}
    if isinstance(chosen, Recipe):
        return checked(Learning, {**values, "recipe": chosen.model_copy(update=resized)})
    table = {"name": chosen} if isinstance(chosen, str) else dict(chosen)
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
    if size is not None and size < SMALLEST and not {"recipe", "backbone"} & asked.keys():
        learning = learning.with_recipe(backbone="small")
    learning = learning.with_recipe(image_size=None if is_vectors else size)
    if learning.precision != "quickest":
        return learning
    if precision in ("float32", "bfloat16"):
        return learning.with_recipe(precision=precision)
    network = fresh_network(
        learning.recipe.backbone,
        channels=images.preprocessing.channels,
        image_size=size,
        num_classes=int(images.labels.max()) + 1,
    )
    batch, _ = images.take_readable(images.everything[: learning.recipe.batch_size])
    return learning.with_recipe(precision=quickest_precision(network, batch, progress, device))


def refuse_changes(asked: Mapping[str, Any], learning: Learning, folder: Path) -> None:
    """Raise UserError if a setting was given that differs from the recorded one."""
    for name, value in asked.items():
        recorded = SETTINGS[name](learning)
        if name == "memory":
            value = checked(Learning, {"memory": value}).memory
        if name == "recipe":
            recorded, value = _recipes(recorded.model_dump(), value)
        if value != recorded:
            raise UserError(
                f"{folder} was created with {name} {_in_words(recorded)}, got {_in_words(value)}",
                f"leave out {{{name}}}, or create another model",
            )


def _recipes(recorded: dict[str, Any], value: Any) -> tuple[Any, Any]:
    """The recorded recipe and the one that was given, in a form that can be compared."""
    if isinstance(value, str):
        return recorded["name"], value
    table = value if isinstance(value, Mapping) else value.model_dump()
    return recorded, merged(recorded, table)


def _in_words(value: Any) -> str:
    if isinstance(value, MemoryBudget):
        return f"{value.images:,} images" if value.bytes is None else f"{value.bytes:,} bytes"
    return str(value)[:200]
