"""Settings that have moved: errors name the new path, and old runs can still be read."""

from collections.abc import Iterable, Mapping
from typing import Any

from bic.errors import UserError, unknown
from bic.learn.methods import ALL

# Old path → new path.
MOVED = {
    "recipe.momentum": "recipe.optimiser.momentum",
    "recipe.nesterov": "recipe.optimiser.nesterov",
    "recipe.weight_decay": "recipe.optimiser.weight_decay",
    "recipe.kernel_rate": "recipe.optimiser.muon_rate",
    "recipe.later_rate": "recipe.optimiser.later_rate",
    "recipe.later_muon": "recipe.optimiser.later_muon",
    "recipe.schedule": "recipe.schedule.kind",
    "recipe.milestones": "recipe.schedule.milestones",
    "recipe.decay": "recipe.schedule.decay",
    "recipe.warmup": "recipe.schedule.warmup",
    "recipe.crop_padding": "recipe.augmentation.crop_padding",
    "recipe.crop_fill": "recipe.augmentation.crop_fill",
    "recipe.flip": "recipe.augmentation.flip",
    "recipe.brightness": "recipe.augmentation.brightness",
    "recipe.contrast": "recipe.augmentation.contrast",
    "recipe.random_resize": "recipe.augmentation.random_resize",
    "recipe.previous_share": "method_settings.previous_share",
    "recipe.gradient_noise": "method_settings.gradient_noise",
    "recipe.balanced_epochs": "method_settings.balanced_epochs",
    "recipe.balanced_milestones": "method_settings.balanced_milestones",
}


def refuse_moved(asked: Mapping[str, Any], under: str, known: Iterable[str]) -> None:
    """Raise UserError for a setting that has moved, with its new path, or that is unknown."""
    known = list(known)
    tables = {path.removeprefix(under).partition(".")[0] for path in known}
    for name, value in asked.items():
        path = under + name
        is_table = isinstance(value, Mapping)
        if path in MOVED and not (name in tables and is_table):
            raise UserError(f"{path} has moved", f"use {{{MOVED[path]}={value}}}")
        if name not in tables:
            raise unknown("setting", path, known)


def upgraded(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that an earlier version recorded, with every setting at its present path.

    A method's own settings are kept only for the method that has them. Other settings stay as
    they are.
    """
    settings = dict(settings)
    old = settings.get("recipe")
    old_own = settings.get("method_settings", {})
    if not isinstance(old, Mapping) or not isinstance(old_own, Mapping):
        return settings  # damaged, which is found when they are checked
    recipe: dict[str, Any] = {}
    own: dict[str, Any] = dict(old_own)
    method = ALL.get(str(settings.get("method", "bic")))
    for name, value in old.items():
        new = MOVED.get(f"recipe.{name}")
        if new is None or isinstance(value, Mapping):
            recipe[name] = value
            continue
        table, _, leaf = new.removeprefix("recipe.").partition(".")
        if table != "method_settings":
            moved = recipe.get(table)
            recipe[table] = {**(moved if isinstance(moved, Mapping) else {}), leaf: value}
        elif method is not None and leaf in method.settings.model_fields:
            own[leaf] = value
    settings["recipe"] = recipe
    if own:
        settings["method_settings"] = own
    return settings
