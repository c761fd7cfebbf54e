"""Which classes arrive when: class order, step sizes, and the images of each step."""

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
    """The sizes of equal steps. Raises UserError if `steps` does not divide `num_classes`."""
    size, rest = divmod(num_classes, steps)
    if rest:
        remedy = "use fewer {steps}"
        if size:
            sizes = [size + rest] + [size] * (steps - 1)
            remedy = f"use {{step_sizes={','.join(map(str, sizes))}}}"
        raise UserError(f"{num_classes} classes cannot be learned in {steps} equal steps", remedy)
    return (size,) * steps


def check_step_sizes(sizes: Sequence[int], num_classes: int) -> None:
    if not sizes or min(sizes) < 1 or sum(sizes) != num_classes:
        got = f"{','.join(map(str, sizes))} (sum {sum(sizes)})"
        raise UserError(
            f"step sizes of at least 1 must add up to {num_classes} classes, got {got}",
            "change {step_sizes}",
        )


def check_order(order: Sequence[int], num_classes: int) -> None:
    """Refuse an explicit order that does not name every class once."""
    if sorted(order) != list(range(num_classes)):
        start = ", ".join(map(str, order[:10])) + (" …" if len(order) > 10 else "")
        last = num_classes - 1
        raise UserError(
            f"class_order must list each of 0..{last} once, got {len(order)}: {start}",
            "fix {class_order}",
        )


@dataclass(frozen=True, kw_only=True)
class ProtocolStep:
    """What one step of a protocol gives to a learner.

    The labels of `images` are positions in `classes`, the names of the step's new classes.
    `everything` holds the images of all classes seen, labelled in the order of learning, for
    upper bounds only.
    """

    number: int
    classes: tuple[str, ...]
    images: ImageSet
    everything: ImageSet | None = None


def protocol_steps(
    dataset: Dataset,
    order: Sequence[int],
    sizes: Sequence[int],
    *,
    start: int = 1,
    with_everything: bool = False,
) -> Iterator[ProtocolStep]:
    """The steps of a protocol from number `start` on, one at a time."""
    for number in range(start, len(sizes) + 1):
        num_old = sum(sizes[: number - 1])
        num_seen = sum(sizes[:number])
        new = order[num_old:num_seen]
        everything = dataset.train.of_classes(order[:num_seen]) if with_everything else None
        yield ProtocolStep(
            number=number,
            classes=tuple(dataset.classes[index] for index in new),
            images=dataset.train.of_classes(new),
            everything=everything,
        )
