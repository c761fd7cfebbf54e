"""The handwritten digits that come with scikit-learn."""

import numpy as np

from bic.data.images import Dataset, array_set


def open_digits() -> Dataset:
    """1,797 grey images of 8 × 8. Every fifth image of each digit is a test image."""
    from sklearn.datasets import load_digits  # takes long to import

    digits = load_digits()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    labels = digits.target.astype(np.int64)
    is_test = np.zeros(len(labels), dtype=bool)
    for digit in range(10):
        is_test[np.flatnonzero(labels == digit)[4::5]] = True
    train = array_set(images[~is_test], labels[~is_test])
    test = array_set(images[is_test], labels[is_test])
    return Dataset(name="digits", classes=tuple("0123456789"), train=train, test=test)
