"""Teach an image classifier new classes batch by batch, without forgetting the old ones."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bic.version import __version__

if TYPE_CHECKING:
    from bic.config import MemoryBudget, Plan, Recipe, RunConfig
    from bic.correction import Correction, fit_correction
    from bic.data import Dataset, ImageSet, open_dataset
    from bic.errors import HeldOutWarning, UserError
    from bic.learner import Learner
    from bic.memory import Memory
    from bic.methods import METHODS, Method
    from bic.model import Model
    from bic.progress import Progress
    from bic.protocol import run
    from bic.recipes import RECIPES
    from bic.run_folder import load_model
    from bic.steps import class_order

__all__ = ["METHODS", "RECIPES", "Correction", "Dataset", "HeldOutWarning", "ImageSet", "Learner", "Memory"]
__all__ += ["MemoryBudget", "Method", "Model", "Plan", "Progress", "Recipe", "RunConfig", "UserError"]
__all__ += ["__version__", "class_order", "fit_correction", "load_model", "open_dataset", "run"]

# Imported when they are first used: torch takes two seconds, which `bic --help` and `bic report` can do without.
_NAMES = {
    "config": "MemoryBudget Plan Recipe RunConfig",
    "correction": "Correction fit_correction",
    "data": "Dataset ImageSet open_dataset",
    "errors": "HeldOutWarning UserError",
    "learner": "Learner",
    "memory": "Memory",
    "methods": "METHODS Method",
    "model": "Model",
    "progress": "Progress",
    "protocol": "run",
    "recipes": "RECIPES",
    "run_folder": "load_model",
    "steps": "class_order",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bic' has no attribute {name!r}")
    return getattr(import_module(f"bic.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
