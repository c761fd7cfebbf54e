"""`bic predict`: a saved model's answers for image files."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bic.data.folder import is_image
from bic.data.images import ImageSet
from bic.data.loader import plain_batches
from bic.data.workers import decoding, usual_processes
from bic.errors import UserError
from bic.model import Model
from bic.progress import Progress


class Answer(NamedTuple):
    """The likeliest classes of an image, best first, each with its probability by the model's final scores."""

    file: str
    classes: tuple[str, ...]
    probabilities: tuple[float, ...]


def is_image_file(path: Path) -> bool:
    return is_image(path.name) and path.is_file()


def image_files(places: Sequence[Path]) -> list[str]:
    """The files named, and all images below the folders named, in order of name."""
    found: list[str] = []
    for place in places:
        if not place.exists():
            raise UserError(f"{place} does not exist; give image files, or folders of them")
        below = sorted(map(str, filter(is_image_file, place.rglob("*")))) if place.is_dir() else [str(place)]
        if not below:
            raise UserError(f"{place} has no images; give image files, or folders of them")
        found += below
    return found


def answer(
    model: Model, files: Sequence[str], *, top: int = 1, skip_bad: bool = False, progress: Progress | None = None
) -> Iterator[Answer]:
    """The model's answers for image files, in their order; with `skip_bad`, for those that can be read."""
    if model.view.size is None:
        raise UserError("this model takes no image files but arrays; use bic.load_model in Python")
    if not 1 <= top <= len(model.classes):
        raise UserError(f"--top must be between 1 and the {len(model.classes):,} classes, got {top}")
    images = ImageSet(labels=np.zeros(len(files), np.int64), view=model.view, files=files, skip_bad=skip_bad)
    task_of_all = (progress or Progress("quiet")).task("predicting", len(files))
    with decoding(usual_processes("cpu")), task_of_all as task:
        for pixels, indices in plain_batches(images, num_outputs=len(model.classes)):
            best = model.scores(pixels)[1].softmax(dim=1).topk(top)
            for index, labels, shares in zip(indices, best.indices.tolist(), best.values.tolist(), strict=True):
                yield Answer(files[index], tuple(model.classes[label] for label in labels), tuple(shares))
            task.advance(len(indices))


def as_csv(answers: Iterable[Answer]) -> str:
    """A line an image: the file, then each class and its probability."""
    rows = [[one.file, *chain.from_iterable(zip(one.classes, one.probabilities, strict=True))] for one in answers]
    ranks = range(1, max(map(len, rows), default=1) // 2 + 1)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["file", *(f"{what}_{rank}" for rank in ranks for what in ("class", "probability"))])
    writer.writerows([[f"{cell:.4f}" if isinstance(cell, float) else cell for cell in row] for row in rows])
    return text.getvalue()
