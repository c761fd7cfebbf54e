"""The digits of scikit-learn."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from bic.data.open import open_dataset


def test_every_fifth_image_of_each_digit_is_for_testing() -> None:
    data = open_dataset("digits")
    assert (data.name, data.classes, data.image_size) == ("digits", tuple("0123456789"), 8)
    assert len(data.train) + len(data.test) == 1797
    count = [0] * 10
    test = []
    for number, digit in enumerate(load_digits().target):
        count[digit] += 1
        if count[digit] % 5 == 0:
            test.append(number)
    assert data.test.labels.tolist() == load_digits().target[test].tolist()
    last = np.rint(load_digits().images[test[-1]] * 255 / 16)
    assert data.test.take(np.array([-1]))[0, 0].tolist() == last.tolist()


def test_pixels_are_scaled_to_255() -> None:
    data = open_dataset("digits")
    # The first row of the first image, a 0, is 0 0 5 13 9 1 0 0 in sixteenths.
    assert data.train.take(np.array([0]))[0, 0, 0].tolist() == [0, 0, 80, 207, 143, 16, 0, 0]


def test_digits_can_be_resized() -> None:
    data = open_dataset("digits", image_size=16)
    assert data.image_size == 16
    assert data.train.take(np.arange(2)).shape == (2, 1, 16, 16)
