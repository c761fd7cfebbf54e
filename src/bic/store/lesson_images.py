"""The images of one learn: which of them are new to the model, and which classes they bring."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bic.data.from_python import Images, as_image_set, as_model_input, in_memory
from bic.data.images import ImageSet, Labels
from bic.data.new_images import NewImages, NewImagesReader, side_of
from bic.errors import UserError
from bic.learn.labels import numbered
from bic.model.versions import ClassRecord
from bic.store.class_names import checked_names
from bic.store.learn_report import listed
from bic.store.seen_images import digests_of, fingerprint, unseen

# Opens images with a reader that knows what the model takes.
Source = Callable[[NewImagesReader], NewImages]

FEWEST = 2  # images of a new class


@dataclass(frozen=True, kw_only=True)
class LessonImages:
    """The images to learn from. `labels` are positions among all classes of the version.

    The labels of `images` are positions in `classes`. `num_left_out` images were learned before,
    or occur twice.
    """

    images: ImageSet
    classes: tuple[str, ...]
    labels: Labels
    digests: list[bytes]
    new_classes: tuple[str, ...]
    known_classes: tuple[str, ...]
    num_left_out: int

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.digests, self.images.labels, self.classes)

    def featured(self, images: ImageSet) -> "LessonImages":
        """The lesson with the features of those images whose indices `images` has as labels."""
        readable = images.labels
        lesson = replace(
            self,
            images=replace(self.images.select(readable), features=images.features),
            labels=self.labels[readable],
            digests=[self.digests[index] for index in readable.tolist()],
        )
        _refuse_single(lesson)
        return lesson


def source_of(
    images: Images | str | PathLike[str], labels: Sequence[Any] | npt.NDArray[Any] | None
) -> Source:
    """The images at a path, or images in memory with the class of each."""
    if isinstance(images, str | PathLike):
        if labels is not None:
            raise UserError("a path and labels cannot both be given", "leave out the labels")
        path = Path(images)
        return lambda reader: reader.open(path)
    values = images

    def opened(reader: NewImagesReader) -> NewImages:
        side = None
        if reader.preprocessing is None:
            image_set = as_image_set(values, image_size=reader.image_size, resize=reader.resize)
            side = side_of(image_set)
        else:
            image_set = as_model_input(values, reader.preprocessing)
        positions, names = numbered(image_set, labels, None)
        image_set = replace(image_set, labels=positions)
        if not reader.keep_files:
            image_set = in_memory(image_set)
        return NewImages(images=image_set, classes=names, side=side)

    return opened


def lesson_images(
    new: NewImages, known: Sequence[ClassRecord], seen: Mapping[int, set[bytes]]
) -> LessonImages:
    """What there is to learn from `new`, without the images in `seen`.

    Raises UserError for class names that cannot be used and for a new class with one image.
    """
    active = {record.name: place for place, record in enumerate(known) if not record.retired}
    names = checked_names(new.classes, active)
    new_names = [name for name in names if name not in active]
    position = {**active}
    for place, name in enumerate(new_names, start=len(known)):
        position[name] = place
    places = np.array([position[name] for name in names], dtype=np.int64)
    digests = digests_of(new.images)
    chosen = unseen(digests, places[new.images.labels], seen)
    images = new.images.select(chosen)
    present = np.unique(images.labels)
    classes = tuple(names[label] for label in present)
    lesson = LessonImages(
        images=replace(images, labels=np.searchsorted(present, images.labels)),
        classes=classes,
        labels=places[images.labels],
        digests=[digests[index] for index in chosen],
        new_classes=tuple(name for name in classes if name not in active),
        known_classes=tuple(name for name in classes if name in active),
        num_left_out=len(digests) - len(chosen),
    )
    _refuse_single(lesson)
    return lesson


def _refuse_single(lesson: LessonImages) -> None:
    """Raise UserError for new classes with one image: it cannot be both learned and held out."""
    counts = np.bincount(lesson.images.labels, minlength=len(lesson.classes))
    new = set(lesson.new_classes)
    single = []
    for name, count in zip(lesson.classes, counts, strict=True):
        if name in new and count < FEWEST:
            single.append(name)
    if single:
        problem = f"class {single[0]!r} has only one image"
        if len(single) > 1:
            problem = f"{len(single):,} classes have only one image ({listed(tuple(single))})"
        raise UserError(
            f"{problem}, and a new class needs {FEWEST} different ones",
            "add images, or leave it out",
        )
