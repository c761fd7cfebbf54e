"""Class order, step sizes, and the images of each step."""

import numpy as np
import pytest

from bic import Dataset, UserError, class_order
from bic.data.images import array_set
from bic.lab.steps import check_order, check_step_sizes, protocol_steps, step_sizes

ORDER = [4, 1, 5, 0, 3, 2]


def made_dataset(num_classes: int = 6, images_per_class: int = 3) -> Dataset:
    """One-pixel images whose value is ten times their class."""
    labels = np.tile(np.arange(num_classes), images_per_class)
    images = np.broadcast_to(10 * labels[:, None, None], (len(labels), 1, 1)).astype(np.uint8)
    part = array_set(images, labels.astype(np.int64))
    return Dataset(name="toy", classes=tuple("abcdef"[:num_classes]), train=part, test=part)


def test_order_is_the_published_one() -> None:
    assert class_order(100)[:10] == [68, 56, 78, 8, 23, 84, 90, 65, 74, 76]
    assert sorted(class_order(100)) == list(range(100))


def test_order_depends_only_on_its_seed() -> None:
    np.random.seed(5)
    before = np.random.get_state()[1].tolist()
    assert class_order(50, 7) == class_order(50, 7) != class_order(50, 8)
    assert sorted(class_order(50, 7)) == list(range(50))
    assert np.random.get_state()[1].tolist() == before  # the global generator does not change


@pytest.mark.parametrize("order", [(0, 1), (0, 1, 1), (1, 2, 3), (0, 1, 2, 3), (-1, 0, 1)])
def test_order_must_name_every_class_once(order: tuple[int, ...]) -> None:
    check_order((2, 0, 1), 3)
    with pytest.raises(UserError, match=r"each of 0\.\.2 once") as caught:
        check_order(order, 3)
    assert caught.value.remedy == "fix {class_order}"


def test_equal_steps() -> None:
    assert step_sizes(100, steps=5) == (20, 20, 20, 20, 20)
    assert step_sizes(7, steps=1) == (7,)


def test_uneven_division_suggests_sizes_that_work() -> None:
    with pytest.raises(UserError, match="10 classes cannot be learned in 3 equal steps") as caught:
        step_sizes(10, steps=3)
    assert caught.value.remedy == "use {step_sizes=4,3,3}"
    check_step_sizes((4, 3, 3), 10)


def test_more_steps_than_classes_are_refused() -> None:
    with pytest.raises(UserError) as caught:
        step_sizes(3, steps=4)
    assert caught.value.remedy == "use fewer {steps}"


@pytest.mark.parametrize("sizes", [(), (6, 0), (7, -1), (2, 2), (4, 4)])
def test_sizes_must_add_up(sizes: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match=r"step sizes of at least 1 must add up to 6 classes"):
        check_step_sizes(sizes, 6)


def test_step_holds_only_its_own_classes() -> None:
    steps = list(protocol_steps(made_dataset(), ORDER, (1, 3, 2)))
    assert [step.number for step in steps] == [1, 2, 3]
    assert [step.classes for step in steps] == [("e",), ("b", "f", "a"), ("d", "c")]
    first_class = 0
    for step in steps:
        assert step.everything is None
        # Labels are positions among the step's classes; the pixels tell the class in the data.
        num_classes = len(step.classes)
        assert sorted(step.images.labels) == sorted(list(range(num_classes)) * 3)
        pixels = step.images.take(step.images.everything).flatten().tolist()
        assert pixels == [10 * ORDER[first_class + label] for label in step.images.labels]
        first_class += num_classes


def test_upper_bounds_get_all_classes_seen_and_no_later_one() -> None:
    steps = list(protocol_steps(made_dataset(), ORDER, (2, 2, 2), with_everything=True))
    for step, num_seen in zip(steps, (2, 4, 6), strict=True):
        everything = step.everything
        assert everything is not None
        assert set(everything.labels) == set(range(num_seen))
        assert len(everything) == 3 * num_seen
        # These labels are positions in the order of learning.
        pixels = everything.take(everything.everything).flatten().tolist()
        assert pixels == [10 * ORDER[label] for label in everything.labels]
        assert len(step.images) == 6


def test_steps_can_start_later() -> None:
    (step,) = protocol_steps(made_dataset(), ORDER, (1, 3, 2), start=3)
    assert (step.number, step.classes) == (3, ("d", "c"))
    pixels = step.images.take(step.images.everything).flatten().tolist()
    assert set(pixels) == {30, 20}
