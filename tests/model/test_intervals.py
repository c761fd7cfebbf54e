"""Intervals agree with an independent implementation and with arithmetic by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from bic import Drop, Share


@given(st.integers(1, 500).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total))))
def test_shares_have_wilson_intervals(counts: tuple[int, int]) -> None:
    share = Share(*counts)
    expected = binomtest(share.correct, share.total).proportion_ci(0.95, method="wilson")
    assert share.interval == pytest.approx((expected.low, expected.high), abs=1e-9)
    low, high = share.interval
    assert 0 <= low <= share.value + 1e-12
    assert share.value <= high + 1e-12
    assert high <= 1


def test_a_drop_by_hand() -> None:
    # 20 of 100 images were right before only, and 5 after only. One is added to both, two to 100.
    lost = 21 / 102
    gained = 6 / 102
    half = 1.959964 * math.sqrt((lost + gained - (lost - gained) ** 2) / 102)
    drop = Drop(lost=20, gained=5, total=100)
    assert drop.value == 0.15
    assert drop.interval == pytest.approx((15 / 102 - half, 15 / 102 + half), abs=1e-6)


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 50))
def test_a_rise_is_a_drop_with_the_other_sign(lost: int, gained: int, same: int) -> None:
    total = lost + gained + same
    low, high = Drop(lost, gained, total).interval
    assert -1 <= low < high <= 1
    assert Drop(gained, lost, total).interval == pytest.approx((-high, -low))


@pytest.mark.parametrize("counts", [(0, 0), (-1, 4), (5, 4)])
def test_counts_of_a_share_must_fit(counts: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="is not a share"):
        Share(*counts)


@pytest.mark.parametrize("counts", [(0, 0, 0), (-1, 0, 4), (0, -1, 4), (3, 2, 4)])
def test_counts_of_a_drop_must_fit(counts: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        Drop(*counts)
