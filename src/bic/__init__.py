"""Teach an image classifier new classes batch by batch, with few old images or none."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bic.version import __version__

if TYPE_CHECKING:
    from bic.classifier import BiCClassifier
    from bic.data.augmentation import Augmentation
    from bic.data.from_python import as_image_set
    from bic.data.images import Dataset, ImageSet
    from bic.data.open import open_dataset
    from bic.data.preprocessing import Preprocessing
    from bic.errors import BicError, HeldOutWarning, LostError, UserError
    from bic.lab.plan import RunConfig
    from bic.lab.run import run
    from bic.lab.steps import class_order
    from bic.learn.correction import fit_correction
    from bic.learn.learner import Learner
    from bic.learn.learning import Learning, MemoryBudget
    from bic.learn.lesson import Learned
    from bic.learn.methods import METHODS
    from bic.learn.methods.method import Method
    from bic.learn.recipe import Optimiser, Recipe, Schedule
    from bic.learn.recipes import RECIPES
    from bic.model.answers import Correction
    from bic.model.calibration import Calibration
    from bic.model.evaluation import Evaluation
    from bic.model.export import Exported
    from bic.model.intervals import Drop, Share
    from bic.model.model import Model
    from bic.model.versions import Event, Verdict
    from bic.progress import Progress
    from bic.store.check import Damage, FolderCheck
    from bic.store.learn_report import Expectation, LearnReport
    from bic.store.model_folder import ModelFolder, open_model
    from bic.store.overview import ClassSummary, VersionDiff
    from bic.store.results import Result, StepResult, read_result

# Where each public name is defined. Modules are imported when a name is first used: importing torch
# takes two seconds, and `bic --help` and `bic report` do not need it.
_HOMES = {
    "Augmentation": "data.augmentation",
    "BiCClassifier": "classifier",
    "BicError": "errors",
    "Calibration": "model.calibration",
    "ClassSummary": "store.overview",
    "Correction": "model.answers",
    "Damage": "store.check",
    "Dataset": "data.images",
    "Evaluation": "model.evaluation",
    "Drop": "model.intervals",
    "Event": "model.versions",
    "Expectation": "store.learn_report",
    "Exported": "model.export",
    "FolderCheck": "store.check",
    "HeldOutWarning": "errors",
    "ImageSet": "data.images",
    "LearnReport": "store.learn_report",
    "Learned": "learn.lesson",
    "Learner": "learn.learner",
    "Learning": "learn.learning",
    "LostError": "errors",
    "METHODS": "learn.methods",
    "MemoryBudget": "learn.learning",
    "Method": "learn.methods.method",
    "Model": "model.model",
    "ModelFolder": "store.model_folder",
    "Optimiser": "learn.recipe",
    "Preprocessing": "data.preprocessing",
    "Progress": "progress",
    "RECIPES": "learn.recipes",
    "Recipe": "learn.recipe",
    "Result": "store.results",
    "RunConfig": "lab.plan",
    "Schedule": "learn.recipe",
    "Share": "model.intervals",
    "StepResult": "store.results",
    "UserError": "errors",
    "Verdict": "model.versions",
    "VersionDiff": "store.overview",
    "as_image_set": "data.from_python",
    "class_order": "lab.steps",
    "fit_correction": "learn.correction",
    "open_dataset": "data.open",
    "open_model": "store.model_folder",
    "read_result": "store.results",
    "run": "lab.run",
}

__all__ = [
    "METHODS",
    "RECIPES",
    "Augmentation",
    "BiCClassifier",
    "BicError",
    "Calibration",
    "ClassSummary",
    "Correction",
    "Damage",
    "Dataset",
    "Drop",
    "Evaluation",
    "Event",
    "Expectation",
    "Exported",
    "FolderCheck",
    "HeldOutWarning",
    "ImageSet",
    "LearnReport",
    "Learned",
    "Learner",
    "Learning",
    "LostError",
    "MemoryBudget",
    "Method",
    "Model",
    "ModelFolder",
    "Optimiser",
    "Preprocessing",
    "Progress",
    "Recipe",
    "Result",
    "RunConfig",
    "Schedule",
    "Share",
    "StepResult",
    "UserError",
    "Verdict",
    "VersionDiff",
    "__version__",
    "as_image_set",
    "class_order",
    "fit_correction",
    "open_dataset",
    "open_model",
    "read_result",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bic' has no attribute {name!r}")
    return getattr(import_module(f"bic.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
