"""Evaluations, against counts by hand."""

import json
import math

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.chosen_answers import answering, sure_of
from support.model_folders import CLASSES, made_model

from bic import Evaluation, UserError
from bic.data.from_python import as_image_set
from bic.model.calibration import Calibration
from bic.model.evaluation import ClassResult, Confusion, Mistake
from bic.model.intervals import Share

# (true class, predicted position, confidence)
ANSWERS = [
    ("ant", 0, 0.9),
    ("ant", 0, 0.5),
    ("ant", 1, 0.6),
    ("bee", 1, 0.8),
    ("bee", 0, 0.95),
    ("bee", 0, 0.4),
    ("cat", 2, 0.7),
    ("cow", 2, 0.3),  # not known to the model
    ("cow", 3, 0.99),
]
LABELS = [name for name, _, _ in ANSWERS]


def evaluated(*, temperature: float | None = None, reject: float | None = None) -> Evaluation:
    rows = [sure_of(position, confidence) for _, position, confidence in ANSWERS]
    model, images = answering(rows, temperature)
    return model.evaluate(images, LABELS, reject=reject)


def test_everything_is_counted() -> None:
    evaluation = evaluated()
    assert evaluation.accuracy == Share(4, 7)
    assert evaluation.mean_accuracy == pytest.approx((2 / 3 + 1 / 3 + 1) / 3)
    assert evaluation.top5 is None  # of five classes it says nothing
    assert evaluation.classes == (
        ClassResult("ant", Share(2, 3), 4),
        ClassResult("bee", Share(1, 3), 2),
        ClassResult("cat", Share(1, 1), 1),
    )
    assert evaluation.confusions == (Confusion("bee", "ant", 2), Confusion("ant", "bee", 1))
    assert evaluation.unknown == {"cow": 2}
    assert evaluation.untested == ("dog", "eel")
    assert evaluation.rejection is None
    assert evaluation.num_skipped == 0


def test_a_retired_class_does_not_need_test_images() -> None:
    model, images = answering([sure_of(0, 0.9)])
    model.retired = (CLASSES.index("dog"),)
    assert model.evaluate(images, ["ant"]).untested == ("bee", "cat", "eel")


def test_most_confident_mistakes_come_first() -> None:
    first, second, third = evaluated(temperature=2.0).mistakes
    assert first == Mistake(4, "bee", "ant", pytest.approx(0.95))
    assert second == Mistake(2, "ant", "bee", pytest.approx(0.6))
    assert third == Mistake(5, "bee", "ant", pytest.approx(0.4))


def test_reliability_before_and_after_the_temperature() -> None:
    evaluation = evaluated(temperature=2.0)
    known = ANSWERS[:7]
    gaps = [confidence - (CLASSES[position] == name) for name, position, confidence in known]
    # Each of these images is in a bin of its own.
    assert evaluation.calibrated is not None
    assert evaluation.calibrated.error == pytest.approx(sum(map(abs, gaps)) / 7)
    assert evaluation.temperature == 2.0
    sharper = [
        max(np.square(sure_of(0, confidence))) / sum(np.square(sure_of(0, confidence)))
        for _, _, confidence in known
    ]
    total = float(evaluation.uncalibrated.counts @ evaluation.uncalibrated.confidence)
    assert total == pytest.approx(sum(sharper), rel=1e-5)
    assert evaluated().calibrated is None


def test_none_of_these_is_right_for_unknown_classes_and_wrong_for_known_ones() -> None:
    evaluation = evaluated(temperature=1.0, reject=0.5)
    rejection = evaluation.rejection
    assert rejection is not None
    # 0.3, 0.4, 0.5 and 0.6 of nine are below that of 0.7.
    expected = 1 - scipy.stats.entropy(sure_of(0, 0.7)) / math.log(5)
    assert rejection.threshold == pytest.approx(expected, rel=1e-5)
    assert rejection.known == Share(3, 7)
    assert rejection.answered == Share(3, 4)  # ant 0.9, bee 0.8 and cat 0.7, but not bee 0.95
    assert rejection.unknown == Share(1, 2)
    assert evaluation.accuracy == Share(4, 7)  # as without --reject


