"""What a step needs of its images and of the memory."""

from __future__ import annotations

import numpy as np
import pytest

from bic import METHODS, Learning, UserError
from bic.data.images import ImageSet, array_set
from bic.learn.requirements import check_images, check_memory, num_held_out_of_class

THAT_CORRECTS = Learning(method="bic")
THAT_DOES_NOT = Learning(method="distill")


def with_memory(learning: Learning, memory: int | str) -> Learning:
    return Learning(method=learning.method, memory=memory)


@pytest.fixture(scope="module")
def images() -> ImageSet:
    """Images of one size as files: they are flat."""
    return array_set(np.zeros((10, 8, 8), dtype=np.uint8), np.arange(10) % 5)


def test_a_method_that_holds_images_out_holds_out_one_of_each_class() -> None:
    holding = {name for name in METHODS if num_held_out_of_class(Learning(method=name))}
    assert holding == {"bic", "bic-means", "ridge"}
    assert num_held_out_of_class(Learning(method="ridge", held_out=0)) == 0


def test_a_class_with_too_few_images_is_named() -> None:
    counts = np.array([5, 1, 3])
    check_images(THAT_DOES_NOT, counts, ["ant", "bee", "cat"])
    with pytest.raises(UserError) as caught:
        check_images(THAT_CORRECTS, counts, ["ant", "bee", "cat"])
    assert caught.value.problem.startswith(
        "class 'bee' has only 1 training image and bic needs two images"
    )
    assert caught.value.remedy == "add images or leave the class out"


def test_a_step_without_new_classes_needs_no_image_of_a_new_class() -> None:
    check_images(THAT_CORRECTS, np.zeros(0, dtype=np.int64), [])


def test_the_memory_must_hold_what_each_class_needs(images: ImageSet) -> None:
    check_memory(with_memory(THAT_CORRECTS, 80), 40, images)
    check_memory(with_memory(THAT_DOES_NOT, 40), 40, images)
    with pytest.raises(UserError) as caught:
        check_memory(with_memory(THAT_CORRECTS, 79), 40, images)
    assert "per class seen (80 images for 40 classes), got 79" in caught.value.problem
    assert caught.value.remedy == "raise {memory}"
    with pytest.raises(UserError, match=r"\(40 images for 40 classes\), got 39"):
        check_memory(with_memory(THAT_DOES_NOT, 39), 40, images)


def test_a_memory_in_bytes_must_hold_the_largest_sampled_images(images: ImageSet) -> None:
    size = len(images.encoded(0))
    check_memory(with_memory(THAT_CORRECTS, f"{2 * 40 * size}B"), 40, images)
    with pytest.raises(UserError, match="bytes for 40 classes"):
        check_memory(with_memory(THAT_CORRECTS, f"{2 * 40 * size - 1}B"), 40, images)


def test_a_method_without_exemplars_needs_no_memory(images: ImageSet) -> None:
    for name in ("lwf", "joint"):
        check_memory(Learning(method=name, memory=1), 1000, images)


def test_ridge_needs_no_exemplars_but_no_memory_that_is_too_small(images: ImageSet) -> None:
    check_memory(Learning(method="ridge", memory=0), 1000, images)
    check_memory(Learning(method="ridge", memory=80), 40, images)
    with pytest.raises(UserError) as caught:
        check_memory(Learning(method="ridge", memory=79), 40, images)
    assert caught.value.remedy == "raise {memory}, or use {memory=0}"
