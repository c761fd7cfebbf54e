"""What an exact head holds of a class: rows of tensors, emptied when the class is retired."""

from collections.abc import Sequence
from pathlib import Path

import safetensors
import safetensors.numpy

from bic.model.version_files import read_named
from bic.model.versions import DamagedError, StoredFile, Version
from bic.store.version_writer import store

WEIGHTS = "weights.safetensors"
MOMENTS = "moments.safetensors"
# Tensors with a row for each class. The scatter in the moments is a sum over all images of all
# classes; the part of one class cannot be taken out of it.
ROWS = {WEIGHTS: ("answer.weight", "answer.bias", "answer.means"), MOMENTS: ("counts", "means")}


def without_rows(folder: Path, version: Version, positions: Sequence[int]) -> dict[str, StoredFile]:
    """The files of an exact head, written again with the rows of these classes set to zero.

    Empty for a version without an exact head.
    """
    if MOMENTS not in version.files:
        return {}
    changed = {}
    for file, names in ROWS.items():
        path = folder / version.files[file].name
        try:
            tensors = safetensors.numpy.load(read_named(folder, version, file))
            for name in names:
                tensors[name][list(positions)] = 0
        except (safetensors.SafetensorError, KeyError, ValueError, IndexError) as error:
            raise DamagedError(path, f"it does not hold an exact head ({error})") from error
        changed[file] = store(folder, safetensors.numpy.save(tensors), ".safetensors")
    return changed
