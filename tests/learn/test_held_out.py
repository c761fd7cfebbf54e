"""How much each held-out image counts in a fit, by hand."""

import numpy as np
import pytest

from bic.learn.held_out import image_weights


def test_all_classes_count_equally_if_all_have_images() -> None:
    labels = np.array([0, 1, 1, 2])
    assert image_weights(labels, 2, 3).tolist() == [4 / 3, 2 / 3, 2 / 3, 4 / 3]


def test_old_classes_together_count_n_and_new_ones_m() -> None:
    """Of three old classes only one has images; they count for all three."""
    labels = np.array([1, 1, 3, 4])
    weights = image_weights(labels, 3, 5)
    assert weights.tolist() == pytest.approx([1.2, 1.2, 0.8, 0.8])
    assert weights[:2].sum() / weights[2:].sum() == pytest.approx(3 / 2)


def test_weights_sum_to_the_number_of_images() -> None:
    draws = np.random.default_rng(0)
    for num_old in (1, 7, 19):
        labels = draws.integers(0, 20, 500)
        labels[:2] = [0, 19]
        assert np.isclose(image_weights(labels, num_old, 20).sum(), 500)
