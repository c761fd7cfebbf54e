"""`classifier.json`: what a saved BiCClassifier has beside its learner."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from bic import files
from bic.classifier_inputs import class_name
from bic.errors import UserError
from bic.foreign_files import parse_json
from bic.learn.recipe import Recipe
from bic.model.backbones import refuse_import

CLASSIFIER = "classifier.json"
FORMAT = 1
NUMBERS = ("b", "i", "u", "f")  # kinds of numpy's types

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Description:
    """The parameters of an estimator, its classes, and the names of its columns if any."""

    parameters: dict[str, Any]
    labels: Array
    feature_names: list[str] | None


def description(estimator: BaseEstimator) -> dict[str, Any]:
    """Everything that is not in the learner's files, as JSON holds it."""
    labels = estimator.classes_
    parameters = dict(estimator.get_params(deep=False))
    if isinstance(parameters["recipe"], Recipe):
        parameters["recipe"] = parameters["recipe"].model_dump(mode="json")
    if isinstance(parameters["random_state"], np.random.RandomState | None):
        parameters["random_state"] = estimator.learner_.learning.seed
    names = getattr(estimator, "feature_names_in_", None)
    return {
        "format": FORMAT,
        "parameters": parameters,
        "classes": labels.tolist(),
        "type": labels.dtype.str,
        "feature_names": None if names is None else [str(name) for name in names],
    }


def read_description(
    content: bytes, place: Path, estimator: type[BaseEstimator], names: Sequence[str]
) -> Description:
    """The content of classifier.json. `names` are the classes of the learner.

    Raises UserError for a file that is damaged or does not fit the learner.
    """
    try:
        found = parse_json(content)
        if found["format"] != FORMAT:
            raise ValueError("it was written by another version of bic")
        parameters = dict(found["parameters"])
        unknown = parameters.keys() - inspect.signature(estimator).parameters.keys()
        if unknown:
            raise ValueError(f"it has the parameter {min(unknown)}")
        labels = _labels(found["classes"], str(found["type"]))
        if sorted(map(class_name, labels)) != sorted(names):
            raise ValueError("it has other classes than the model")
        features = found["feature_names"]
        if features is not None:
            features = [str(name) for name in features]
        return Description(parameters, labels, features)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        reason = str(error)[:100]
        raise UserError(f"{place / CLASSIFIER} is damaged ({reason})", files.AGAIN) from error


def refuse_imports(parameters: Mapping[str, Any]) -> None:
    """Raise UserError if the next `fit` with these parameters would import code by name."""
    recipe = parameters.get("recipe")
    for settings in (parameters, recipe if isinstance(recipe, Mapping) else {}):
        backbone = settings.get("backbone")
        if isinstance(backbone, str):
            refuse_import(backbone)


def _labels(values: Any, type_name: str) -> Array:
    """The labels with their type: numbers, or text of a fixed or any length."""
    kind = np.dtype(type_name)
    is_text = all(isinstance(value, str) for value in values)
    if kind.kind not in (("U", "O") if is_text else NUMBERS):
        raise ValueError(f"it has classes of the type {type_name}")
    if kind.kind == "U":
        return np.array(values)  # as long as the longest, whatever the file says
    return np.array(values, dtype=kind)
