"""The memory: herding, budgets, and held-out images that are never trained on."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pictures import jpeg, picture

from bic import ImageSet, Memory, MemoryBudget, UserError
from bic.data.decode import Preprocessing
from bic.data.images import array_set
from bic.learn.memory import by_class, files_of, herd

VIEW = Preprocessing(channels=1, size=1)


def unique_files(labels: list[int], sizes: list[int], tag: str) -> ImageSet:
    """Fake files of the sizes given; no two are the same."""
    files = [
        f"{tag}/{label}/{number}/".encode().ljust(size, b".")
        for number, (label, size) in enumerate(zip(labels, sizes, strict=True))
    ]
    return ImageSet(labels=np.array(labels, dtype=np.int64), preprocessing=VIEW, files=files)


def stored_bytes(memory: Memory) -> int:
    return sum(len(file) for one in memory.classes.values() for file in (*one.train, *one.held_out))


@dataclass
class Stream:
    """Steps through a Memory as the learner does, noting every image's fate."""

    memory: Memory
    seed: int = 0
    trained_on: set[bytes] = field(default_factory=set)
    held_out: set[bytes] = field(default_factory=set)
    number: int = 0

    def step(self, images: ImageSet) -> tuple[list[bytes], list[tuple[int, bytes]]]:
        """The step's training images and its held-out ones with their labels."""
        self.number += 1
        draws = np.random.default_rng((self.seed, self.number))
        old_train = self.memory.train_images()
        old_held = self.memory.held_out_images()
        train_indices, held_indices = self.memory.split(images, draws)
        assert sorted([*train_indices, *held_indices]) == list(range(len(images)))
        new, held = images.select(train_indices), images.select(held_indices)
        train = list(files_of(new, new.everything)) + list(
            files_of(old_train, old_train.everything)
        )
        held_out = [
            (int(part.labels[index]), part.encoded(index))
            for part in (old_held, held)
            for index in range(len(part))
        ]
        self.trained_on.update(train)
        self.held_out.update(file for _, file in held_out)

        ranked = {}
        for label, members in by_class(new.labels).items():
            pool = [new.encoded(index) for index in members]
            if label in self.memory.classes:
                again = self.memory.train_images([label])
                pool += list(files_of(again, again.everything))
            ranked[label] = [pool[index] for index in draws.permutation(len(pool))]
        kept = {
            label: [held.encoded(index) for index in members]
            for label, members in by_class(held.labels).items()
        }
        self.memory.store(ranked, kept)
        return train, held_out


@settings(max_examples=60, deadline=None)
@given(
    num_images=st.integers(1, 30), dim=st.integers(2, 8), seed=st.integers(0, 10**6), data=st.data()
)
def test_herding_is_its_definition(
    num_images: int, dim: int, seed: int, data: st.DataObject
) -> None:
    """iCaRL's algorithm 4: the k-th image brings the mean of k nearest to the class mean."""
    count = data.draw(st.integers(1, num_images))
    features = np.random.default_rng(seed).normal(size=(num_images, dim)) + 0.5
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    mean = unit.mean(axis=0)
    ranks = herd(torch.from_numpy(features), count).tolist()
    assert len(ranks) == len(set(ranks)) == count
    for k, best in enumerate(ranks, start=1):
        chosen = ranks[: k - 1]
        distances = {
            index: np.linalg.norm(mean - (unit[chosen].sum(axis=0) + unit[index]) / k)
            for index in range(num_images)
            if index not in chosen
        }
        assert distances[best] <= min(distances.values()) + 1e-12


def test_herding_normalises_features() -> None:
    features = torch.randn(20, 4, generator=torch.Generator().manual_seed(0)) + 1
    lengths = torch.linspace(0.1, 50, 20)[:, None]
    assert herd(features * lengths, 20).tolist() == herd(features, 20).tolist()


def test_herding_ranks_are_prefixes_and_no_image_comes_twice() -> None:
    features = torch.randn(50, 6, generator=torch.Generator().manual_seed(1))
    ranks = herd(features, 50).tolist()
    assert sorted(ranks) == list(range(50))
    assert herd(features, 7).tolist() == ranks[:7]
    assert sorted(herd(features[:3], 7).tolist()) == [0, 1, 2]
    assert sorted(herd(torch.ones(4, 2), 4).tolist()) == [0, 1, 2, 3]  # all the same


