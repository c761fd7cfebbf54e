"""Teach an image classifier new classes batch by batch, without forgetting the old ones."""

from bic.config import MemoryBudget, Plan, Recipe, RunConfig
from bic.correction import Correction, fit_correction
from bic.data import Dataset, ImageSet, open_dataset
from bic.errors import HeldOutWarning, UserError
from bic.learner import Learner
from bic.memory import Memory
from bic.methods import METHODS, Method
from bic.model import Model
from bic.progress import Progress
from bic.recipes import RECIPES
from bic.run import run
from bic.run_folder import load_model
from bic.steps import class_order
from bic.version import __version__

__all__ = ["METHODS", "RECIPES", "Correction", "Dataset", "HeldOutWarning", "ImageSet", "Learner", "Memory"]
__all__ += ["MemoryBudget", "Method", "Model", "Plan", "Progress", "Recipe", "RunConfig", "UserError"]
__all__ += ["__version__", "class_order", "fit_correction", "load_model", "open_dataset", "run"]
