"""Memory: the few old images that are kept. Its own copy of their bytes, within a budget."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from bic.config import MemoryBudget
from bic.data.images import ImageSet, Indices, Labels, View
from bic.errors import UserError

SAMPLED_FILES = 100  # looked at to guess how many images a budget in bytes will hold


@dataclass
class ClassMemory:
    """One class's exemplars, best first: those trained on, and those held out."""

    train: list[bytes] = field(default_factory=list)
    held_out: list[bytes] = field(default_factory=list)


@dataclass(frozen=True)
class Split:
    """A step's images, parted by index into those trained on and those held out."""

    train: Indices
    held_out: Indices


class Memory:
    """Exemplars of all classes seen.

    `held_out` is the share f of each class's exemplars that is never trained on, 0 for methods
    without a correction. Held-out images are ranked by draw when their class is new, and when the
    memory shrinks both parts are cut by rank.
    """

    def __init__(self, budget: MemoryBudget, held_out: float, view: View) -> None:
        self.budget, self.held_out, self.view = budget, held_out, view
        self.classes: dict[int, ClassMemory] = {}

    def __len__(self) -> int:
        return sum(len(one.train) + len(one.held_out) for one in self.classes.values())

    @property
    def num_bytes(self) -> int:
        return sum(
            len(file) for one in self.classes.values() for file in (*one.train, *one.held_out)
        )

    def train_images(self, classes: Iterable[int] | None = None) -> ImageSet:
        """The exemplars that may be trained on, of all classes or some."""
        chosen = self.classes if classes is None else classes
        return self._images({label: self.classes[label].train for label in chosen})

    def held_out_images(self) -> ImageSet:
        return self._images({label: one.held_out for label, one in self.classes.items()})

    def _images(self, files: dict[int, list[bytes]]) -> ImageSet:
        labels = np.repeat(list(files), [len(part) for part in files.values()]).astype(np.int64)
        return ImageSet(
            labels=labels, view=self.view, files=[file for part in files.values() for file in part]
        )

    def num_held_out(self, num_images: int) -> int:
        """h = max(1, ⌊f·k⌋), the part held out of k exemplars."""
        if self.held_out == 0:
            return 0
        return max(1, math.floor(self.held_out * num_images + 1e-9))

    def split(self, images: ImageSet, draws: np.random.Generator) -> Split:
        """Hold out images of each class in a step, drawn at random and ranked by the draw.

        A new class gives as many as an old one has, so that the held-out set is balanced; a class
        known before gives the share f of its new images until it has as many as the others. No
        class gives more than f of its own images (but one at least), in any step: a class with
        few images needs them for training.
        """
        if self.held_out == 0:
            return Split(images.everything, np.zeros(0, dtype=np.int64))
        wanted = self._wanted(images)
        held: list[Indices] = []
        for label, members in by_class(images.labels).items():
            known = self.classes.get(label)
            share = math.floor(self.held_out * len(members) + 1e-9)
            if known is None:
                count = min(wanted, max(1, share))
                if count >= len(members):
                    raise UserError(
                        "a class with one training image cannot also be held out from; "
                        "add images of it or leave it out"
                    )
            else:
                count = min(max(0, wanted - len(known.held_out)), share)
            held.append(draws.permutation(members)[:count])
        held_out = np.concatenate(held)
        return Split(np.setdiff1d(images.everything, held_out), held_out)

    def _wanted(self, images: ImageSet) -> int:
        """How many images each class holds out: as many as old ones do, or by the budget."""
        if self.classes:
            return max(len(one.held_out) for one in self.classes.values())
        num_classes = len(np.unique(images.labels))
        if self.budget.images is not None:
            return self.num_held_out(self.budget.images // num_classes)
        assert self.budget.bytes is not None
        some = np.linspace(0, len(images) - 1, SAMPLED_FILES).astype(int)
        mean = float(np.mean([len(images.encoded(index)) for index in some]))
        return self.num_held_out(int(self.budget.bytes / num_classes / mean))

    def store(self, ranked: dict[int, Iterable[bytes]], held_out: dict[int, list[bytes]]) -> None:
        """Take a step's classes: `ranked` exemplars best first, and newly held-out images.

        All classes are then cut to their share of the budget, old ones by rank.
        """
        num_seen = len(self.classes.keys() | ranked.keys())
        limit = None if self.budget.images is None else self.budget.images // num_seen
        for label, files in ranked.items():
            one = self.classes.setdefault(label, ClassMemory())
            one.train = [file for _, file in zip(range(limit or 2**62), files, strict=False)]
            one.held_out = one.held_out + held_out.get(label, [])
        for one in self.classes.values():
            self._cut(one, num_seen)

    def _cut(self, one: ClassMemory, num_seen: int) -> None:
        """Keep the longest ranked prefix that fits a class's share, split by f."""
        available = len(one.train) + len(one.held_out)
        if self.budget.images is not None:
            num_train, num_held = self._parts(one, min(self.budget.images // num_seen, available))
        else:
            assert self.budget.bytes is not None
            share = self.budget.bytes // num_seen
            train = list(accumulate(map(len, one.train), initial=0))
            held = list(accumulate(map(len, one.held_out), initial=0))
            num_train = num_held = 0
            for count in range(1, available + 1):
                parts = self._parts(one, count)
                if train[parts[0]] + held[parts[1]] > share:
                    break
                num_train, num_held = parts
        if num_train == 0 or (self.held_out and num_held == 0):
            raise UserError(
                f"a memory of {self.budget} is too small for {num_seen} classes of such images; "
                "raise --memory"
            )
        one.train, one.held_out = one.train[:num_train], one.held_out[:num_held]

    def _parts(self, one: ClassMemory, count: int) -> tuple[int, int]:
        """How many of `count` exemplars are trained on and held out."""
        num_held = min(self.num_held_out(count), len(one.held_out))
        return min(count - num_held, len(one.train)), num_held

    def to_table(self) -> pa.Table:
        """All images with class, part and rank; the format of the memory on disk."""
        rows = [
            (label, part, rank, file)
            for label, one in self.classes.items()
            for part, files in (("train", one.train), ("held out", one.held_out))
            for rank, file in enumerate(files)
        ]
        columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
        types = [pa.int64(), pa.string(), pa.int64(), pa.binary()]
        names = ["class", "part", "rank", "image"]
        return pa.table(
            {
                name: pa.array(values, type=kind)
                for name, values, kind in zip(names, columns, types, strict=True)
            }
        )

    def load_table(self, table: pa.Table) -> None:
        """Take over what `to_table` gave."""
        self.classes = {}
        for row in table.to_pylist():
            one = self.classes.setdefault(row["class"], ClassMemory())
            (one.train if row["part"] == "train" else one.held_out).append(row["image"])


def by_class(labels: Labels) -> dict[int, Indices]:
    """The indices of each class's images, classes in ascending order."""
    order = np.argsort(labels, kind="stable")
    present, starts = np.unique(labels[order], return_index=True)
    parts = np.split(order, starts[1:]) if len(order) else []
    return {int(label): part for label, part in zip(present, parts, strict=True)}


def herd(features: Tensor, count: int) -> Indices:
    """iCaRL's herding: rank images so that every prefix's mean feature is near the class mean.

    features [n, dim]; they are L2-normalised here. Returns `count` indices, best first.
    """
    features = torch.nn.functional.normalize(features.double(), dim=1)
    mean = features.mean(dim=0)
    # ‖k·mean − Σ chosen − f‖² is least where f·(k·mean − Σ chosen) is largest, since ‖f‖ = 1.
    target = mean.clone()
    free = torch.ones(len(features), dtype=torch.bool)
    chosen = np.empty(min(count, len(features)), dtype=np.int64)
    for rank in range(len(chosen)):
        affinity = (features @ target).masked_fill(~free, -torch.inf)
        best = int(affinity.argmax())
        chosen[rank] = best
        free[best] = False
        target += mean - features[best]
    return chosen


def files_of(images: ImageSet, indices: Sequence[int] | Indices) -> Iterable[bytes]:
    """Encoded images in the order of `indices`, made only when asked for."""
    return (images.encoded(int(index)) for index in indices)
