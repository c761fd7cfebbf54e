"""`bic predict`: a saved model's answers for image files."""

import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from torch import Tensor

from bic.data.batches import plain_batches
from bic.data.decode import is_image
from bic.data.decode_files import reason_of
from bic.data.decode_pool import decoding, default_processes
from bic.data.image_files import File
from bic.data.images import ImageSet
from bic.data.preprocessing import Preprocessing
from bic.errors import UserError
from bic.model.model import Model
from bic.progress import Progress

GIVE_IMAGES = "give image files, or folders of them"
STANDARD_INPUT = "-"
MAX_INPUT_BYTES = 2**28  # that are read from standard input
SHOWN_SUFFIXES = 3  # of files that are not images, in an error


class Prediction(NamedTuple):
    """The most likely classes of an image, best first, with their probabilities.

    A `rejected` image seems to belong to none of the classes. `file` is - for standard input.
    """

    file: str
    classes: tuple[str, ...]
    probabilities: tuple[float, ...]
    rejected: bool = False

    @property
    def answer(self) -> str | None:
        """The class, or None for a rejected image."""
        return None if self.rejected else self.classes[0]


def image_files(places: Sequence[Path]) -> list[str]:
    """The given files, and all images below the given folders in order of their names.

    Raises UserError for a place without images, and for pipes and devices.
    """
    files: list[str] = []
    for place in places:
        try:
            kind = place.stat().st_mode
        except OSError as error:
            reason = "does not exist" if not place.exists() else f"can't be read ({error.strerror})"
            raise UserError(f"{place} {reason}", GIVE_IMAGES) from error
        if stat.S_ISDIR(kind):
            files += _images_below(place)
        elif stat.S_ISREG(kind):
            files.append(str(place))
        else:
            raise UserError(
                f"{place} is neither a file nor a folder", f"{GIVE_IMAGES}, or - for standard input"
            )
    return files


def _images_below(folder: Path) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    images = sorted(str(path) for path in files if is_image(path.name))
    if images:
        return images
    suffixes = sorted({path.suffix for path in files if path.suffix})[:SHOWN_SUFFIXES]
    found = f", only files such as {', '.join(suffixes)}" if suffixes else ""
    raise UserError(f"{folder} has no images that bic can read{found}", GIVE_IMAGES)


def read_image(source: BinaryIO, preprocessing: Preprocessing) -> bytes:
    """The one image in a stream, such as standard input. Raises UserError if it is not an image."""
    encoded = source.read(MAX_INPUT_BYTES + 1)
    if len(encoded) > MAX_INPUT_BYTES:
        raise UserError(
            f"standard input has more than {MAX_INPUT_BYTES // 2**20} MB", "give one image"
        )
    try:
        preprocessing.decode(encoded)
    except Exception as error:  # Pillow's decoders raise almost anything
        problem = f"can't read the image in standard input ({reason_of(error)})"
        raise UserError(problem, "give the bytes of one image") from error
    return encoded


def predictions(
    model: Model,
    files: Sequence[File],
    *,
    top: int = 1,
    reject: float | None = None,
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> Iterator[Prediction]:
    """The `top` classes of each image file, in order.

    `reject` is the share of images of known classes that may be rejected wrongly. `skip_bad` leaves
    out unreadable files. Raises UserError for a model or settings that do not allow this.
    """
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
    threshold = 0.0 if reject is None else model.threshold(reject)
    labels = np.zeros(len(files), np.int64)
    images = ImageSet(
        labels=labels, preprocessing=model.preprocessing, files=files, skip_bad=skip_bad
    )
    names = [file if isinstance(file, str) else STANDARD_INPUT for file in files]
    progress = progress or Progress("quiet")
    processes = decoding(default_processes(model.network.device.type))
    with processes, progress.task("predicting", len(files)) as task:
        for pixels, indices in plain_batches(images, num_outputs=len(model.classes)):
            for index, scores in zip(indices, ranked(model, pixels, top), strict=True):
                yield scores.prediction(names[index], threshold=threshold)
            task.advance(len(indices))


class Scores(NamedTuple):
    """The most likely classes of an image, best first, and how certain the model is."""

    classes: tuple[str, ...]
    probabilities: tuple[float, ...]
    certainty: float

    def prediction(self, file: str, *, top: int | None = None, threshold: float) -> Prediction:
        """The best `top` classes. The image is rejected if the certainty is below `threshold`."""
        is_rejected = self.certainty < threshold
        return Prediction(file, self.classes[:top], self.probabilities[:top], is_rejected)


def ranked(model: Model, pixels: Tensor, top: int) -> Iterator[Scores]:
    """The `top` classes of each image of a batch [n, channels, size, size], in order."""
    judged = model.judged(pixels)
    best = judged.probabilities.topk(top)
    rows = zip(best.indices.tolist(), best.values.tolist(), judged.certainty.tolist(), strict=True)
    for positions, values, certain in rows:
        classes = tuple(model.classes[position] for position in positions)
        yield Scores(classes, tuple(values), certain)
