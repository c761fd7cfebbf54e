"""Which classes arrive when: class order, step sizes, and what each step brings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bic.data.images import Dataset, ImageSet
from bic.errors import UserError


def class_order(num_classes: int, seed: int = 1993) -> list[int]:
    """numpy's legacy shuffle of the class indices, with the seed that iCaRL and the paper use.

    >>> class_order(100)[:10]
    [68, 56, 78, 8, 23, 84, 90, 65, 74, 76]
    """
    order = np.arange(num_classes)
    np.random.RandomState(seed).shuffle(order)
    return [int(index) for index in order]


def step_sizes(num_classes: int, *, steps: int) -> tuple[int, ...]:
    """Equal steps; refuses a number of steps that does not divide the classes."""
    size, rest = divmod(num_classes, steps)
    if rest:
        example = ",".join(map(str, [size + rest] + [size] * (steps - 1)))
        hint = f"give --step-sizes {example}" if size else "give fewer --steps"
        raise UserError(f"{num_classes} classes cannot be learned in {steps} equal steps; {hint}")
    return (size,) * steps


def check_step_sizes(sizes: Sequence[int], num_classes: int) -> None:
    if not sizes or min(sizes) < 1 or sum(sizes) != num_classes:
        got = f"{','.join(map(str, sizes))} (sum {sum(sizes)})"
        raise UserError(f"step sizes of at least 1 must add up to {num_classes} classes, got {got}; change them")


def check_order(order: Sequence[int], num_classes: int) -> None:
    """An explicit order must name every class once."""
    if sorted(order) != list(range(num_classes)):
        some = ", ".join(map(str, order[:10])) + (" …" if len(order) > 10 else "")
        raise UserError(f"class_order must list each of 0..{num_classes - 1} once, got {len(order)}: {some}; mend it")


@dataclass(frozen=True, kw_only=True)
class Step:
    """What one step brings. Labels count classes in the order in which they are learned.

    `train` holds images of this step's classes and of no other. `everything` holds the training images of all classes
    seen, for the upper bounds that are allowed to see them, else None.
    """

    number: int
    classes: tuple[str, ...]
    train: ImageSet
    everything: ImageSet | None = None


def plan_steps(
    dataset: Dataset, order: Sequence[int], sizes: Sequence[int], *, start: int = 1, with_old_data: bool = False
) -> Iterator[Step]:
    """The steps of a protocol from number `start` on, one at a time."""
    for number in range(start, len(sizes) + 1):
        num_old, seen = sum(sizes[: number - 1]), order[: sum(sizes[:number])]
        yield Step(
            number=number,
            classes=tuple(dataset.classes[index] for index in seen[num_old:]),
            train=dataset.train.of_classes(seen, first=num_old),
            everything=dataset.train.of_classes(seen) if with_old_data else None,
        )
