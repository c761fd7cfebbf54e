"""Stage 2: fit the correction of the bias on held-out images, with everything else frozen."""

from dataclasses import replace

import numpy as np
from torch import Tensor

from bic.data.images import ImageSet
from bic.learn.blend import fit_blend
from bic.learn.correction import fit_held_out
from bic.learn.held_out import held_out_logits, logits_and_cosines
from bic.learn.lesson import Lesson
from bic.learn.memory import Memory, by_class
from bic.learn.teacher import Teacher
from bic.model.answers import (
    Answer,
    BlendedHead,
    CorrectedHead,
    Correction,
    HeadAndMeans,
    PreviousNetwork,
    RawHead,
)
from bic.model.features import class_means
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
    previous = PreviousNetwork(teacher.network, before.answer.teacher_correction, share)
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
    # The fit of the blend, which follows, has its own warning.
    warns = lesson.method.answer != "head and means"
    penalty = lesson.learning.correction_penalty
    correction = fit_held_out(parts, num_active_old, penalty=penalty, warns=warns)
    return replace(correction, num_old=num_old)


def head_and_means(
    lesson: Lesson, model: Model, memory: Memory, *, before: Model | None, held_out: ImageSet
) -> HeadAndMeans:
    """The answer that blends the head, as stage 2 left it, with the means of exemplars.

    Held-out exemplars are not part of the means: the model is also judged and calibrated on them.
    Retired classes play no part in the fit.
    """
    num_old = 0 if before is None else len(before.classes)
    if before is not None and not lesson.step.new_classes:
        num_old = 0 if before.correction is None else before.correction.num_old
    active = model.active
    num_active_old = sum(position < num_old for position in active)
    if num_active_old in (0, len(active)):  # there is no bias to correct
        num_old = 0
        num_active_old = 0
    previous = model.answer.previous if isinstance(model.answer, BlendedHead) else None
    means = means_of(lesson, model, memory.train_images())
    parts = logits_and_cosines(
        model.network,
        _fitted_on(lesson, held_out, num_old),
        means,
        lesson.progress,
        previous,
        active=active,
    )
    blend = fit_blend(parts, num_active_old, penalty=lesson.learning.correction_penalty)
    return HeadAndMeans(
        means,
        replace(blend, correction=replace(blend.correction, num_old=num_old)),
        correction=model.answer.correction,
        teacher_correction=model.answer.teacher_correction,
        previous=previous,
    )


def means_of(lesson: Lesson, model: Model, exemplars: ImageSet) -> Tensor:
    """Class means. Mirrored exemplars join them if the network is trained on mirrored images."""
    flips = lesson.learning.recipe.augmentation.flip
    mirrored = flips and model.preprocessing.size is not None
    return class_means(model.network, exemplars, lesson.progress, mirrored=mirrored)


def _fitted_on(lesson: Lesson, held_out: ImageSet, num_old: int) -> ImageSet:
    """The held-out images, with a random sample of those of new classes if they are too many."""
    limit = lesson.learning.held_out_limit
    new = np.flatnonzero(held_out.labels >= num_old)
    if limit is None or len(new) <= limit:
        return held_out
    old = np.flatnonzero(held_out.labels < num_old)
    sample = lesson.draws("fit").permutation(new)[:limit]
    return held_out.select(np.concatenate([old, np.sort(sample)]))


def _sample(lesson: Lesson, images: ImageSet, *, like: ImageSet) -> ImageSet:
    """Random images: of each class, the same number as in `like`."""
    draws = lesson.draws("as many")
    counts = np.bincount(like.labels, minlength=int(images.labels.max()) + 1)
    chosen = []
    for label, members in by_class(images.labels).items():
        chosen.append(draws.permutation(members)[: counts[label]])
    return images.select(np.concatenate(chosen))
