"""What a learn is expected to do, and what it did. Imports no torch."""

from dataclasses import dataclass

from bic.model.versions import Verdict


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What a learn is about to do.

    `num_images` are learned from; `num_left_out` were learned before, or occur twice. `seconds` is
    measured with a few batches; None if it cannot be measured. `num_bytes` is the size that the
    version will have at most; it shares some of it with other versions. `epochs_done` epochs were
    finished before the learn was interrupted.
    """

    version: int
    new_classes: tuple[str, ...]
    known_classes: tuple[str, ...]
    num_images: int
    num_left_out: int
    seconds: float | None
    num_bytes: int
    work: str  # what takes these seconds
    epochs_done: int


@dataclass(frozen=True, kw_only=True)
class LearnReport:
    """What a learn did. `version` is the version that it made.

    `is_live` is False if the gate refused the version; `refusal` says why. `is_changed` is False if
    there was nothing to learn; `note` says why.
    """

    version: int
    is_live: bool
    is_changed: bool = True
    refusal: str | None = None
    note: str = ""
    new_classes: tuple[str, ...] = ()
    known_classes: tuple[str, ...] = ()
    num_images: int = 0
    num_left_out: int = 0
    verdict: Verdict | None = None
    alpha: float | None = None
    beta: float | None = None
    memory_images: int = 0
    memory_bytes: int = 0
    seconds: float = 0.0


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """
    >>> counted(1, "image"), counted(1200, "image"), counted(2, "new class", "new classes")
    ('1 image', '1,200 images', '2 new classes')
    """
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def listed(names: tuple[str, ...], most: int = 5) -> str:
    """
    >>> listed(("a", "b")), listed(("a", "b", "c"), most=2)
    ('a, b', 'a, b and 1 more')
    """
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"
