"""Memory: the few old images that are kept. Its own copy of their bytes, within a budget."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate, islice

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F
from torch import Tensor

from bic.config import MemoryBudget
from bic.data.decode import View
from bic.data.files import name_of
from bic.data.images import ImageSet, Indices, Labels
from bic.errors import UserError


@dataclass
class ClassMemory:
    """One class's exemplars, best first: those trained on, and those held out."""

    train: list[bytes] = field(default_factory=list)
    held_out: list[bytes] = field(default_factory=list)


class Memory:
    """Exemplars of all classes seen.

    `held_out` is the share f of each class's exemplars that is never trained on, 0 for methods without a correction.
    Held-out images are ranked by draw when their class is new, and when the memory shrinks both parts are cut by rank.
    """

    def __init__(self, budget: MemoryBudget, held_out: float, view: View) -> None:
        self.budget, self.held_out, self.view = budget, held_out, view
        self.classes: dict[int, ClassMemory] = {}

    def __len__(self) -> int:
        return sum(len(one.train) + len(one.held_out) for one in self.classes.values())

    def train_images(self, classes: Iterable[int] | None = None) -> ImageSet:
        """The exemplars that may be trained on, of all classes or some."""
        chosen = self.classes if classes is None else classes
        return self._images({label: self.classes[label].train for label in chosen})

    def held_out_images(self) -> ImageSet:
        return self._images({label: one.held_out for label, one in self.classes.items()})

    def _images(self, parts: dict[int, list[bytes]]) -> ImageSet:
        labels = np.array([label for label, files in parts.items() for _ in files], dtype=np.int64)
        return ImageSet(labels=labels, view=self.view, files=[f for files in parts.values() for f in files])

    def num_held_out(self, num_images: int) -> int:
        """h = max(1, ⌊f·k⌋), the part held out of k exemplars."""
        return max(1, math.floor(self.held_out * num_images + 1e-9)) if self.held_out else 0

    def split(self, images: ImageSet, draws: np.random.Generator) -> tuple[Indices, Indices]:
        """Which images of a step to train on, and which to hold out, ranked by a random draw.

        A new class gives as many as an old one has, so that the held-out set is balanced; a class known before gives
        the share f of its new images until it has as many as the others. No class gives more than f of its own images
        (but one at least), in any step: a class with few images needs them for training.
        """
        held: list[Indices] = [np.zeros(0, dtype=np.int64)]
        wanted = self._wanted(images) if self.held_out else 0
        for label, members in by_class(images.labels).items():
            count = min(wanted, self.num_held_out(len(members)))
            if label in self.classes:
                missing = wanted - len(self.classes[label].held_out)
                count = min(max(0, missing), math.floor(self.held_out * len(members) + 1e-9))
            elif count >= len(members):
                raise UserError("a class with a single training image cannot be learned; add images of it")
            held.append(_whole(images, draws.permutation(members), count + 1)[:count])  # and one to train on
        held_out = np.concatenate(held)
        return np.setdiff1d(images.everything, held_out), held_out

    def _wanted(self, images: ImageSet) -> int:
        """How many images each class holds out: as many as old ones do, or by the budget."""
        if self.classes:
            return max(len(one.held_out) for one in self.classes.values())
        num_classes = len(np.unique(images.labels))
        if self.budget.bytes is not None:
            return self.num_held_out(int(self.budget.bytes / num_classes / images.sampled_bytes().mean()))
        assert self.budget.images is not None
        return self.num_held_out(self.budget.images // num_classes)

    def store(self, ranked: dict[int, Iterable[bytes]], held_out: dict[int, list[bytes]]) -> None:
        """Take a step's classes: `ranked` exemplars best first, and newly held-out images.

        All classes are then cut to their share of the budget, old ones by rank.
        """
        num_seen = len(self.classes.keys() | ranked.keys())
        limit = None if self.budget.images is None else self.budget.images // num_seen
        for label, files in ranked.items():
            one = self.classes.setdefault(label, ClassMemory())
            one.train = list(islice(files, limit))
            one.held_out = one.held_out + held_out.get(label, [])
        for one in self.classes.values():
            num_train, num_held = self._fitting(one, num_seen)
            if num_train == 0 or (self.held_out and num_held == 0):
                raise UserError(f"memory is too small for {num_seen} classes of such images; raise --memory")
            one.train, one.held_out = one.train[:num_train], one.held_out[:num_held]

    def _fitting(self, one: ClassMemory, num_seen: int) -> tuple[int, int]:
        """The longest ranked prefixes of both parts that fit a class's share, split by f."""

        def parts(count: int) -> tuple[int, int]:
            num_held = min(self.num_held_out(count), len(one.held_out))
            return min(count - num_held, len(one.train)), num_held

        available = len(one.train) + len(one.held_out)
        if self.budget.bytes is None:
            assert self.budget.images is not None
            return parts(min(self.budget.images // num_seen, available))
        train = list(accumulate(map(len, one.train), initial=0))
        held = list(accumulate(map(len, one.held_out), initial=0))
        share = self.budget.bytes // num_seen
        fits = (pair for pair in map(parts, range(available, 0, -1)) if train[pair[0]] + held[pair[1]] <= share)
        return next(fits, (0, 0))

    def to_table(self) -> pa.Table:
        """All images with class, part and rank; the format of the memory on disk."""
        rows = [
            (label, part, rank, file)
            for label, one in self.classes.items()
            for part, files in (("train", one.train), ("held out", one.held_out))
            for rank, file in enumerate(files)
        ]
        kinds = {"class": pa.int64(), "part": pa.string(), "rank": pa.int64(), "image": pa.binary()}
        columns = zip(*rows, strict=True) if rows else ((),) * len(kinds)
        return pa.table([pa.array(*each) for each in zip(columns, kinds.values(), strict=True)], names=list(kinds))

    def load_table(self, table: pa.Table) -> None:
        """Take over what `to_table` gave."""
        self.classes = {}
        for label, part, file in zip(*(table[name].to_pylist() for name in ("class", "part", "image")), strict=True):
            one = self.classes.setdefault(label, ClassMemory())
            (one.train if part == "train" else one.held_out).append(file)


def _whole(images: ImageSet, members: Indices, count: int) -> Indices:
    """The first `count` of a class's images that can be read."""
    if not images.may_break:
        return members[:count]
    whole: list[int] = []
    for index in members:
        whole += images.take_readable(np.array([index]))[1].tolist()
        if len(whole) == count:
            return np.array(whole)
    assert images.files is not None
    found = f"of the class of {name_of(images.files[members[0]])} {len(whole)} training images can be read"
    raise UserError(f"{found} and {count} are needed; mend some, or leave it out with --classes")


def by_class(labels: Labels) -> dict[int, Indices]:
    """The indices of each class's images, classes in ascending order."""
    order = np.argsort(labels, kind="stable")
    present, starts = np.unique(labels[order], return_index=True)
    return {int(label): part for label, part in zip(present, np.split(order, starts[1:]), strict=False)}


def herd(features: Tensor, count: int) -> Indices:
    """iCaRL's herding: rank images so that every prefix's mean feature is near the class mean.

    features [n, dim]; they are L2-normalised here. Returns `count` indices, best first.
    """
    features = F.normalize(features.double(), dim=1)
    mean = features.mean(dim=0)
    # ‖k·mean − Σ chosen − f‖² is least where f·(k·mean − Σ chosen) is largest, since ‖f‖ = 1.
    target = mean.clone()
    taken = torch.zeros(len(features), dtype=torch.bool)
    chosen = np.empty(min(count, len(features)), dtype=np.int64)
    for rank in range(len(chosen)):
        best = int((features @ target).masked_fill(taken, -torch.inf).argmax())
        chosen[rank] = best
        taken[best] = True
        target += mean - features[best]
    return chosen


def files_of(images: ImageSet, indices: Indices) -> Iterable[bytes]:
    """Encoded images in the order of `indices`, made only when asked for; with `skip_bad`, those that are whole."""
    for index in indices:
        if not images.skip_bad or len(images.take_readable(np.array([index]))[1]):
            yield images.encoded(int(index))
