"""The memory: budgets, the split into trained and held-out images, and the table on disk."""

from __future__ import annotations

import io
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pictures import jpeg, picture

from bic import ImageSet, MemoryBudget, Preprocessing, UserError
from bic.data.images import array_set
from bic.learn.memory import ClassMemory, Memory, by_class, files_of
from bic.learn.moments import Moments
from bic.learn.saved_learner import parse_memory, write_memory

ONE_PIXEL = Preprocessing(channels=1, size=1)


def unique_files(labels: list[int], sizes: list[int], tag: str) -> ImageSet:
    """Files of these sizes that are not images. No two are the same."""
    files = []
    for number, (label, size) in enumerate(zip(labels, sizes, strict=True)):
        files.append(f"{tag}/{label}/{number}/".encode().ljust(size, b"."))
    return ImageSet(labels=np.array(labels, dtype=np.int64), preprocessing=ONE_PIXEL, files=files)


def memory_of(held_out: float, *, limit: int | None = None, **budget: int) -> Memory:
    """An empty memory. The budget is `images=` or `bytes=`."""
    return Memory(MemoryBudget(**budget), held_out, ONE_PIXEL, held_out_limit=limit)


def num_bytes(memory: Memory) -> int:
    """The size of all images in the memory."""
    total = 0
    for kept in memory.classes.values():
        total += sum(map(len, kept.train)) + sum(map(len, kept.held_out))
    return total


@dataclass
class Stream:
    """Takes a Memory through steps as a learner does, and records the use of every image."""

    memory: Memory
    seed: int = 0
    trained_on: set[bytes] = field(default_factory=set)
    held_out: set[bytes] = field(default_factory=set)
    number: int = 0

    def step(self, images: ImageSet) -> tuple[list[bytes], list[tuple[int, bytes]]]:
        """The training images of the step, and its held-out images with their labels."""
        self.number += 1
        self.memory.release(np.random.default_rng(self.seed))
        draws = np.random.default_rng((self.seed, self.number))
        trained_indices, held_out_indices = self.memory.split(images, draws)
        assert sorted([*trained_indices, *held_out_indices]) == list(range(len(images)))
        new = images.select(trained_indices)
        new_held_out = images.select(held_out_indices)
        train = []
        for part in (new, self.memory.train_images()):
            train += files_of(part, part.everything)
        held_out = []
        for part in (self.memory.held_out_images(), new_held_out):
            held_out += zip(part.labels.tolist(), files_of(part, part.everything), strict=True)
        self.trained_on.update(train)
        self.held_out.update(file for _, file in held_out)

        ranked = {}
        for label, members in by_class(new.labels).items():
            candidates = list(files_of(new, members))
            if label in self.memory.classes:
                candidates += self.memory.classes[label].train
            order = draws.permutation(len(candidates))
            ranked[label] = [candidates[index] for index in order]
        kept = {}
        for label, members in by_class(new_held_out.labels).items():
            kept[label] = list(files_of(new_held_out, members))
        self.memory.store(ranked, kept)
        return train, held_out


# Budgets


def test_the_numbers_of_the_paper_for_cifar() -> None:
    stream = Stream(memory_of(0.1, images=2000))
    counts = []
    for number in range(5):
        labels = [label for label in range(20 * number, 20 * number + 20) for _ in range(500)]
        train, held_out = stream.step(unique_files(labels, [12] * 10_000, str(number)))
        counts.append((len(train), len(held_out), len(stream.memory)))
    # Exemplars per class before each step: 100, 100, 50, 33, 25. A tenth of them is held out.
    assert counts[0] == (20 * 490, 20 * 10, 2_000) == (9_800, 200, 2_000)
    assert counts[1] == (20 * 490 + 20 * 90, 40 * 10, 2_000) == (11_600, 400, 2_000)
    assert counts[2] == (20 * 495 + 40 * 45, 60 * 5, 60 * 33)
    assert counts[3] == (20 * 497 + 60 * 30, 80 * 3, 80 * 25)
    assert counts[4] == (20 * 498 + 80 * 23, 100 * 2, 100 * 20)
    assert not stream.trained_on & stream.held_out


