"""Stage 2: fit the correction of the bias on held-out images, with everything else frozen."""

from dataclasses import replace

import numpy as np

from bic.data.images import ImageSet
from bic.learn.correction import fit_held_out
from bic.learn.held_out import held_out_logits
from bic.learn.lesson import Lesson
from bic.learn.memory import by_class
from bic.learn.teacher import Teacher
from bic.model.answers import (
    Answer,
    BlendedHead,
    CorrectedHead,
    Correction,
    PreviousNetwork,
    RawHead,
)
from bic.model.model import Model


def corrected_answer(
    lesson: Lesson,
    model: Model,
    *,
    before: Model,
    teacher: Teacher,
    train: ImageSet,
    held_out: ImageSet,
) -> Answer:
    """The answer with a correction fitted on `held_out`.

    A step without new classes fits the existing correction again: without a correction the bias
    would come back. With `previous_share`, a second correction is fitted for the blended logits.
    """
    num_old = len(before.classes)
    if not lesson.step.new_classes:
        if before.correction is None:
            return RawHead()
        num_old = before.correction.num_old
    images = held_out
    if lesson.method.corrects_on == "trained":
        images = _sample(lesson, train, like=held_out)
    correction = _fit(lesson, model, images, num_old)
    share = lesson.method_setting("previous_share", 0.0)
    if not share:
        return CorrectedHead(correction)
    previous = PreviousNetwork(teacher.network, teacher.correction, share)
    blended_correction = _fit(lesson, model, images, num_old, previous)
    return BlendedHead(previous, blended_correction, teacher_correction=correction)


def _fit(
    lesson: Lesson,
    model: Model,
    images: ImageSet,
    num_old: int,
    previous: PreviousNetwork | None = None,
) -> Correction:
    """The correction of all classes from `num_old` on. Retired classes play no part in the fit."""
    active = model.active
    num_active_old = sum(position < num_old for position in active)
    if num_active_old in (0, len(active)):
        return Correction(1.0, 0.0, num_old)
    parts = held_out_logits(
        model.network, images, num_active_old, lesson.progress, previous, active=active
    )
    correction = fit_held_out(parts, num_active_old, penalty=lesson.learning.correction_penalty)
    return replace(correction, num_old=num_old)


def _sample(lesson: Lesson, images: ImageSet, *, like: ImageSet) -> ImageSet:
    """Random images: of each class, the same number as in `like`."""
    draws = lesson.draws("as many")
    counts = np.bincount(like.labels)
    chosen = []
    for label, members in by_class(images.labels).items():
        chosen.append(draws.permutation(members)[: counts[label]])
    return images.select(np.concatenate(chosen))
