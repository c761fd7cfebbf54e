"""The labels that a learner is given: class names, and positions in them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bic.class_names import name_problem
from bic.data.images import ImageSet, Labels
from bic.errors import UserError


def numbered(
    images: ImageSet, labels: Sequence[Any] | npt.NDArray[Any] | None, classes: Sequence[str] | None
) -> tuple[Labels, tuple[str, ...]]:
    """Labels as positions in a tuple of class names, and that tuple."""
    if labels is None:
        if classes is None:
            raise UserError("the images have no labels", "pass labels, one for each image")
        names = tuple(classes)
        numbers = images.labels
    elif classes is not None:
        raise UserError(
            "labels and classes cannot both be given",
            "pass labels, or an ImageSet with classes and without labels",
        )
    else:
        names, numbers = named(labels)
    if len(numbers) != len(images):
        raise UserError(
            f"there are {len(images):,} images and {len(numbers):,} labels",
            "pass one label per image",
        )
    if not len(numbers):
        raise UserError("there are no images to learn from", "pass images")
    present = set(np.unique(numbers).tolist())
    if not present <= set(range(len(names))):
        raise UserError("labels must be positions in classes", "name every class in classes")
    problem = name_problem(names)
    if problem is not None:
        raise UserError(problem, "rename it")
    for number, name in enumerate(names):
        if number not in present:
            raise UserError(f"class {name!r} has no images", "add images or leave it out")
    return numbers, names


def named(labels: Sequence[Any] | npt.NDArray[Any]) -> tuple[tuple[str, ...], Labels]:
    """Class names in ascending order, and each label as a position in them."""
    values = np.asarray(labels)
    if values.dtype.kind == "O" and all(isinstance(label, str) for label in values.flat):
        values = values.astype(str)  # a column of names in pandas
    if values.ndim != 1 or values.dtype.kind not in "iuUT":
        raise UserError(
            f"labels must be a list of names or of whole numbers, got {values.dtype} "
            f"{list(values.shape)}",
            "pass one name or number per image",
        )
    distinct, numbers = np.unique(values, return_inverse=True)
    return tuple(str(value) for value in distinct), numbers.astype(np.int64)
