"""The figures of the report against numbers worked out by hand."""

import numpy as np
import pytest

from bic.model.measures import confused_pairs, reliability
from bic.report import measures


def test_confidence_on_an_edge_belongs_to_the_bin_below() -> None:
    confidence = np.array([0.5, 0.51])
    result = reliability(confidence, np.array([True, False]), num_bins=2)
    assert result.counts.tolist() == [1, 1]
    assert result.error == pytest.approx((0.5 + 0.51) / 2)


def test_few_classes_have_a_bin_each() -> None:
    assert measures.class_bins([50, 10, 10], 100).tolist() == list(range(71))


def test_bins_of_many_classes_do_not_cross_steps() -> None:
    edges = measures.class_bins([600, 200, 200], 10)
    assert edges.tolist() == [0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000]
    assert {600, 800} <= set(edges.tolist())


def test_more_steps_than_bins_share_bins() -> None:
    assert measures.class_bins([1] * 1000, 10).tolist() == list(range(0, 1001, 100))


def test_a_step_without_classes_has_no_bin() -> None:
    assert measures.class_bins([6, 0, 2], 4).tolist() == [0, 2, 4, 6, 8]


def test_confusions_are_counted_per_bin() -> None:
    edges = np.arange(0, 1001, 100)
    true = np.array([0, 99, 100, 999])
    predicted = np.array([99, 100, 100, 0])
    counts = measures.confusion(true, predicted, edges)
    assert counts[0, 0] == 1
    assert counts[0, 1] == 1
    assert counts[1, 1] == 1
    assert counts[9, 0] == 1
    assert counts.sum() == 4


def test_the_most_confused_pairs_come_first() -> None:
    true = np.array([1, 0, 0, 0, 2, 2])
    predicted = np.array([0, 1, 1, 0, 0, 1])
    pairs = confused_pairs(true, predicted, 3)
    assert pairs == [(0, 1, 2), (1, 0, 1), (2, 0, 1), (2, 1, 1)]


def test_a_group_without_classes_has_no_share_and_no_norms() -> None:
    edges = np.array([0, 2, 2])
    assert measures.shares(np.array([0, 0, 1]), edges).tolist() == [1, 0]
    assert measures.five_numbers(np.array([1.0, 3.0]), edges) == [[1, 1.5, 2, 2.5, 3], []]
