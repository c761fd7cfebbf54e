"""From the labels of a source to class names and positions."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bic.data.images import Labels
from bic.errors import UserError

MAX_LABEL = 2**63


def number_labels(
    train: Sequence[Any], test: Sequence[Any], names: Sequence[str] | None
) -> tuple[tuple[str, ...], Labels, Labels]:
    """Class names, and the train and test labels as positions in them; -1 for a missing label.

    Integer labels are positions in `names`. Without `names` each class is called by its label.
    Raises UserError for a string that is not in `names`, and for labels of other kinds.
    """
    used = _distinct(train, test)
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


def _distinct(train: Sequence[Any], test: Sequence[Any]) -> list[int | str]:
    """All labels, each once: numbers in ascending order, then strings."""
    labels = {*train, *test} - {None, -1}
    for label in labels:
        is_number = isinstance(label, int) and -MAX_LABEL <= label < MAX_LABEL
        if not is_number and not isinstance(label, str):
            raise UserError(
                f"labels must be whole numbers or strings, got {label!r}", "change the labels"
            )
    return sorted(labels, key=lambda label: (isinstance(label, str), label))
