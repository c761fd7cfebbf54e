"""Any sequence of learning, retiring, renaming and rolling back leaves a consistent model."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.taught import Array, images_of, test_images, toy_model

from bic import Model, UserError, open_model

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")

IMAGES = 6  # of a class, in one learn

# What to do, and with which letters; which part of a letter's images; which of the kept versions.
ACTIONS = st.tuples(
    st.sampled_from(["learn", "learn", "learn", "retire", "rename", "roll back"]),
    st.lists(st.sampled_from("abcdef"), min_size=1, max_size=2, unique=True),
    st.integers(0, 3),
)


class Expected:
    """What a model should know, in plain Python."""

    def __init__(self) -> None:
        self.live = 0
        self.next = 1
        # By version: images seen of each class by name, in the order of learning; None: retired.
        self.versions: dict[int, dict[str, set[tuple[str, int]] | None]] = {}

    @property
    def classes(self) -> dict[str, set[tuple[str, int]] | None]:
        return self.versions.get(self.live, {})

    @property
    def active(self) -> dict[str, set[tuple[str, int]]]:
        return {name: seen for name, seen in self.classes.items() if seen is not None}


def do(folder: Path, expected: Expected, action: str, chosen: list[str], part: int) -> None:
    model = toy_model(folder, epochs=1)
    if action == "learn":
        images: list[Array] = []
        names: list[str] = []
        for letter in chosen:
            pixels, _ = images_of(letter)
            images.append(pixels[IMAGES * part : IMAGES * (part + 1)])
            names += [letter] * IMAGES
        report = model.learn(np.concatenate(images), names, keep=3, force=True)
        learned = {letter: (letter, part) for letter in chosen}
        after = dict(expected.classes)
        for letter in sorted(chosen):
            seen = after.get(letter) or set()
            after[letter] = seen | {learned[letter]}
        assert report.is_changed == (after != expected.classes)
        if report.is_changed:
            expected.versions[expected.next] = after
            expected.live = expected.next
            expected.next += 1
            for number in sorted(expected.versions)[:-3]:
                del expected.versions[number]
    elif action == "roll back":
        if not expected.versions:
            return
        number = sorted(expected.versions)[part % len(expected.versions)]
        assert model.rollback(number) == number
        expected.live = number
    elif action == "retire":
        retire(model, expected, chosen)
    else:
        rename(model, expected, chosen[0], f"{chosen[-1]}{part}")


def retire(model: Any, expected: Expected, chosen: list[str]) -> None:
    may_retire = set(chosen) <= expected.active.keys() and set(chosen) != expected.active.keys()
    if not expected.versions or not may_retire:
        with pytest.raises(UserError):
            model.retire(*chosen)
        return
    model.retire(*chosen)
    for number, classes in list(expected.versions.items()):
        after: dict[str, set[tuple[str, int]] | None] = {}
        for name, seen in classes.items():
            if name not in chosen:
                after[name] = seen
                continue
            count = 1
            retired = f"{name} (retired)"
            while retired in classes:
                count += 1
                retired = f"{name} (retired {count})"
            after[retired] = None
        expected.versions[number] = after
        if all(seen is None for seen in after.values()):
            del expected.versions[number]


def rename(model: Any, expected: Expected, old: str, new: str) -> None:
    taken = {name for classes in expected.versions.values() for name in classes}
    if old not in expected.active or new in taken:
        with pytest.raises(UserError):
            model.rename(old, new)
        return
    model.rename(old, new)
    for number, classes in expected.versions.items():
        expected.versions[number] = {
            new if name == old else name: seen for name, seen in classes.items()
        }


def check(folder: Path, expected: Expected) -> None:
    model = open_model(folder)
    assert model.version == expected.live
    assert set(model.versions()) == expected.versions.keys()
    assert model.model.classes == tuple(expected.classes)
    counts = {summary.name: summary.seen for summary in model.classes()}
    assert counts == {name: IMAGES * len(seen) for name, seen in expected.active.items()}
    images, _ = test_images()
    answers = model.predict_proba(images)
    assert answers.sum(axis=1) == pytest.approx(np.ones(len(images)), abs=1e-5)
    retired = [place for place, seen in enumerate(expected.classes.values()) if seen is None]
    assert np.all(answers[:, retired] == 0)
    assert set(model.predict(images)) <= expected.active.keys()
    assert np.array_equal(Model.load(folder).predict_proba(images), answers)
    assert model.check().damages == ()


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.lists(ACTIONS, min_size=3, max_size=8))
def test_sequences(tmp_path: Path, actions: list[tuple[str, list[str], int]]) -> None:
    folder = tmp_path / "m"
    shutil.rmtree(folder, ignore_errors=True)
    expected = Expected()
    for action, chosen, part in actions:
        do(folder, expected, action, chosen, part)
        if expected.versions:
            check(folder, expected)
