"""What a step needs: enough images of every class, and a large enough memory."""

from collections.abc import Sequence

import numpy as np

from bic.data.images import ImageSet, Labels
from bic.errors import UserError
from bic.learn.learning import Learning
from bic.learn.methods import find_method


def num_held_out_of_class(learning: Learning) -> int:
    """The fewest images of a class that are held out: one, or none if nothing is held out."""
    return int(find_method(learning.method).holds_out and learning.held_out > 0)


def check_images(learning: Learning, counts: Labels, names: Sequence[str]) -> None:
    """Refuse a class with too few images. `counts` has the number of images of each class."""
    if not len(counts):
        return
    fewest = int(counts.min())
    if fewest < 1 + num_held_out_of_class(learning):
        name = names[int(counts.argmin())]
        raise UserError(
            f"class {name!r} has only {fewest} training image and {learning.method} needs "
            f"{_in_words(learning)}",
            "add images or leave the class out",
        )


def check_memory(learning: Learning, num_classes: int, images: ImageSet) -> None:
    """Refuse a memory that cannot hold the images that each class needs."""
    method = find_method(learning.method)
    budget = learning.memory
    if not method.keeps_exemplars or (budget.is_zero and not method.needs_exemplars):
        return
    needed = (1 + num_held_out_of_class(learning)) * num_classes
    have = budget.images
    unit = "images"
    if budget.bytes is not None:
        needed = int(needed * np.max(images.sampled_bytes()))
        have = budget.bytes
        unit = "bytes"
    if have is not None and have < needed:
        remedy = "raise {memory}" if method.needs_exemplars else "raise {memory}, or use {memory=0}"
        raise UserError(
            f"memory must hold {_in_words(learning)} per class seen ({needed:,} {unit} for "
            f"{num_classes:,} classes), got {have:,}",
            remedy,
        )


def _in_words(learning: Learning) -> str:
    if num_held_out_of_class(learning):
        return "two images (one of them is held out)"
    return "one image"
