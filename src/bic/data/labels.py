"""From the labels of a source to class names and positions."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bic.data.images import Labels
from bic.errors import UserError


def number_labels(
    train: Sequence[Any], test: Sequence[Any], names: Sequence[str] | None
) -> tuple[tuple[str, ...], Labels, Labels]:
    """Class names, and the train and test labels as positions in them; -1 for a missing label.

    Integer labels are positions in `names`. Without `names` each class is called by its label.
    Raises UserError for a string that is not in `names`.
    """
    used = sorted({*train, *test} - {None, -1}, key=lambda label: (isinstance(label, str), label))
    classes: Sequence[Any] = used if names is None else names
    position = {label: index for index, label in enumerate(classes)}
    if names is not None:
        position |= {label: label for label in used if isinstance(label, int)}
        unnamed = set(used) - position.keys()
        if unnamed:
            raise UserError(
                f"label {min(unnamed)!r} is not a class name", "add it to the class names"
            )

    def positions(labels: Sequence[Any]) -> Labels:
        return np.array([position.get(label, -1) for label in labels], np.int64)

    return tuple(map(str, classes)), positions(train), positions(test)
