"""What a step needs: enough images of every class, and a large enough memory."""

from collections.abc import Sequence

import numpy as np

from bic.data.images import ImageSet, Labels
from bic.errors import UserError
from bic.learn.learning import MemoryBudget
from bic.learn.methods.method import Method


def images_needed(method: Method) -> int:
    """Images that each class needs, in the data and in the memory: two if one is held out."""
    return 2 if method.corrects else 1


def check_images(method: Method, counts: Labels, names: Sequence[str]) -> None:
    """Refuse a class with too few images. `counts` has the number of images of each class."""
    if not len(counts):
        return
    fewest = int(counts.min())
    if fewest < images_needed(method):
        name = names[int(counts.argmin())]
        raise UserError(
            f"class {name!r} has only {fewest} training image and {method.name} needs "
            f"{_in_words(method)}",
            "add images or leave the class out",
        )


def check_memory(method: Method, budget: MemoryBudget, num_classes: int, images: ImageSet) -> None:
    """Refuse a memory that cannot hold the images that each class needs."""
    if not method.keeps_exemplars:
        return
    needed = images_needed(method) * num_classes
    have = budget.images
    unit = "images"
    if budget.bytes is not None:
        needed = int(needed * np.max(images.sampled_bytes()))
        have = budget.bytes
        unit = "bytes"
    if have is not None and have < needed:
        raise UserError(
            f"memory must hold {_in_words(method)} per class seen ({needed:,} {unit} for "
            f"{num_classes:,} classes), got {have:,}",
            "raise {memory}",
        )


def _in_words(method: Method) -> str:
    if images_needed(method) == 1:
        return "one image"
    return "two images (one of them is held out)"