def test_the_budget_is_shared_equally_by_all_classes_seen() -> None:
    memory = memory_of(0.1, images=2000)
    per_class = [memory.images_per_class(num_seen) for num_seen in (20, 40, 60, 80, 100)]
    assert per_class == [100, 50, 33, 25, 20]
    assert memory_of(0.1, bytes=2000).images_per_class(20) is None


def test_at_least_one_image_is_held_out_unless_the_share_is_zero() -> None:
    memory = memory_of(0.1, images=9)
    assert [memory.num_held_out(count) for count in (1, 19, 20, 30)] == [1, 1, 2, 3]
    assert memory_of(0.0, images=9).num_held_out(30) == 0


@settings(max_examples=60, deadline=None)
@given(
    step_sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    images_per_class=st.integers(2, 40),
    budget_per_class=st.integers(2, 30),
    spare=st.integers(0, 20),
    share=st.sampled_from([0.1, 0.2, 0.3, 0.5, 0.9]),
    seed=st.integers(0, 10**6),
)
def test_equal_classes_in_a_budget_of_images(
    step_sizes: list[int],
    images_per_class: int,
    budget_per_class: int,
    spare: int,
    share: float,
    seed: int,
) -> None:
    budget = budget_per_class * sum(step_sizes) + spare
    stream = Stream(memory_of(share, images=budget), seed)
    num_seen = 0
    ranks: dict[int, tuple[list[bytes], list[bytes]]] = {}
    for number, size in enumerate(step_sizes):
        # Old classes hold out h of their k = K // n exemplars, or of all images if there are fewer.
        exemplars = min(images_per_class, budget // (num_seen or size))
        held_out_per_class = max(1, int(share * exemplars + 1e-9))
        num_old = num_seen
        num_seen += size
        labels = [label for label in range(num_old, num_seen) for _ in range(images_per_class)]
        _, held_out = stream.step(unique_files(labels, [1] * len(labels), str(number)))
        counts = np.bincount([label for label, _ in held_out], minlength=num_seen)
        assert counts.tolist() == [held_out_per_class] * num_seen  # balanced

        classes = stream.memory.classes
        assert len(stream.memory) <= budget
        assert sorted(classes) == list(range(num_seen))
        limit = min(images_per_class, budget // num_seen)
        for label, kept in classes.items():
            assert len(kept.held_out) == max(1, int(share * limit + 1e-9))
            assert len(kept.train) + len(kept.held_out) == limit
            assert set(kept.train) <= stream.trained_on
            if label < num_old:  # old classes keep their order and are cut
                old_train, old_held_out = ranks[label]
                assert kept.train == old_train[: len(kept.train)]
                assert kept.held_out == old_held_out[: len(kept.held_out)]
        ranks = {label: (kept.train, kept.held_out) for label, kept in classes.items()}
    assert not stream.trained_on & stream.held_out


@settings(max_examples=100, deadline=None)
@given(data=st.data(), in_bytes=st.booleans(), seed=st.integers(0, 10**6))
def test_unequal_streams_stay_within_the_budget_and_never_train_on_held_out_images(
    data: st.DataObject, in_bytes: bool, seed: int
) -> None:
    """Classes of any size, known classes that come again, and budgets in images or bytes."""
    num_classes = data.draw(st.integers(2, 6), label="classes")
    share = data.draw(st.sampled_from([0.0, 0.1, 0.3, 0.5]), label="share")
    if in_bytes:
        # An image has at most 40 bytes, so two images of each class always fit.
        amount = data.draw(st.integers(80 * num_classes, 600 * num_classes), label="bytes")
        memory = memory_of(share, bytes=amount)
    else:
        amount = data.draw(st.integers(2 * num_classes, 20 * num_classes), label="images")
        memory = memory_of(share, images=amount)
    stream = Stream(memory, seed)
    draws = np.random.default_rng(seed)
    num_seen = 0
    while num_seen < num_classes or stream.number < 3:
        num_new = int(draws.integers(0, num_classes - num_seen + 1)) if num_seen else 1
        known = draws.permutation(num_seen)[: int(draws.integers(0, num_seen + 1))].tolist()
        labels: list[int] = []
        for label in [*known, *range(num_seen, num_seen + num_new)]:
            fewest = 1 if label < num_seen else 2
            labels += [label] * int(draws.integers(fewest, 30))
        if not labels:
            continue
        before = {label: list(kept.train) for label, kept in memory.classes.items()}
        held_out_before = [len(kept.held_out) for kept in memory.classes.values()]
        sizes = draws.integers(12, 41, len(labels)).tolist()
        _, held_out = stream.step(unique_files(labels, sizes, str(stream.number)))
        num_seen += num_new

        assert sorted(memory.classes) == list(range(num_seen))
        assert (num_bytes(memory) if in_bytes else len(memory)) <= amount
        for label, kept in memory.classes.items():
            files = kept.train + kept.held_out
            assert len(kept.train) >= 1
            assert (len(kept.held_out) >= 1) == (share > 0)
            assert (sum(map(len, files)) if in_bytes else len(files)) <= amount // num_seen
            if label in before and label not in known:
                assert kept.train == before[label][: len(kept.train)]
            assert all(f"/{label}/".encode() in file for file in files)
        if held_out_before:  # no class holds out more than the others
            counts = np.bincount([label for label, _ in held_out], minlength=num_seen)
            assert counts.max() <= max(*held_out_before, 1 if share else 0)
    assert not stream.trained_on & stream.held_out


def test_bytes_keep_the_longest_prefix_that_fits() -> None:
    memory = memory_of(0.5, bytes=100)
    train = [b"a" * 20, b"b" * 20, b"c" * 5, b"d"]
    memory.store({0: train}, {0: [b"e" * 30, b"f" * 10, b"g" * 10]})
    # By the number of images: e (30), ae (50), abe (70), abef (80), abcef (85), abcefg (95), and
    # with 7, of which ⌊0.5 · 7⌋ = 3 are held out, all (96).
    assert num_bytes(memory) == 96
    memory.store({1: [b"h" * 20]}, {1: [b"i" * 20]})  # 50 bytes per class
    assert memory.classes[0].train == [b"a" * 20]
    assert memory.classes[0].held_out == [b"e" * 30]
    assert num_bytes(memory) == 90


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_a_budget_of_too_few_images_is_refused(share: float) -> None:
    needed = 8 if share else 4
    enough = Stream(memory_of(share, images=needed))
    enough.step(unique_files([0, 1, 2, 3] * 5, [9] * 20, "enough"))
    assert len(enough.memory) == needed
    short = Stream(memory_of(share, images=needed - 1))
    with pytest.raises(UserError, match="too small for 4 classes") as caught:
        short.step(unique_files([0, 1, 2, 3] * 5, [9] * 20, "short"))
    assert caught.value.remedy == "raise {memory}"


def test_a_budget_of_too_few_bytes_is_refused() -> None:
    enough = Stream(memory_of(0.1, bytes=80))
    enough.step(unique_files([0, 1] * 5, [20] * 10, "enough"))
    assert num_bytes(enough.memory) == 80
    short = Stream(memory_of(0.1, bytes=79))
    with pytest.raises(UserError, match="too small for 2 classes"):
        short.step(unique_files([0, 1] * 5, [20] * 10, "short"))


# The split


def test_a_class_with_few_images_holds_out_its_share() -> None:
    """No class holds out more than the share f of its images, but each holds out one."""
    memory = memory_of(0.2, images=1000)
    labels = [0] * 100 + [1] * 10 + [2] * 3
    _, held_out = memory.split(unique_files(labels, [1] * 113, "few"), np.random.default_rng(0))
    # The budget alone would hold out ⌊0.2 · 333⌋ = 66.
    assert np.bincount(np.array(labels)[held_out]).tolist() == [20, 2, 1]


def test_held_out_images_are_drawn_at_random() -> None:
    images = unique_files([0] * 40, [1] * 40, "random")
    memory = memory_of(0.25, images=40)
    drawn = []
    for seed in range(60):
        _, held_out = memory.split(images, np.random.default_rng(seed))
        assert len(set(held_out.tolist())) == 10
        drawn.append(held_out.tolist())
    assert {index for held_out in drawn for index in held_out} == set(range(40))
    assert memory.split(images, np.random.default_rng(3))[1].tolist() == drawn[3]


def test_methods_without_a_correction_hold_nothing_out() -> None:
    stream = Stream(memory_of(0.0, images=10))
    train, held_out = stream.step(unique_files([0] * 8 + [1] * 8, [1] * 16, "x"))
    assert (len(train), held_out, len(stream.memory)) == (16, [], 10)


def test_a_class_with_one_image_is_refused() -> None:
    memory = memory_of(0.1, images=100)
    with pytest.raises(UserError, match="add more images"):
        memory.split(unique_files([0, 0, 1], [1] * 3, "one"), np.random.default_rng(0))


def test_new_images_of_a_known_class_join_both_parts() -> None:
    memory = memory_of(0.25, images=40)
    stream = Stream(memory)
    stream.step(unique_files([0] * 4 + [1] * 60, [1] * 64, "first"))
    # ⌊0.25 · 20⌋ = 5 are held out, but only ⌊0.25 · 4⌋ = 1 of class 0.
    assert [len(memory.classes[label].held_out) for label in (0, 1)] == [1, 5]
    assert [len(memory.classes[label].train) for label in (0, 1)] == [3, 15]
    _, held_out = stream.step(unique_files([0] * 8 + [1] * 8, [1] * 16, "again"))
    # Class 0 holds out a quarter of its 8 new images: 1 + 2. Class 1 has its 5 already.
    assert np.bincount([label for label, _ in held_out]).tolist() == [3, 5]
    # All 12 images of class 0 are kept, and the best 20 of class 1. Both are split by f.
    assert [len(memory.classes[label].held_out) for label in (0, 1)] == [3, 5]
    assert [len(memory.classes[label].train) for label in (0, 1)] == [9, 15]
    assert not stream.trained_on & stream.held_out


def test_images_that_were_learned_before_are_not_held_out() -> None:
    memory = memory_of(0.25, images=40)
    Stream(memory).step(unique_files([0] * 4 + [1] * 60, [1] * 64, "first"))
    images = unique_files([0] * 20 + [2] * 8, [1] * 28, "second")
    plain = memory.split(images, np.random.default_rng(5))
    nothing = np.zeros(28, dtype=np.bool_)
    for mask in (None, nothing):  # the same draws
        again = memory.split(images, np.random.default_rng(5), mask)
        assert [part.tolist() for part in again] == [part.tolist() for part in plain]
    # Class 0 has 1 of 5 held-out images. It held out 4 of 20 new ones; of 8 it holds out a quarter.
    assert np.bincount(images.labels[plain[1]]).tolist() == [4, 0, 2]
    learned = nothing.copy()
    learned[:12] = True
    for seed in range(20):
        trained, held_out = memory.split(images, np.random.default_rng(seed), learned)
        assert np.bincount(images.labels[held_out]).tolist() == [2, 0, 2]
        assert not learned[held_out].any()
        assert sorted([*trained, *held_out]) == list(range(28))
    learned[:20] = True
    held_out = memory.split(images, np.random.default_rng(0), learned)[1]
    assert np.bincount(images.labels[held_out]).tolist() == [0, 0, 2]


@pytest.mark.filterwarnings("ignore:left out")
def test_broken_images_that_were_learned_before_replace_no_other() -> None:
    """Where a new image cannot be read, none that was learned before is held out for it."""
    whole = jpeg(picture(1, 9, 9))
    preprocessing = Preprocessing(channels=3, size=8)
    memory = Memory(MemoryBudget(images=8), 0.5, preprocessing)
    memory.classes = {0: ClassMemory([b"a"], []), 1: ClassMemory([b"b"], [b"c", b"d"])}
    files: list[bytes | str] = [b"broken", b"broken", whole, whole, whole]
    labels = np.zeros(5, dtype=np.int64)
    images = ImageSet(labels=labels, preprocessing=preprocessing, files=files, skip_bad=True)
    learned = np.array([False, False, True, True, True])
    assert memory.split(images, np.random.default_rng(0), learned)[1].tolist() == []


def test_exemplars_that_are_learned_again_are_dropped() -> None:
    memory = memory_of(0.5, images=8)
    memory.classes = {
        0: ClassMemory([b"a", b"b", b"c"], [b"d"]),
        1: ClassMemory([b"a", b"c"], [b"e"]),
    }
    files: list[bytes | str] = [b"c", b"a", b"d", b"a"]
    labels = np.array([0, 0, 0, 2])
    memory.drop_trained(ImageSet(labels=labels, preprocessing=ONE_PIXEL, files=files))
    assert memory.classes == {0: ClassMemory([b"b"], [b"d"]), 1: ClassMemory([b"a", b"c"], [b"e"])}


@pytest.mark.filterwarnings("ignore:left out")
def test_broken_images_are_not_held_out() -> None:
    whole = jpeg(picture(1, 9, 9))
    broken = b"no image"
    files = [whole, *(broken,) * 8, whole] * 2
    labels = np.repeat([0, 1], 10)
    preprocessing = Preprocessing(channels=3, size=8)
    images = ImageSet(labels=labels, preprocessing=preprocessing, files=files, skip_bad=True)
    memory = Memory(MemoryBudget(images=4), 0.2, preprocessing)
    for seed in range(20):
        _, held_out = memory.split(images, np.random.default_rng(seed))
        assert [files[index] for index in held_out] == [whole, whole]
    files[-1] = broken
    images = ImageSet(labels=labels, preprocessing=preprocessing, files=files, skip_bad=True)
    problem = "only 1 training images of the class of .* can be read, and 2 are needed"
    with pytest.raises(UserError, match=f"{problem}; fix some"):
        memory.split(images, np.random.default_rng(0))


# What is kept


def test_the_memory_has_its_own_copy_of_the_images() -> None:
    pixels = np.arange(8, dtype=np.uint8).reshape(8, 1, 1)
    images = array_set(pixels, np.repeat([0, 1], 4).astype(np.int64))
    memory = Memory(MemoryBudget(images=8), 0.0, images.preprocessing)
    ranked = {
        label: files_of(images, members) for label, members in by_class(images.labels).items()
    }
    memory.store(ranked, {})
    assert images.pixels is not None
    images.pixels.fill_(99)
    kept = memory.train_images()
    assert kept.take(kept.everything).flatten().tolist() == list(range(8))
    assert kept.labels.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_a_table_restores_the_memory() -> None:
    stream = Stream(memory_of(0.3, images=20))
    stream.step(unique_files([0, 1] * 10, [9] * 20, "one"))
    stream.step(unique_files([2, 1] * 10, [9] * 20, "two"))
    table = stream.memory.to_table()
    assert len(table) == len(stream.memory) == 18
    restored = memory_of(0.3, images=20)
    restored.load_table(table)
    assert restored.classes == stream.memory.classes
    assert restored.to_table() == table


def test_an_empty_table_restores_an_empty_memory() -> None:
    restored = memory_of(0.3, images=20)
    restored.load_table(memory_of(0.3, images=20).to_table())
    assert restored.classes == {}


def test_images_of_some_classes_only() -> None:
    stream = Stream(memory_of(0.5, images=12))
    stream.step(unique_files([0, 1, 2] * 6, [9] * 18, "x"))
    assert stream.memory.train_images([2, 0]).labels.tolist() == [2, 2, 0, 0]
    assert stream.memory.held_out_images().labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert num_bytes(stream.memory) == 9 * 12


# The limit on held-out images


def holding(memory: Memory) -> set[int]:
    """The classes that hold images out."""
    return {label for label, kept in memory.classes.items() if kept.held_out}


def test_released_images_are_trained_on_and_nothing_is_lost() -> None:
    stream = Stream(memory_of(0.2, images=40, limit=3))
    stream.step(unique_files([label for label in range(8) for _ in range(10)], [12] * 80, "a"))
    before = {
        label: set(kept.train + kept.held_out) for label, kept in stream.memory.classes.items()
    }
    assert all(len(kept.held_out) == 1 for kept in stream.memory.classes.values())
    stream.memory.release(np.random.default_rng(0))
    assert len(holding(stream.memory)) == 3
    for label, kept in stream.memory.classes.items():
        assert set(kept.train + kept.held_out) == before[label]
        assert len(kept.train) == (4 if label in holding(stream.memory) else 5)


def test_without_a_limit_no_class_is_released() -> None:
    stream = Stream(memory_of(0.2, images=40))
    stream.step(unique_files([label for label in range(8) for _ in range(10)], [12] * 80, "a"))
    stream.memory.release(np.random.default_rng(0))
    assert len(holding(stream.memory)) == 8


def test_a_limit_below_the_images_of_one_class_cuts_them() -> None:
    stream = Stream(memory_of(0.5, images=40, limit=1))
    stream.step(unique_files([0] * 50 + [1] * 50, [12] * 100, "a"))
    stream.memory.release(np.random.default_rng(0))
    counts = sorted(len(kept.held_out) for kept in stream.memory.classes.values())
    assert counts == [0, 1]
    assert len(stream.memory) == 40


def test_many_new_classes_share_the_limit() -> None:
    """Ten images per class and a share of 0.4: four of them without a limit."""
    images = unique_files([label for label in range(8) for _ in range(10)], [12] * 80, "a")
    counts = []
    for limit in (None, 32, 31, 16, 15, 3):
        train, held_out = Stream(memory_of(0.4, images=80, limit=limit)).step(images)
        assert len(train) + len(held_out) == 80
        counts.append(len(held_out))
    # 32 // 8 = 4, 31 // 8 = 3, 16 // 8 = 2, and at least one per class
    assert counts == [32, 32, 24, 16, 8, 8]


def test_the_classes_that_hold_out_are_a_fair_sample() -> None:
    """Over many draws, classes of all steps hold out equally often, although early classes had
    more chances to be released."""
    counts = np.zeros(12)
    for seed in range(300):
        stream = Stream(memory_of(0.2, images=60, limit=4), seed=seed)
        for number in range(3):
            labels = [label for label in range(4 * number, 4 * number + 4) for _ in range(6)]
            stream.step(unique_files(labels, [12] * 24, str(number)))
        stream.memory.release(np.random.default_rng(seed))
        for label in holding(stream.memory):
            counts[label] += 1
    # 4 of 12 classes: each in a third of the 300 draws, with a standard deviation of 8.2.
    assert counts.sum() == 1200
    assert abs(counts - 100).max() < 35


def test_no_class_after_a_released_one_holds_out() -> None:
    """The second class of the draw was released before. There is room for the third, but it comes
    later in the draw."""
    memory = memory_of(0.5, images=40, limit=5)
    in_draw = np.argsort(np.random.default_rng(0).random(3)).tolist()
    for label, num_held_out in zip(in_draw, (2, 0, 1), strict=True):
        files = [f"{label}/{number}".encode() for number in range(4)]
        memory.classes[label] = ClassMemory(files[num_held_out:], files[:num_held_out])
    memory.release(np.random.default_rng(0))
    assert holding(memory) == {in_draw[0]}


def test_holding_out_starts_again_if_all_classes_that_did_are_retired() -> None:
    """A class that was released before stays released, but new classes hold out, and some of them
    still do when they are old."""
    for seed in range(20):
        stream = Stream(memory_of(0.2, images=60, limit=4), seed=seed)
        stream.step(unique_files([0] * 12 + [1] * 12, [12] * 24, "a"))
        stream.step(unique_files([2] * 12, [12] * 12, "b"))
        stream.memory.release(np.random.default_rng(seed))
        released = set(stream.memory.classes) - holding(stream.memory)
        for label in holding(stream.memory):
            del stream.memory.classes[label]
        assert released
        _, held_out = stream.step(unique_files([3] * 12 + [4] * 12, [12] * 24, "c"))
        assert {label for label, _ in held_out} == {3, 4}
        _, held_out = stream.step(unique_files([5] * 12, [12] * 12, "d"))
        old = {label for label, _ in held_out} - {5}
        assert old
        assert not old & released


def test_an_image_that_is_held_out_is_not_learned_when_it_comes_again() -> None:
    images = unique_files([0] * 10 + [1] * 10, [12] * 20, "a")
    memory = memory_of(0.2, images=20)
    draws = np.random.default_rng(0)
    trained, held_out = memory.split(images, draws)
    for label in (0, 1):
        files = {}
        for part, indices in (("train", trained), ("held out", held_out)):
            members = images.select(indices[images.labels[indices] == label])
            files[part] = list(files_of(members, members.everything))
        memory.classes[label] = ClassMemory(files["train"], files["held out"])
    trained_again, held_out_again = memory.split(images, draws)
    assert trained_again.tolist() == trained.tolist()
    assert not len(held_out_again)
    only_held_out = images.select(held_out)
    assert [len(part) for part in memory.split(only_held_out, draws)] == [0, 0]


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_properties_of_the_limit(data: st.DataObject) -> None:
    limit = data.draw(st.integers(1, 12), label="limit")
    share = data.draw(st.sampled_from([0.1, 0.3, 0.5]), label="share")
    budget = data.draw(st.integers(60, 200), label="budget")
    stream = Stream(
        memory_of(share, images=budget, limit=limit), seed=data.draw(st.integers(0, 99))
    )
    released: set[int] = set()
    num_seen = 0
    for number in range(data.draw(st.integers(2, 5), label="steps")):
        num_new = data.draw(st.integers(0 if num_seen else 1, 5), label="new classes")
        labels = [label for label in range(num_seen, num_seen + num_new) for _ in range(8)]
        if num_seen and (not num_new or data.draw(st.booleans(), label="more of known classes")):
            known = data.draw(st.lists(st.integers(0, num_seen - 1), min_size=2, max_size=9))
            labels += known
        old = set(range(num_seen))
        num_seen += num_new
        images = unique_files(labels, [30] * len(labels), str(number))
        _, held_out = stream.step(images)
        files = [file for _, file in held_out]
        old_held_out = [
            label for label, file in held_out if not file.startswith(f"{number}/".encode())
        ]
        assert len(old_held_out) <= limit  # the limit is kept
        new_held_out = [label for label, _ in held_out if label not in old]
        assert len(new_held_out) <= max(limit, num_new)  # at least one per class
        assert not set(files) & stream.trained_on  # an image that is held out was never trained on
        assert not {label for label, _ in held_out} & released  # a released class stays released
        assert set(range(num_seen)) <= stream.memory.classes.keys()
        released |= old - set(old_held_out)
        assert len(stream.memory) <= budget
        assert all(kept.train for kept in stream.memory.classes.values())
    if old:
        assert old_held_out


def test_changes_of_a_copy_leave_the_memory_alone() -> None:
    memory = memory_of(0.2, images=20)
    memory.classes = {0: ClassMemory([b"a", b"b"], [b"c"])}
    memory.moments = Moments.empty(2)
    copied = memory.copy()
    assert copied.to_table().equals(memory.to_table())
    copied.classes[0].train += [b"d"]
    copied.classes[1] = ClassMemory([b"e"], [])
    assert copied.moments is not None
    copied.moments.scatter += 1
    assert memory.classes == {0: ClassMemory([b"a", b"b"], [b"c"])}
    assert float(memory.moments.scatter.sum()) == 0


def test_the_file_of_a_memory_has_every_image_once() -> None:
    memory = memory_of(0.2, images=20)
    memory.classes = {0: ClassMemory([b"first image"], [b"second image"])}
    out = io.BytesIO()
    write_memory(memory.to_table(), out)
    assert out.getvalue().count(b"first image") == 1
    assert parse_memory(out.getvalue(), 1).equals(memory.to_table())
