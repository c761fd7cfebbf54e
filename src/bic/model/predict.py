"""`bic predict`: a saved model's answers for image files, as CSV."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bic.data.batches import plain_batches
from bic.data.decode_pool import decoding, default_processes
from bic.data.images import ImageSet
from bic.data.sources.folder import is_image
from bic.errors import UserError
from bic.model.model import Model
from bic.progress import Progress

GIVE_IMAGES = "give image files, or folders of them"


class Prediction(NamedTuple):
    """The most likely classes of an image, best first, with their probabilities."""

    file: str
    classes: tuple[str, ...]
    probabilities: tuple[float, ...]


def image_files(places: Sequence[Path]) -> list[str]:
    """The given files, and all images below the given folders in order of their names."""
    files: list[str] = []
    for place in places:
        if not place.exists():
            raise UserError(f"{place} does not exist", GIVE_IMAGES)
        images = _images_below(place) if place.is_dir() else [str(place)]
        if not images:
            raise UserError(f"{place} has no images", GIVE_IMAGES)
        files += images
    return files


def _images_below(folder: Path) -> list[str]:
    paths = folder.rglob("*")
    return sorted(str(path) for path in paths if is_image(path.name) and path.is_file())


def predictions(
    model: Model,
    files: Sequence[str],
    *,
    top: int = 1,
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> Iterator[Prediction]:
    """The `top` classes of each image file, in order. `skip_bad` leaves out unreadable files."""
    if model.preprocessing.size is None:
        raise UserError(
            "this model classifies vectors, not image files", "use Model.predict in Python"
        )
    num_classes = len(model.active)
    if not 1 <= top <= num_classes:
        raise UserError(
            f"top must be between 1 and the number of classes, {num_classes:,}, got {top}",
            "change {top}",
        )
    labels = np.zeros(len(files), np.int64)
    images = ImageSet(
        labels=labels, preprocessing=model.preprocessing, files=files, skip_bad=skip_bad
    )
    progress = progress or Progress("quiet")
    processes = decoding(default_processes("cpu"))
    with processes, progress.task("predicting", len(files)) as task:
        for pixels, indices in plain_batches(images, num_outputs=len(model.classes)):
            best = model.logits(pixels)[1].softmax(dim=1).topk(top)
            for row, index in enumerate(indices):
                names = tuple(model.classes[position] for position in best.indices[row].tolist())
                yield Prediction(files[index], names, tuple(best.values[row].tolist()))
            task.advance(len(indices))


def as_csv(rows: Iterable[Prediction]) -> str:
    """One line per image: the file, then each class and its probability."""
    rows = list(rows)
    num_classes = max((len(row.classes) for row in rows), default=1)
    header = ["file"]
    for rank in range(1, num_classes + 1):
        header += [f"class_{rank}", f"probability_{rank}"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        cells = [row.file]
        for name, probability in zip(row.classes, row.probabilities, strict=True):
            cells += [name, f"{probability:.4f}"]
        writer.writerow(cells)
    return text.getvalue()
