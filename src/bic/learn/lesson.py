"""Lesson: one step that is being learned, with its checkpoint, progress and random draws."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from bic.data.images import ImageSet, Indices, Mask
from bic.learn.learning import Learning
from bic.learn.methods import find_method
from bic.learn.methods.method import Method
from bic.model.network import Network
from bic.progress import Progress
from bic.randomness import generator

Tensors = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Step:
    """The data of one step. Labels are positions in the order in which classes are learned.

    `train` holds the step's own images. `everything` holds the training images of all classes seen,
    for the upper bounds that may see them, else None. `learned_before` says which images of `train`
    an earlier step has learned; None if it has learned none.
    """

    number: int
    new_classes: tuple[str, ...]
    train: ImageSet
    everything: ImageSet | None = None
    learned_before: Mask | None = None


@dataclass
class Checkpoint:
    """A position inside a step: phase, finished epochs, and the tensors to continue from."""

    step: int
    phase: str
    epoch: int
    seconds: dict[str, float]
    tensors: Tensors


@dataclass
class Learned:
    """What a step was learned from, and how long each part took.

    `held_out` has the indices of the step's own images that were not trained on. The memory keeps
    only some of them.
    """

    num_train: int
    num_held_out: int
    num_exemplars: int
    seconds: dict[str, float]
    held_out: Indices


@dataclass
class Lesson:
    """One step, the settings to learn it with, and where it runs.

    `resume` continues an interrupted step. `save` is called with a checkpoint after every epoch.
    `frozen` is the network with a frozen backbone, on whose features the step is learned.
    """

    learning: Learning
    step: Step
    title: str
    progress: Progress
    device: str = "cpu"
    workers: int = 1
    resume: Checkpoint | None = None
    save: Callable[[Checkpoint], None] | None = None
    frozen: Network | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.resume is not None:
            self.seconds = dict(self.resume.seconds)

    @property
    def method(self) -> Method:
        return find_method(self.learning.method)

    def method_setting(self, name: str, default: Any) -> Any:
        """A setting of the method, or the default if the method does not have it."""
        return getattr(self.learning.method_settings, name, default)

    def draws(self, purpose: str) -> np.random.Generator:
        """The random generator of this step for a purpose."""
        return generator(self.learning.seed, purpose, self.step.number)

    def resumed(self, phase: str) -> Checkpoint | None:
        """The checkpoint to continue from, if it belongs to this phase."""
        if self.resume is None or self.resume.phase != phase:
            return None
        return self.resume

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the time of this context to `seconds`."""
        self._start = time.perf_counter() - self.seconds.get(name, 0.0)
        yield
        self.seconds[name] = time.perf_counter() - self._start

    def save_checkpoint(self, phase: str, epoch: int, tensors: Tensors) -> None:
        """Save a position inside stage 1."""
        if self.save is not None:
            seconds = {**self.seconds, "stage1": time.perf_counter() - self._start}
            self.save(Checkpoint(self.step.number, phase, epoch, seconds, tensors))
