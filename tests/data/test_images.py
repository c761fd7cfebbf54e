"""ImageSet and Dataset."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from support.pictures import plain_png

from bic.data.decode_files import decode_files
from bic.data.images import Dataset, ImageSet, array_set, join
from bic.data.preprocessing import Preprocessing
from bic.errors import UserError


def numbered(count: int) -> ImageSet:
    """Image i has the pixels 4i, 4i+1, 4i+2, 4i+3 and the label i."""
    pixels = np.arange(4 * count, dtype=np.uint8).reshape(count, 2, 2)
    return array_set(pixels, np.arange(count))


def test_select_and_relabel() -> None:
    images = array_set(np.arange(16, dtype=np.uint8).reshape(4, 2, 2), np.array([0, 1, 2, 1]))
    chosen = images.of_classes([2, 1])
    assert chosen.labels.tolist() == [1, 0, 1]
    assert chosen.take(np.array([1])).tolist() == [[[[8, 9], [10, 11]]]]
    assert images.of_classes([2, 1], first=1).labels.tolist() == [1, 1]


def test_joined_sets_follow_each_other() -> None:
    images = numbered(4)
    joined = join([images.select(np.array([3, 1])), images.select(np.array([0]))])
    assert joined.labels.tolist() == [3, 1, 0]
    assert joined.take(np.array([2])).flatten().tolist() == [0, 1, 2, 3]
    assert join([images, images.select(np.zeros(0, np.int64))]) is images


def test_joining_decodes_files_if_another_set_is_in_memory() -> None:
    in_memory = array_set(np.full((1, 4, 4), 9, dtype=np.uint8), np.array([5]))
    preprocessing = Preprocessing(channels=1, size=4)
    content = [plain_png(1), plain_png(2)]
    encoded = ImageSet(labels=np.array([6, 7]), preprocessing=preprocessing, files=content)
    joined = join([in_memory, encoded])
    assert joined.pixels is not None
    assert joined.pixels[:, 0, 0, 0].tolist() == [9, 1, 2]
    assert joined.files is None
    assert joined.labels.tolist() == [5, 6, 7]
    both_encoded = join([encoded, encoded])
    assert both_encoded.pixels is None
    assert both_encoded.files == content * 2


def test_a_set_decodes_with_the_function_it_is_given() -> None:
    calls = []

    def decode(files, preprocessing, cuts=None, *, skip_bad=False):  # type: ignore[no-untyped-def]
        calls.append((list(files), cuts, skip_bad))
        return decode_files(files, preprocessing, cuts, skip_bad=skip_bad)

    content = [plain_png(1), plain_png(2)]
    images = ImageSet(
        labels=np.arange(2), preprocessing=Preprocessing(channels=1, size=2), files=content
    )
    pixels, indices = images.take_readable(np.array([1]), decode=decode)
    assert (pixels[0, 0, 0, 0].item(), indices.tolist()) == (2, [1])
    assert images.take(np.array([0]), decode=decode)[0, 0, 0, 0] == 1
    join([images, numbered(1)], decode=decode)
    assert calls == [(content[1:], None, False), (content[:1], None, False), (content, None, False)]


def test_a_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = str(tmp_path / "gone.png")
    images = ImageSet(
        labels=np.zeros(1, np.int64), preprocessing=Preprocessing(channels=1, size=4), files=[path]
    )
    with pytest.raises(UserError, match=r"gone.png \(No such file.*\); put it back and run again"):
        images.encoded(0)


def test_sampled_bytes_are_those_of_the_files() -> None:
    images = numbered(3)
    sizes = {len(images.encoded(index)) for index in range(3)}
    assert len(images.sampled_bytes()) == 100
    assert set(images.sampled_bytes().tolist()) == sizes


def test_arrays_that_are_not_square_have_no_size() -> None:
    images = array_set(np.zeros((2, 3, 5, 3), dtype=np.uint8), np.arange(2))
    assert images.preprocessing == Preprocessing(channels=3)
    assert images.take(np.array([0])).shape == (1, 3, 3, 5)


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (("a", "a"), "d: class 'a' is named twice; rename it"),
        (("a", "b\n"), r"d: the class name 'b\\n' is empty or not printable"),
        (("a", "b", "c"), "class 'c' of d has no train images; add some, or leave the class out"),
        (("a",), r"d has wrong train labels \(label 1 is not in 0\.\.0, the class numbers\)"),
    ],
)
def test_bad_classes_are_refused(classes: tuple[str, ...], message: str) -> None:
    images = numbered(2)
    with pytest.raises(UserError, match=message):
        Dataset(name="d", classes=classes, train=images, test=images)


def test_a_fingerprint_depends_on_pixels_labels_and_names() -> None:
    black = np.zeros((2, 2, 2), dtype=np.uint8)
    dark = np.ones((2, 2, 2), dtype=np.uint8)
    forward = np.array([0, 1])
    backward = np.array([1, 0])

    def fingerprint(pixels: np.ndarray, labels: np.ndarray, *classes: str) -> str:
        images = array_set(pixels, labels)
        return Dataset(name="d", classes=classes, train=images, test=images).fingerprint

    fingerprints = [
        fingerprint(black, forward, "a", "b"),
        fingerprint(dark, forward, "a", "b"),
        fingerprint(black, backward, "a", "b"),
        fingerprint(black, forward, "a", "c"),
    ]
    assert len(set(fingerprints)) == 4
    assert fingerprints[0] == fingerprint(black.copy(), forward, "a", "b")


def test_a_fingerprint_of_files_depends_on_their_content() -> None:
    def fingerprint(*values: int) -> str:
        images = ImageSet(
            labels=np.zeros(2, np.int64),
            preprocessing=Preprocessing(channels=1, size=4),
            files=[plain_png(value) for value in values],
        )
        return Dataset(name="d", classes=("a",), train=images, test=images).fingerprint

    assert fingerprint(1, 2) == fingerprint(1, 2)
    assert fingerprint(1, 2) != fingerprint(1, 3)


def test_vectors_are_stored_without_loss() -> None:
    vectors = np.array([[0.1, -2.5], [1e-20, 3.0]], dtype=np.float32)
    images = array_set(vectors, np.arange(2))
    stored = ImageSet(
        labels=images.labels,
        preprocessing=images.preprocessing,
        files=[images.encoded(index) for index in range(2)],
    )
    assert torch.equal(stored.take(stored.everything), torch.from_numpy(vectors))
