"""scikit-learn's handwritten digits, which come with the package."""

import numpy as np

from bic.data.images import Dataset, array_set


def open_digits() -> Dataset:
    """1,797 grey images of 8 × 8; of each digit, every fifth image (in the file's order) is a test image."""
    from sklearn.datasets import load_digits  # slow to import, and needed here only

    digits = load_digits()
    images, labels = np.rint(digits.images * (255 / 16)).astype(np.uint8), digits.target.astype(np.int64)
    is_test = np.zeros(len(labels), dtype=bool)
    for digit in range(10):
        is_test[np.flatnonzero(labels == digit)[4::5]] = True
    train, test = (array_set(images[part], labels[part]) for part in (~is_test, is_test))
    return Dataset(name="digits", classes=tuple("0123456789"), train=train, test=test)