def test_cifar_numbers_of_the_paper() -> None:
    stream = Stream(Memory(MemoryBudget(images=2000), 0.1, VIEW))
    counts = []
    for number in range(5):
        labels = [label for label in range(20 * number, 20 * number + 20) for _ in range(500)]
        train, held_out = stream.step(unique_files(labels, [12] * 10_000, str(number)))
        counts.append((len(train), len(held_out), len(stream.memory)))
    # Exemplars a class before each step: 100, 100, 50, 33, 25; h is a tenth of them.
    assert counts[0] == (20 * 490, 20 * 10, 2_000) == (9_800, 200, 2_000)
    assert counts[1] == (20 * 490 + 20 * 90, 40 * 10, 2_000) == (11_600, 400, 2_000)
    assert counts[2] == (20 * 495 + 40 * 45, 60 * 5, 60 * 33)
    assert counts[3] == (20 * 497 + 60 * 30, 80 * 3, 80 * 25)
    assert counts[4] == (20 * 498 + 80 * 23, 100 * 2, 100 * 20)
    assert not stream.trained_on & stream.held_out


@settings(max_examples=60, deadline=None)
@given(
    step_classes=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    per_class=st.integers(2, 40),
    budget_per_class=st.integers(2, 30),
    spare=st.integers(0, 20),
    share=st.sampled_from([0.1, 0.2, 0.3, 0.5, 0.9]),
    seed=st.integers(0, 10**6),
)
def test_equal_classes_in_a_budget_of_images(
    step_classes: list[int],
    per_class: int,
    budget_per_class: int,
    spare: int,
    share: float,
    seed: int,
) -> None:
    budget = budget_per_class * sum(step_classes) + spare
    stream = Stream(Memory(MemoryBudget(images=budget), share, VIEW), seed)
    seen = 0
    ranks: dict[int, tuple[list[bytes], list[bytes]]] = {}
    for number, size in enumerate(step_classes):
        labels = [label for label in range(seen, seen + size) for _ in range(per_class)]
        # Old classes hold out h of their k = K // n exemplars, or of all their images if fewer.
        exemplars = min(per_class, budget // (seen or size))
        held_each = max(1, int(share * exemplars + 1e-9))
        num_old, seen = seen, seen + size
        _, held_out = stream.step(unique_files(labels, [1] * len(labels), str(number)))
        by_label = np.bincount([label for label, _ in held_out], minlength=seen)
        assert by_label.tolist() == [held_each] * seen  # balanced

        assert len(stream.memory) <= budget
        kept = stream.memory.classes
        assert sorted(kept) == list(range(seen))
        for label, one in kept.items():
            limit = min(per_class, budget // seen)
            assert len(one.held_out) == max(1, int(share * limit + 1e-9))
            assert len(one.train) + len(one.held_out) == limit
            if label < num_old:  # old classes keep their ranks and are cut
                train, held = ranks[label]
                assert one.train == train[: len(one.train)]
                assert one.held_out == held[: len(one.held_out)]
        ranks = {label: (one.train, one.held_out) for label, one in kept.items()}
        assert {file for one in kept.values() for file in one.train} <= stream.trained_on
    assert not stream.trained_on & stream.held_out


@settings(max_examples=100, deadline=None)
@given(data=st.data(), in_bytes=st.booleans(), seed=st.integers(0, 10**6))
def test_unequal_streams_stay_within_budget_and_never_train_on_held_out_images(
    data: st.DataObject, in_bytes: bool, seed: int
) -> None:
    """Classes of any size, known classes coming again, budgets in images or bytes."""
    num_classes = data.draw(st.integers(2, 6), label="classes")
    share = data.draw(st.sampled_from([0.0, 0.1, 0.3, 0.5]), label="share")
    if in_bytes:
        # 40 bytes at most an image, so two of each class always fit.
        amount = data.draw(st.integers(80 * num_classes, 600 * num_classes), label="bytes")
        budget = MemoryBudget(bytes=amount)
    else:
        amount = data.draw(st.integers(2 * num_classes, 20 * num_classes), label="images")
        budget = MemoryBudget(images=amount)
    stream = Stream(Memory(budget, share, VIEW), seed)
    draws = np.random.default_rng(seed)
    seen = 0
    while seen < num_classes or stream.number < 3:
        size = int(draws.integers(0, num_classes - seen + 1)) if seen else 1
        again = draws.permutation(seen)[: int(draws.integers(0, seen + 1))].tolist()
        arriving = [*again, *range(seen, seen + size)]
        counts = {label: int(draws.integers(1 if label < seen else 2, 30)) for label in arriving}
        labels = [label for label, count in counts.items() for _ in range(count)]
        if not labels:
            continue
        before = {label: list(one.train) for label, one in stream.memory.classes.items()}
        most = max((len(one.held_out) for one in stream.memory.classes.values()), default=None)
        sizes = draws.integers(12, 41, len(labels)).tolist()
        _, held_out = stream.step(unique_files(labels, sizes, str(stream.number)))
        seen += size

        memory = stream.memory
        assert sorted(memory.classes) == list(range(seen))
        if in_bytes:
            assert stored_bytes(memory) <= amount
        else:
            assert len(memory) <= amount
        for label, one in memory.classes.items():
            files = one.train + one.held_out
            assert len(one.train) >= 1
            assert (len(one.held_out) >= 1) == (share > 0)
            if in_bytes:
                assert sum(map(len, files)) <= amount // seen
            else:
                assert len(files) <= amount // seen
            if label in before and label not in again:
                assert one.train == before[label][: len(one.train)]
            assert all(f"/{label}/".encode() in file for file in files)
        if most is not None:  # no class holds out more than the others do
            counts_held = np.bincount([label for label, _ in held_out], minlength=seen)
            assert counts_held.max() <= max(most, 1 if share else 0)
    assert not stream.trained_on & stream.held_out


def test_bytes_keep_the_longest_prefix_that_fits() -> None:
    memory = Memory(MemoryBudget(bytes=100), 0.5, VIEW)
    train = [b"a" * 20, b"b" * 20, b"c" * 5, b"d"]
    memory.store({0: train}, {0: [b"e" * 30, b"f" * 10, b"g" * 10]})
    # 1: e (30), 2: a e (50), 3: a b e (70), 4: a b e f (80), 5: a b c e f (85), 6: abc efg (95),
    # 7: h = ⌊0.5 · 7⌋ = 3, all (96).
    assert stored_bytes(memory) == 96
    memory.store({1: [b"h" * 20]}, {1: [b"i" * 20]})  # 50 each
    assert memory.classes[0].train == [b"a" * 20]
    assert memory.classes[0].held_out == [b"e" * 30]
    assert stored_bytes(memory) == 90


def test_held_out_share_of_a_class_with_few_images() -> None:
    """Never more than f of a class's own images, one at least."""
    memory = Memory(MemoryBudget(images=1000), 0.2, VIEW)
    labels = [0] * 100 + [1] * 10 + [2] * 3
    _, held_out = memory.split(unique_files(labels, [1] * 113, "few"), np.random.default_rng(0))
    assert np.bincount(np.array(labels)[held_out]).tolist() == [
        20,
        2,
        1,
    ]  # ⌊0.2 · 333⌋ = 66 were wanted


def test_held_out_images_are_drawn_at_random() -> None:
    images = unique_files([0] * 40, [1] * 40, "random")
    memory = Memory(MemoryBudget(images=40), 0.25, VIEW)
    drawn = [memory.split(images, np.random.default_rng(seed))[1].tolist() for seed in range(60)]
    assert all(len(set(one)) == 10 for one in drawn)
    assert {index for one in drawn for index in one} == set(range(40))
    assert memory.split(images, np.random.default_rng(3))[1].tolist() == drawn[3]


def test_methods_without_a_correction_hold_nothing_out() -> None:
    stream = Stream(Memory(MemoryBudget(images=10), 0.0, VIEW))
    train, held_out = stream.step(unique_files([0] * 8 + [1] * 8, [1] * 16, "x"))
    assert (len(train), held_out, len(stream.memory)) == (16, [], 10)


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_budget_of_too_few_images_is_refused(share: float) -> None:
    per_class = 2 if share else 1
    enough = Stream(Memory(MemoryBudget(images=4 * per_class), share, VIEW))
    enough.step(unique_files([0, 1, 2, 3] * 5, [9] * 20, "enough"))
    assert len(enough.memory) == 4 * per_class
    short = Stream(Memory(MemoryBudget(images=4 * per_class - 1), share, VIEW))
    with pytest.raises(UserError, match=r"too small for 4 classes.*--memory"):
        short.step(unique_files([0, 1, 2, 3] * 5, [9] * 20, "short"))


def test_budget_of_too_few_bytes_is_refused() -> None:
    enough = Stream(Memory(MemoryBudget(bytes=80), 0.1, VIEW))
    enough.step(unique_files([0, 1] * 5, [20] * 10, "enough"))
    assert stored_bytes(enough.memory) == 80
    short = Stream(Memory(MemoryBudget(bytes=79), 0.1, VIEW))
    with pytest.raises(UserError, match="too small for 2 classes"):
        short.step(unique_files([0, 1] * 5, [20] * 10, "short"))


def test_class_of_one_image_is_refused() -> None:
    memory = Memory(MemoryBudget(images=100), 0.1, VIEW)
    with pytest.raises(UserError, match="add images"):
        memory.split(unique_files([0, 0, 1], [1] * 3, "one"), np.random.default_rng(0))


def test_new_images_of_a_known_class_join_both_parts() -> None:
    memory = Memory(MemoryBudget(images=40), 0.25, VIEW)
    stream = Stream(memory)
    stream.step(unique_files([0] * 4 + [1] * 60, [1] * 64, "first"))
    # h = ⌊0.25 · 20⌋ = 5, of class 0 no more than ⌊0.25 · 4⌋ = 1.
    assert [len(memory.classes[label].held_out) for label in (0, 1)] == [1, 5]
    assert [len(memory.classes[label].train) for label in (0, 1)] == [3, 15]
    _, held_out = stream.step(unique_files([0] * 8 + [1] * 8, [1] * 16, "again"))
    # A quarter of 8 new images joins where h is not reached: 1 + 2; class 1 has its 5.
    assert np.bincount([label for label, _ in held_out]).tolist() == [3, 5]
    # Of class 0 all 12 are kept, of class 1 the best 20; both split by f.
    assert [len(memory.classes[label].held_out) for label in (0, 1)] == [3, 5]
    assert [len(memory.classes[label].train) for label in (0, 1)] == [9, 15]
    assert not stream.trained_on & stream.held_out


def test_memory_has_its_own_copy_of_the_images() -> None:
    pixels = np.arange(8, dtype=np.uint8).reshape(8, 1, 1)
    images = array_set(pixels, np.repeat([0, 1], 4).astype(np.int64))
    memory = Memory(MemoryBudget(images=8), 0.0, images.preprocessing)
    ranked = {label: files_of(images, own) for label, own in by_class(images.labels).items()}
    memory.store(ranked, {})
    assert images.pixels is not None
    images.pixels.fill_(99)
    kept = memory.train_images()
    assert kept.take(kept.everything).flatten().tolist() == list(range(8))
    assert kept.labels.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_table_round_trip() -> None:
    stream = Stream(Memory(MemoryBudget(images=20), 0.3, VIEW))
    stream.step(unique_files([0, 1] * 10, [9] * 20, "one"))
    stream.step(unique_files([2, 1] * 10, [9] * 20, "two"))
    table = stream.memory.to_table()
    assert len(table) == len(stream.memory) == 18
    again = Memory(MemoryBudget(images=20), 0.3, VIEW)
    again.load_table(table)
    assert again.classes == stream.memory.classes
    assert again.to_table() == table


def test_empty_table_round_trip() -> None:
    empty = Memory(MemoryBudget(images=20), 0.3, VIEW)
    again = Memory(MemoryBudget(images=20), 0.3, VIEW)
    again.load_table(empty.to_table())
    assert again.classes == {}


def test_images_of_some_classes_only() -> None:
    stream = Stream(Memory(MemoryBudget(images=12), 0.5, VIEW))
    stream.step(unique_files([0, 1, 2] * 6, [9] * 18, "x"))
    assert stream.memory.train_images([2, 0]).labels.tolist() == [2, 2, 0, 0]
    assert stream.memory.held_out_images().labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert stored_bytes(stream.memory) == 9 * 12


@pytest.mark.filterwarnings("ignore:left out")
def test_broken_images_are_not_held_out() -> None:
    whole, broken = jpeg(picture(1, 9, 9)), b"no image"
    files = [whole, *(broken,) * 8, whole] * 2
    labels = np.repeat([0, 1], 10)
    images = ImageSet(labels=labels, preprocessing=Preprocessing(channels=3, size=8), files=files, skip_bad=True)
    memory = Memory(MemoryBudget(images=4), 0.2, images.preprocessing)
    for seed in range(20):
        _, held = memory.split(images, np.random.default_rng(seed))
        assert [files[index] for index in held] == [whole, whole]
    few = ImageSet(labels=labels, preprocessing=images.preprocessing, files=[*files[:-1], broken], skip_bad=True)
    with pytest.raises(
        UserError,
        match=r"of the class of .* 1 training images can be read and 2 are needed; mend some",
    ):
        memory.split(few, np.random.default_rng(0))
