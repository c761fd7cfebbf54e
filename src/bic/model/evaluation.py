"""Evaluation: how well a model classifies labelled test images. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bic.model.intervals import Share
from bic.model.measures import Reliability

MAX_CONFUSIONS = 1000  # pairs that are kept
MAX_MISTAKES = 24  # images that are kept


@dataclass(frozen=True)
class ClassResult:
    """The test images of one class: how many are right, and how often the class was the answer."""

    name: str
    accuracy: Share
    num_predicted: int


@dataclass(frozen=True)
class Confusion:
    """How many images of class `true` were taken for class `predicted`."""

    true: str
    predicted: str
    num_images: int


@dataclass(frozen=True)
class Mistake:
    """An image that was classified wrongly, by its position among the test images."""

    image: int
    true: str
    predicted: str
    confidence: float


@dataclass(frozen=True)
class Rejection:
    """What answering "none of these" costs and brings, at one threshold of the certainty.

    `share` of the held-out images lie below the `threshold`. `known` counts the rejected images of
    known classes, which is always wrong, `unknown` those of classes that the model does not know,
    which is right; `answered` counts the right answers for the other images of known classes, if
    there are any.
    """

    share: float
    threshold: float
    known: Share
    answered: Share | None
    unknown: Share | None


@dataclass(frozen=True)
class Evaluation:
    """A model's answers for labelled test images, summed up.

    Images of classes that the model does not know (`unknown`, with their numbers of images) count
    in `rejection` only. `untested` are the model's classes without test images. `uncalibrated` and
    `calibrated` compare confidence and accuracy without and with the `temperature`; a model without
    a calibration has no `calibrated`. `confusions` and `mistakes` are the most frequent and the
    most confident ones.
    """

    accuracy: Share
    top5: Share | None
    classes: tuple[ClassResult, ...]
    confusions: tuple[Confusion, ...]
    mistakes: tuple[Mistake, ...]
    uncalibrated: Reliability
    calibrated: Reliability | None
    temperature: float | None
    rejection: Rejection | None
    unknown: Mapping[str, int]
    untested: tuple[str, ...]
    num_skipped: int

    @property
    def mean_accuracy(self) -> float:
        """The mean of the classes' accuracies: all classes count equally."""
        return sum(result.accuracy.value for result in self.classes) / len(self.classes)

    def as_dict(self) -> dict[str, Any]:
        """All figures as JSON has them. Shares are in 0..1 and have their 95 % interval."""
        rejection = None
        if self.rejection is not None:
            rejection = {
                "share": self.rejection.share,
                "threshold": self.rejection.threshold,
                "known": _share(self.rejection.known),
                "answered": _share(self.rejection.answered),
                "unknown": _share(self.rejection.unknown),
            }
        return {
            "accuracy": _share(self.accuracy),
            "mean_accuracy": self.mean_accuracy,
            "top5": _share(self.top5),
            "classes": [
                {
                    "class": result.name,
                    "accuracy": _share(result.accuracy),
                    "num_predicted": result.num_predicted,
                }
                for result in self.classes
            ],
            "confusions": [vars(confusion) for confusion in self.confusions],
            "mistakes": [vars(mistake) for mistake in self.mistakes],
            "calibration": {
                "temperature": self.temperature,
                "before": _reliability(self.uncalibrated),
                "after": None if self.calibrated is None else _reliability(self.calibrated),
            },
            "rejection": rejection,
            "unknown_classes": dict(self.unknown),
            "untested_classes": list(self.untested),
            "num_skipped": self.num_skipped,
        }


def _share(share: Share | None) -> dict[str, Any] | None:
    if share is None:
        return None
    return {
        "value": share.value,
        "interval": list(share.interval),
        "num_right": share.correct,
        "num_images": share.total,
    }


def _reliability(measured: Reliability) -> dict[str, Any]:
    return {
        "expected_calibration_error": measured.error,
        "num_images": measured.counts.tolist(),
        "confidence": measured.confidence.tolist(),
        "accuracy": measured.accuracy.tolist(),
    }
