"""scikit-learn's handwritten digits: 1,797 grey images of 8 × 8, always at hand."""

from __future__ import annotations

import numpy as np

from bic.data.images import Dataset, array_set

TEST_EVERY = 5


def open_digits() -> Dataset:
    """The ten digits; of each, every fifth image (in the file's order) is a test image."""
    from sklearn.datasets import load_digits  # slow to import, and only needed here

    digits = load_digits()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    labels = digits.target.astype(np.int64)
    is_test = np.zeros(len(labels), dtype=bool)
    for digit in range(10):
        is_test[np.flatnonzero(labels == digit)[TEST_EVERY - 1 :: TEST_EVERY]] = True
    return Dataset(
        name="digits",
        classes=tuple(str(digit) for digit in range(10)),
        train=array_set(images[~is_test], labels[~is_test]),
        test=array_set(images[is_test], labels[is_test]),
    )
