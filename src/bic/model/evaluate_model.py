"""Evaluate a model on labelled test images of any classes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from bic.data.batches import plain_batches
from bic.data.decode_pool import decoding, default_processes
from bic.data.images import ImageSet, Indices
from bic.errors import UserError
from bic.model.evaluation import (
    MAX_CONFUSIONS,
    MAX_MISTAKES,
    ClassResult,
    Confusion,
    Evaluation,
    Mistake,
    Rejection,
)
from bic.model.intervals import Share
from bic.model.measures import confused_pairs, reliability
from bic.model.model import Model
from bic.progress import Progress

Column = npt.NDArray[Any]
SHOWN_NAMES = 3  # of classes, in an error


class Answers(NamedTuple):
    """The readable images by their positions, and what the model says about them. All [images]."""

    image: Column
    predicted: Column  # positions in model.classes
    uncalibrated: Column  # confidences without the temperature
    confidence: Column
    certainty: Column
    in_top5: Column


def evaluate_model(
    model: Model,
    images: ImageSet,
    classes: Sequence[str],
    *,
    reject: float | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluate a model on images whose labels are positions in `classes`.

    Images of classes that the model does not know never count as wrong: they are counted, and with
    `reject` they are questions to which "none of these" is the right answer. `reject` is the
    share of images of known classes that may be rejected wrongly.

    Raises UserError if no image of a known class can be read, and as `Model.threshold` does.
    """
    threshold = None if reject is None else model.threshold(reject)
    position = {model.classes[number]: number for number in model.active}
    positions = np.array([position.get(name, -1) for name in classes], dtype=np.int64)
    true = positions[images.labels]
    unknown = Counter(classes[label] for label in images.labels[true < 0].tolist())
    chosen = np.flatnonzero((true >= 0) | (threshold is not None))
    if not (true >= 0).any():
        raise _no_known_class(model, classes)
    tested = replace(images, labels=true).select(chosen)
    answers = _answers(model, tested, progress or Progress("quiet"))
    true = tested.labels[answers.image]
    known = Answers(*(column[true >= 0] for column in answers))
    if not len(known.image):
        raise UserError("no test image of a known class can be read", "fix some of the images")
    rejection = None
    if reject is not None and threshold is not None:
        rejection = _rejection(reject, threshold, answers, true)
    summary = _summary(model, known, true[true >= 0])
    mistakes = [replace(mistake, image=int(chosen[mistake.image])) for mistake in summary.mistakes]
    return replace(
        summary,
        mistakes=tuple(mistakes),
        rejection=rejection,
        unknown=dict(unknown),
        num_skipped=len(tested) - len(true),
    )


def _no_known_class(model: Model, classes: Sequence[str]) -> UserError:
    given = ", ".join(classes[:SHOWN_NAMES])
    known = ", ".join(model.classes[:SHOWN_NAMES])
    return UserError(
        f"the model knows none of the {len(classes):,} classes of the test images ({given} …)",
        f"name them as the model does ({known} …)",
    )


def _answers(model: Model, images: ImageSet, progress: Progress) -> Answers:
    """The model's answers. The labels of the images are positions in `model.classes`, or -1."""
    parts = []
    num_classes = len(model.classes)
    processes = default_processes(model.network.device.type) if images.is_decoded else 0
    with decoding(processes), progress.task("evaluating", len(images)) as task:
        for pixels, indices in plain_batches(images, num_outputs=num_classes):
            final, probabilities, certain = model.judged(pixels)
            confidence, predicted = probabilities.max(dim=1)
            uncalibrated = torch.softmax(final, dim=1).amax(dim=1)
            best = final.topk(min(5, num_classes), dim=1).indices.cpu().numpy()
            part = Answers(
                image=indices,
                predicted=predicted.cpu().numpy(),
                uncalibrated=uncalibrated.cpu().numpy(),
                confidence=confidence.cpu().numpy(),
                certainty=certain.cpu().numpy(),
                in_top5=(best == images.labels[indices, None]).any(axis=1),
            )
            parts.append(part)
            task.advance(len(indices))
    if not parts:
        raise UserError("none of the test images can be read", "fix some of them")
    return Answers(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _summary(model: Model, answers: Answers, true: Indices) -> Evaluation:
    """The evaluation of images of known classes. `true` are positions in `model.classes`."""
    num_classes = len(model.classes)
    is_right = answers.predicted == true
    num_images = np.bincount(true, minlength=num_classes)
    num_right = np.bincount(true[is_right], minlength=num_classes)
    num_predicted = np.bincount(answers.predicted, minlength=num_classes)
    results = []
    for position in np.flatnonzero(num_images).tolist():
        accuracy = Share(int(num_right[position]), int(num_images[position]))
        name = model.classes[position]
        results.append(ClassResult(name, accuracy, int(num_predicted[position])))
    confusions = []
    for own, other, count in confused_pairs(true, answers.predicted, num_classes)[:MAX_CONFUSIONS]:
        confusions.append(Confusion(model.classes[own], model.classes[other], count))
    untested = [position for position in model.active if not num_images[position]]
    is_calibrated = model.calibration is not None
    return Evaluation(
        accuracy=Share(int(is_right.sum()), len(true)),
        top5=Share(int(answers.in_top5.sum()), len(true)) if num_classes > 5 else None,
        classes=tuple(results),
        confusions=tuple(confusions),
        mistakes=_mistakes(model, answers, true),
        uncalibrated=reliability(answers.uncalibrated, is_right),
        calibrated=reliability(answers.confidence, is_right) if is_calibrated else None,
        temperature=None if model.calibration is None else model.calibration.temperature,
        rejection=None,
        unknown={},
        untested=tuple(model.classes[position] for position in untested),
        num_skipped=0,
    )


def _mistakes(model: Model, answers: Answers, true: Indices) -> tuple[Mistake, ...]:
    """The most confident wrong answers, the most confident first."""
    wrong = np.flatnonzero(answers.predicted != true)
    order = np.argsort(-answers.confidence[wrong], kind="stable")
    mistakes = []
    for row in wrong[order[:MAX_MISTAKES]]:
        mistakes.append(
            Mistake(
                image=int(answers.image[row]),
                true=model.classes[true[row]],
                predicted=model.classes[answers.predicted[row]],
                confidence=float(answers.confidence[row]),
            )
        )
    return tuple(mistakes)


def _rejection(share: float, threshold: float, answers: Answers, true: Indices) -> Rejection:
    is_known = true >= 0
    is_rejected = answers.certainty < threshold
    is_right = answers.predicted == true
    is_answered = is_known & ~is_rejected
    num_unknown = int((~is_known).sum())
    num_answered = int(is_answered.sum())
    answered = Share(int((is_right & is_answered).sum()), num_answered) if num_answered else None
    unknown = Share(int((is_rejected & ~is_known).sum()), num_unknown) if num_unknown else None
    return Rejection(
        share=share,
        threshold=threshold,
        known=Share(int((is_rejected & is_known).sum()), int(is_known.sum())),
        answered=answered,
        unknown=unknown,
    )
