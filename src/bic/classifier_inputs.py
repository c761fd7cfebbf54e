"""What BiCClassifier is given: images or vectors, and labels, checked as scikit-learn does."""

import os
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from sklearn.base import BaseEstimator
from sklearn.utils import assert_all_finite, check_array
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data
from torch import Tensor

from bic.data.from_python import Images
from bic.data.images import ImageSet
from bic.data.preprocessing import Preprocessing
from bic.errors import UserError

FILES = (str, os.PathLike, Image.Image)
SEQUENCES = (list, tuple, np.ndarray)

Array = npt.NDArray[Any]


def checked_inputs(estimator: BaseEstimator, X: Any, *, reset: bool) -> Images:  # noqa: N803
    """X as a learner takes it. Vectors are checked, counted and named by scikit-learn.

    `reset`: X is the first that the estimator learns from, and must have two rows. Raises
    ValueError for anything that is neither images nor vectors.
    """
    if isinstance(X, ImageSet):
        return X
    if isinstance(X, Tensor):
        X = X.detach().cpu().numpy()  # noqa: N806
    if isinstance(X, SEQUENCES) and len(X) and isinstance(X[0], FILES):
        return list(X)
    num_rows = 2 if reset else 1
    if _num_axes(X) > 2:
        images: Array = check_array(
            X, allow_nd=True, ensure_2d=False, ensure_min_samples=num_rows, estimator=estimator
        )
        return images
    vectors: Array = validate_data(estimator, X, reset=reset, ensure_min_samples=num_rows)
    return vectors


def _num_axes(X: Any) -> int:  # noqa: N803
    """The axes of an array, or of a list of arrays."""
    if isinstance(X, list | tuple) and len(X):
        return 1 + _num_axes(X[0])
    return int(getattr(X, "ndim", 0))


def checked_labels(y: Any, known: Array | None) -> Array:
    """y as an array [n] of whole numbers or names, of the same kind as the `known` classes."""
    if y is None:
        problem = "BiCClassifier requires y to be passed, but the target y is None"
        raise UserError(problem, "pass one label for each row of X")
    labels: Array = column_or_1d(y, warn=True)
    assert_all_finite(labels, input_name="y")
    check_classification_targets(labels)
    if _are_names(labels) and not all(isinstance(label, str) for label in labels):
        kinds = sorted({type(label).__name__ for label in labels})
        problem = f"labels must be whole numbers or names, got {', '.join(kinds)}"
        raise UserError(problem, "convert them")
    if known is not None and _are_names(labels) != _are_names(known):
        kind = "names" if _are_names(known) else "numbers"
        raise UserError(f"the known classes are {kind}, got {labels[0]!r}", f"use {kind} again")
    return labels


def class_name(label: Any) -> str:
    """The name of a label's class. 1, 1.0 and True are one class, as numpy says."""
    return label if isinstance(label, str) else str(int(label))


def _are_names(labels: Array) -> bool:
    return labels.dtype.kind in "OUST"


def num_features(preprocessing: Preprocessing) -> int:
    """The numbers in one image, or in one vector."""
    return preprocessing.channels * (preprocessing.size or 1) ** 2