def test_figures_are_the_same_as_json() -> None:
    content = json.loads(json.dumps(evaluated(temperature=1.0, reject=0.5).as_dict()))
    assert content["accuracy"]["value"] == 4 / 7
    assert content["accuracy"]["num_images"] == 7
    low, high = content["accuracy"]["interval"]
    assert 0.2 < low < 4 / 7 < high < 0.9
    assert content["classes"][1]["class"] == "bee"
    assert content["confusions"][0] == {"true": "bee", "predicted": "ant", "num_images": 2}
    assert content["unknown_classes"] == {"cow": 2}
    assert content["rejection"]["unknown"]["value"] == 0.5
    assert len(content["calibration"]["before"]["accuracy"]) == 15


def test_top5_of_many_classes() -> None:
    model = made_model()
    model.classes = tuple("abcdefg")
    rank = {"a": 0, "b": 4, "c": 5}

    def raw_and_final(outputs: object) -> tuple[object, object]:
        rows = np.tile(np.arange(7.0, 0, -1, dtype=np.float32), (3, 1))
        for row, name in enumerate("abc"):
            own = model.classes.index(name)
            rows[row, [own, rank[name]]] = rows[row, [rank[name], own]]
        final = torch.from_numpy(rows)
        return final, final

    model.raw_and_final = raw_and_final  # type: ignore[method-assign, assignment]
    evaluation = model.evaluate(np.zeros((3, 8, 8), np.uint8), ["a", "b", "c"])
    assert evaluation.top5 == Share(2, 3)
    assert evaluation.accuracy == Share(1, 3)


def test_labels_can_be_numbers_or_those_of_an_image_set() -> None:
    model, images = answering([sure_of(0, 0.9), sure_of(1, 0.9)])
    model.classes = ("7", "8", "cat", "dog", "eel")
    assert model.evaluate(images, np.array([7, 7])).accuracy == Share(1, 2)
    image_set = as_image_set(images, labels=np.array([1, 0]))
    assert model.evaluate(image_set, classes=["8", "7"]).accuracy == Share(2, 2)


def test_what_cannot_be_evaluated_is_refused() -> None:
    model, images = answering([sure_of(0, 0.9)])
    with pytest.raises(UserError, match="there are 1 images and 2 labels; pass one label"):
        model.evaluate(images, ["ant", "bee"])
    with pytest.raises(UserError, match="the images have no labels; pass labels"):
        model.evaluate(images)
    unknown = r"knows none of the 1 classes of the test images \(cow …\); name them as .* \(ant, "
    with pytest.raises(UserError, match=unknown):
        model.evaluate(images, ["cow"])
    with pytest.raises(UserError, match="this model is not calibrated"):
        model.evaluate(images, ["ant"], reject=0.1)


@given(total=st.integers(1, 3000), share=st.floats(0, 1))
def test_wilson_interval_is_that_of_scipy(total: int, share: float) -> None:
    correct = math.floor(share * total)
    expected = scipy.stats.binomtest(correct, total).proportion_ci(0.95, method="wilson")
    assert Share(correct, total).interval == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_a_retired_class_is_not_known() -> None:
    model, images = answering([sure_of(0, 0.9), sure_of(0, 0.9)])
    model.retired = (1,)
    evaluation = model.evaluate(images, ["ant", "bee"])
    assert evaluation.accuracy == Share(1, 1)
    assert dict(evaluation.unknown) == {"bee": 1}
    assert evaluation.untested == ("cat", "dog", "eel")


def test_all_images_can_be_rejected() -> None:
    model, images = answering([sure_of(0, 0.5), sure_of(1, 0.5)], temperature=1.0)
    model.calibration = Calibration(1.0, (1.0,), 1)  # every held-out image was certain
    evaluation = model.evaluate(images, ["ant", "bee"], reject=0.05)
    assert evaluation.rejection is not None
    assert evaluation.rejection.known == Share(2, 2)
    assert evaluation.rejection.answered is None
    assert evaluation.as_dict()["rejection"]["answered"] is None
