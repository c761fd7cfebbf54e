"""What a step needs of its images and of the memory."""

from __future__ import annotations

import numpy as np
import pytest

from bic import METHODS, Learning, MemoryBudget, UserError
from bic.data.images import ImageSet, array_set
from bic.learn.requirements import check_images, check_memory, images_needed

METHOD_THAT_CORRECTS = METHODS["bic"]
METHOD_THAT_DOES_NOT = METHODS["distill"]


@pytest.fixture(scope="module")
def images() -> ImageSet:
    """Images of one size as files: they are flat."""
    return array_set(np.zeros((10, 8, 8), dtype=np.uint8), np.arange(10) % 5)


def test_a_method_that_holds_images_out_needs_two_of_each_class() -> None:
    for method in METHODS.values():
        assert images_needed(method) == (2 if method.corrects else 1)
    assert images_needed(METHODS["bic"]) == 2


def test_a_class_with_too_few_images_is_named() -> None:
    counts = np.array([5, 1, 3])
    check_images(METHOD_THAT_DOES_NOT, counts, ["ant", "bee", "cat"])
    with pytest.raises(UserError) as caught:
        check_images(METHOD_THAT_CORRECTS, counts, ["ant", "bee", "cat"])
    assert caught.value.problem.startswith(
        "class 'bee' has only 1 training image and bic needs two images"
    )
    assert caught.value.remedy == "add images or leave the class out"


def test_a_step_without_new_classes_needs_no_image_of_a_new_class() -> None:
    check_images(METHOD_THAT_CORRECTS, np.zeros(0, dtype=np.int64), [])


def test_the_memory_must_hold_what_each_class_needs(images: ImageSet) -> None:
    check_memory(METHOD_THAT_CORRECTS, MemoryBudget(images=80), 40, images)
    check_memory(METHOD_THAT_DOES_NOT, MemoryBudget(images=40), 40, images)
    with pytest.raises(UserError) as caught:
        check_memory(METHOD_THAT_CORRECTS, MemoryBudget(images=79), 40, images)
    assert "per class seen (80 images for 40 classes), got 79" in caught.value.problem
    assert caught.value.remedy == "raise {memory}"
    with pytest.raises(UserError, match=r"\(40 images for 40 classes\), got 39"):
        check_memory(METHOD_THAT_DOES_NOT, MemoryBudget(images=39), 40, images)


def test_a_memory_in_bytes_must_hold_the_largest_sampled_images(images: ImageSet) -> None:
    size = len(images.encoded(0))
    check_memory(METHOD_THAT_CORRECTS, MemoryBudget(bytes=2 * 40 * size), 40, images)
    with pytest.raises(UserError, match="bytes for 40 classes"):
        check_memory(METHOD_THAT_CORRECTS, MemoryBudget(bytes=2 * 40 * size - 1), 40, images)


def test_a_method_without_exemplars_needs_no_memory(images: ImageSet) -> None:
    budget = Learning(method="lwf", memory=1).memory
    for name in ("lwf", "joint"):
        check_memory(METHODS[name], budget, 1000, images)
