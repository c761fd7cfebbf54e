"""Class order, step sizes, and what each step brings."""

from __future__ import annotations

import numpy as np
import pytest

from bic import Dataset, UserError, class_order
from bic.data.images import array_set
from bic.lab.steps import check_order, check_step_sizes, plan_steps, step_sizes


def dataset(num_classes: int = 6, per_class: int = 3) -> Dataset:
    """One-pixel images whose value is ten times their class."""
    labels = np.tile(np.arange(num_classes), per_class)
    images = np.broadcast_to(10 * labels[:, None, None], (len(labels), 1, 1)).astype(np.uint8)
    part = array_set(images, labels.astype(np.int64))
    return Dataset(name="toy", classes=tuple("abcdef"[:num_classes]), train=part, test=part)


def test_order_is_the_published_one() -> None:
    assert class_order(100)[:10] == [68, 56, 78, 8, 23, 84, 90, 65, 74, 76]
    assert sorted(class_order(100)) == list(range(100))


def test_order_depends_on_its_seed_alone() -> None:
    np.random.seed(5)
    before = np.random.get_state()[1].tolist()
    assert class_order(50, 7) == class_order(50, 7) != class_order(50, 8)
    assert sorted(class_order(50, 7)) == list(range(50))
    assert np.random.get_state()[1].tolist() == before  # the global generator is left alone


@pytest.mark.parametrize("order", [(0, 1), (0, 1, 1), (1, 2, 3), (0, 1, 2, 3), (-1, 0, 1)])
def test_order_that_is_not_one_is_refused(order: tuple[int, ...]) -> None:
    check_order((2, 0, 1), 3)
    with pytest.raises(UserError, match=r"each of 0\.\.2 once"):
        check_order(order, 3)


def test_equal_steps() -> None:
    assert step_sizes(100, steps=5) == (20, 20, 20, 20, 20)
    assert step_sizes(7, steps=1) == (7,)


def test_uneven_division_names_sizes_that_work() -> None:
    with pytest.raises(UserError, match="10 classes cannot be learned in 3") as caught:
        step_sizes(10, steps=3)
    named = str(caught.value).split("--step-sizes ")[1].split()[0]
    sizes = tuple(int(size) for size in named.split(","))
    assert len(sizes) == 3
    check_step_sizes(sizes, 10)


def test_more_steps_than_classes_are_refused() -> None:
    with pytest.raises(UserError, match="fewer --steps"):
        step_sizes(3, steps=4)


@pytest.mark.parametrize("sizes", [(), (6, 0), (7, -1), (2, 2), (4, 4)])
def test_sizes_that_do_not_add_up_are_refused(sizes: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match=r"step sizes of at least 1 must add up to"):
        check_step_sizes(sizes, 6)


def test_step_holds_its_own_classes_only_labelled_by_order() -> None:
    order, sizes = [4, 1, 5, 0, 3, 2], (1, 3, 2)
    steps = list(plan_steps(dataset(), order, sizes))
    assert [step.number for step in steps] == [1, 2, 3]
    assert [step.classes for step in steps] == [("e",), ("b", "f", "a"), ("d", "c")]
    for step, own in zip(steps, [[0], [1, 2, 3], [4, 5]], strict=True):
        assert step.everything is None
        assert sorted(step.train.labels) == sorted(own * 3)
        # Labels count in the order of learning; the pixels tell the class in the data.
        pixels = step.train.take(np.arange(len(step.train))).flatten().tolist()
        assert pixels == [10 * order[label] for label in step.train.labels]


def test_upper_bounds_get_all_classes_seen_and_no_later_one() -> None:
    order = [4, 1, 5, 0, 3, 2]
    steps = list(plan_steps(dataset(), order, (2, 2, 2), with_old_data=True))
    for step, seen in zip(steps, (2, 4, 6), strict=True):
        assert step.everything is not None
        assert set(step.everything.labels) == set(range(seen))
        assert len(step.everything) == 3 * seen
        assert set(step.train.labels) == {seen - 2, seen - 1}


def test_steps_can_start_later() -> None:
    steps = list(plan_steps(dataset(), [4, 1, 5, 0, 3, 2], (1, 3, 2), start=3))
    assert [(step.number, step.classes) for step in steps] == [(3, ("d", "c"))]
    assert set(steps[0].train.labels) == {4, 5}
