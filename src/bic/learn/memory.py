"""Memory: the few old images that are kept, as encoded bytes within a budget."""

import copy
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate, dropwhile, islice

import numpy as np
import pyarrow as pa

from bic.data.image_files import name_of
from bic.data.images import ImageSet, Indices, Labels, Mask
from bic.data.preprocessing import Preprocessing
from bic.errors import UserError
from bic.learn.exemplar_features import ExemplarFeatures
from bic.learn.learning import MemoryBudget
from bic.learn.moments import Moments

# The format of a memory on disk: the part of an image is one of these two.
TRAIN = "train"
HELD_OUT = "held out"
MEMORY_TYPES = {"class": pa.int64(), "part": pa.string(), "rank": pa.int64(), "image": pa.binary()}
FEATURES = {"features": pa.binary()}  # of a frozen network; the files of other memories lack them
ROUNDING = 1e-9  # so that 0.1 · 20 is 2 and not 1.9999…


@dataclass
class ClassMemory:
    """The exemplars of one class, best first: those trained on, and those held out."""

    train: list[bytes] = field(default_factory=list)
    held_out: list[bytes] = field(default_factory=list)

    @property
    def num_images(self) -> int:
        return len(self.train) + len(self.held_out)


class Memory:
    """Exemplars of all classes seen, by the position of the class.

    `held_out` is the share f of each class's exemplars that is never trained on; it is 0 for
    methods without a correction. Held-out images are drawn when their class is new and keep that
    order. When the budget per class shrinks, both parts are cut from the end.

    `held_out_limit` bounds the held-out exemplars of old classes and those of new classes: `split`
    holds fewer images of each new class out, and `release` chooses which old classes keep holding
    out. A budget of 0 keeps held-out images only, up to this limit.

    `moments` are what an exact head keeps beside images; None for all other methods.
    """

    def __init__(
        self,
        budget: MemoryBudget,
        held_out: float,
        preprocessing: Preprocessing,
        *,
        held_out_limit: int | None = None,
    ) -> None:
        self.budget = budget
        self.held_out = held_out
        self.held_out_limit = held_out_limit
        self.preprocessing = preprocessing
        self.classes: dict[int, ClassMemory] = {}
        self.moments: Moments | None = None
        self.features = ExemplarFeatures()

    def copy(self) -> "Memory":
        """A memory whose changes leave this one alone. Both share the images and the features."""
        limit = self.held_out_limit
        copied = Memory(self.budget, self.held_out, self.preprocessing, held_out_limit=limit)
        for label, kept in self.classes.items():
            copied.classes[label] = ClassMemory(list(kept.train), list(kept.held_out))
        copied.moments = copy.deepcopy(self.moments)
        copied.features.views = dict(self.features.views)
        return copied

    def __len__(self) -> int:
        return sum(kept.num_images for kept in self.classes.values())

    def train_images(self, classes: Iterable[int] | None = None) -> ImageSet:
        """The exemplars that may be trained on, of all classes or of some."""
        chosen = self.classes if classes is None else classes
        return self._images({label: self.classes[label].train for label in chosen})

    @property
    def num_trained(self) -> int:
        """The number of exemplars that may be trained on."""
        return sum(len(kept.train) for kept in self.classes.values())

    def all_images(self) -> ImageSet:
        """All exemplars, trained on or held out."""
        return self._images(
            {label: kept.train + kept.held_out for label, kept in self.classes.items()}
        )

    def held_out_images(self) -> ImageSet:
        return self._images({label: kept.held_out for label, kept in self.classes.items()})

    def _images(self, parts: dict[int, list[bytes]]) -> ImageSet:
        labels: list[int] = []
        files: list[bytes] = []
        for label, images in parts.items():
            labels += [label] * len(images)
            files += images
        return ImageSet(
            labels=np.array(labels, dtype=np.int64),
            preprocessing=self.preprocessing,
            files=files,
            features=self.features.of(files),
        )

    def images_per_class(self, num_seen: int) -> int | None:
        """K // seen, the exemplars that each class may keep. None for a budget in bytes."""
        return None if self.budget.images is None else self.budget.images // num_seen

    def most_held_out(self, num_classes: int) -> int:
        """The most images that each of so many classes may hold out."""
        if self.held_out_limit is None:
            return sys.maxsize
        return max(1, self.held_out_limit // num_classes)

    def num_held_out(self, num_images: int) -> int:
        """h = max(1, ⌊f·k⌋): how many of k exemplars are held out."""
        if not self.held_out:
            return 0
        return max(1, math.floor(self.held_out * num_images + ROUNDING))

    def release(self, draws: np.random.Generator) -> None:
        """Let old classes train on their held-out images, so that the limit is kept.

        Every class has a rank in a random draw: `draws` must be the same in every step. The classes
        that come first keep holding out. A class that is released never holds out again, nor does
        any class after it in the draw, so that those that hold out stay a fair sample of all.
        (If all that held out were retired, the sample starts again with the classes that do now.)
        """
        if self.held_out_limit is None or not self.classes:
            return
        place = draws.random(max(self.classes) + 1)
        sorted_by_place = sorted(self.classes, key=lambda label: float(place[label]))
        in_draw = list(dropwhile(lambda label: not self.classes[label].held_out, sorted_by_place))
        if not in_draw:
            return
        room = self.held_out_limit
        first = self.classes[in_draw[0]]
        first.train += first.held_out[room:]
        first.held_out = first.held_out[:room]
        is_full = False
        for label in in_draw:
            kept = self.classes[label]
            room -= len(kept.held_out)
            is_full = is_full or room < 0 or not kept.held_out
            if is_full:
                kept.train = [] if self.budget.is_zero else kept.train + kept.held_out
                kept.held_out = []

    def split(
        self, images: ImageSet, draws: np.random.Generator, learned_before: Mask | None = None
    ) -> tuple[Indices, Indices]:
        """The images of a step to train on, and those to hold out in the order of a random draw.

        A new class holds out the same number of images as an old class, so that the held-out set is
        balanced. If the new classes together would exceed the limit, each of them holds fewer out.
        A known class holds out the share f of its new images until it has reached the number of an
        old class, unless it was released.
        No class holds out more than f of its images (but at least one): most are needed for
        training. Images that were `learned_before` are not held out. An image that is held out
        already is left out: it is neither trained on nor held out twice.
        """
        if learned_before is None:
            learned_before = np.zeros(len(images), dtype=np.bool_)
        held_out: list[Indices] = [np.zeros(0, dtype=np.int64)]
        left_out: list[Indices] = [np.zeros(0, dtype=np.int64)]
        target = self._target(images) if self.held_out else 0
        members_of = by_class(images.labels)
        num_new = len(members_of.keys() - self.classes.keys())
        target_of_new = min(target, self.most_held_out(max(1, num_new)))
        for label, given in members_of.items():
            is_held_out = self._is_held_out(label, images, given)
            left_out.append(given[is_held_out])
            members = given[~is_held_out]
            if not len(members):
                continue
            fresh = members[~learned_before[members]]
            if label in self.classes:
                missing = max(0, target - len(self.classes[label].held_out))
                if self.held_out_limit is not None and not self.classes[label].held_out:
                    missing = 0
                share = math.floor(self.held_out * len(fresh) + ROUNDING)
                count = min(missing, share)
            else:
                count = min(target_of_new, self.num_held_out(len(members)))
                if count >= len(members):
                    raise UserError(
                        "a class with a single training image cannot be learned",
                        "add more images of the class",
                    )
            drawn = np.concatenate([draws.permutation(fresh), members[learned_before[members]]])
            readable = _readable(images, drawn, count + 1)[:count]  # one more, to train on
            held_out.append(readable[~learned_before[readable]])
        chosen = np.concatenate(held_out)
        return np.setdiff1d(images.everything, np.concatenate([chosen, *left_out])), chosen

    def _is_held_out(self, label: int, images: ImageSet, members: Indices) -> Mask:
        """Which of these images are held-out exemplars of the class."""
        is_held_out = np.zeros(len(members), dtype=np.bool_)
        held_out = set(self.classes[label].held_out) if label in self.classes else set()
        if held_out:
            for number, index in enumerate(members):
                is_held_out[number] = images.encoded(int(index)) in held_out
        return is_held_out

    def drop_trained(self, images: ImageSet) -> None:
        """Drop the exemplars to train on that are among the images of their class."""
        for label, members in by_class(images.labels).items():
            if label in self.classes:
                kept = self.classes[label]
                again = {images.encoded(int(index)) for index in members}
                kept.train = [image for image in kept.train if image not in again]

    def _target(self, images: ImageSet) -> int:
        """The number of images that each class holds out: that of old classes, or by the budget."""
        seen = self.classes.keys() | set(images.labels.tolist())
        num_classes = len(seen)
        if self.budget.is_zero:
            return self.most_held_out(num_classes)
        most = max((len(kept.held_out) for kept in self.classes.values()), default=0)
        if most:
            return most
        per_class = self.images_per_class(num_classes)
        if per_class is None:
            assert self.budget.bytes is not None
            image_bytes = images.sampled_bytes().mean()
            per_class = int(self.budget.bytes / num_classes / image_bytes)
        return self.num_held_out(per_class)

    def store(self, ranked: dict[int, Iterable[bytes]], held_out: dict[int, list[bytes]]) -> None:
        """Add the classes of a step: `ranked` exemplars, best first, and newly held-out images.

        All classes are then cut to their share of the budget.
        """
        num_seen = len(self.classes.keys() | ranked.keys())
        limit = self.images_per_class(num_seen)
        for label, files in ranked.items():
            kept = self.classes.setdefault(label, ClassMemory())
            kept.train = list(islice(files, limit))
            kept.held_out = kept.held_out + held_out.get(label, [])
        for kept in self.classes.values():
            num_train, num_held_out = self._fitting(kept, num_seen)
            is_lost = num_train == 0 and not self.budget.is_zero
            if is_lost or (kept.held_out and num_held_out == 0):
                raise UserError(
                    f"the memory is too small for {num_seen} classes of such images",
                    "raise {memory}",
                )
            kept.train = kept.train[:num_train]
            kept.held_out = kept.held_out[:num_held_out]

    def forget_features(self) -> None:
        """Forget the features of images that are not in the memory."""
        self.features.keep_only(
            image for kept in self.classes.values() for image in kept.train + kept.held_out
        )

    def _fitting(self, kept: ClassMemory, num_seen: int) -> tuple[int, int]:
        """The numbers of train and held-out images that fit into a class's share of the budget."""

        def parts(count: int) -> tuple[int, int]:
            num_held_out = min(self.num_held_out(count), len(kept.held_out))
            return min(count - num_held_out, len(kept.train)), num_held_out

        if self.budget.is_zero:
            return 0, min(len(kept.held_out), self.most_held_out(num_seen))
        limit = self.images_per_class(num_seen)
        if limit is not None:
            return parts(min(limit, kept.num_images))
        assert self.budget.bytes is not None
        share = self.budget.bytes // num_seen
        train_bytes = list(accumulate(map(len, kept.train), initial=0))
        held_out_bytes = list(accumulate(map(len, kept.held_out), initial=0))
        for count in range(kept.num_images, 0, -1):
            num_train, num_held_out = parts(count)
            if train_bytes[num_train] + held_out_bytes[num_held_out] <= share:
                return num_train, num_held_out
        return 0, 0

    def to_table(self) -> pa.Table:
        """All images with class, part and rank, and with features if there are any.

        This is the format of the memory on disk.
        """
        types = {**MEMORY_TYPES, **(FEATURES if self.features.views else {})}
        columns: dict[str, list[object]] = {name: [] for name in types}
        for label, kept in self.classes.items():
            for part, files in ((TRAIN, kept.train), (HELD_OUT, kept.held_out)):
                columns["class"] += [label] * len(files)
                columns["part"] += [part] * len(files)
                columns["rank"] += range(len(files))
                columns["image"] += files
                if self.features.views:
                    columns["features"] += map(self.features.encoded, files)
        return pa.table(columns, schema=pa.schema(types))

    def load_table(self, table: pa.Table) -> None:
        """Restore what `to_table` returned."""
        self.classes = {}
        columns = (table[name].to_pylist() for name in ("class", "part", "image"))
        has_features = "features" in table.column_names
        features = table["features"].to_pylist() if has_features else [None] * len(table)
        for label, part, file, encoded in zip(*columns, features, strict=True):
            kept = self.classes.setdefault(label, ClassMemory())
            files = kept.train if part == TRAIN else kept.held_out
            files.append(file)
            self.features.load(file, encoded)


def _readable(images: ImageSet, members: Indices, count: int) -> Indices:
    """The first `count` readable images of a class. Raises UserError if there are fewer."""
    if not images.may_break:
        return members[:count]
    readable: list[int] = []
    for index in members:
        readable += images.take_readable(np.array([index]))[1].tolist()
        if len(readable) == count:
            return np.array(readable)
    assert images.files is not None
    example = name_of(images.files[members[0]])
    raise UserError(
        f"only {len(readable)} training images of the class of {example} can be read, "
        f"and {count} are needed",
        "fix some, or leave the class out with {classes}",
    )


def by_class(labels: Labels) -> dict[int, Indices]:
    """The indices of each class's images, classes in ascending order."""
    order = np.argsort(labels, kind="stable")
    present, starts = np.unique(labels[order], return_index=True)
    parts = np.split(order, starts[1:])
    return {int(label): part for label, part in zip(present, parts, strict=False)}


def files_of(images: ImageSet, indices: Indices) -> Iterable[bytes]:
    """Encoded images in the order of `indices`, read one at a time.

    With `skip_bad`, images that cannot be decoded are left out.
    """
    for index in indices:
        if not images.skip_bad or len(images.take_readable(np.array([index]))[1]):
            yield images.encoded(int(index))
