"""Moments are the same however the images arrive, and can be saved and read back."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bic.learn.moments import Moments


def moments_of(features: torch.Tensor, labels: torch.Tensor, parts: list[np.ndarray]) -> Moments:
    moments = Moments.empty(features.shape[1])
    moments.grow(int(labels.max()) + 1)
    for part in parts:
        moments.add(features[part], labels[part])
    return moments


def test_moments_worked_out_by_hand() -> None:
    features = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0]])
    moments = moments_of(features, torch.tensor([0, 0, 1]), [np.arange(3)])
    assert moments.counts.tolist() == [2.0, 1.0]
    assert moments.means.tolist() == [[2.0, 0.0], [0.0, 2.0]]
    assert moments.scatter.tolist() == [[2.0, 0.0], [0.0, 0.0]]  # (1 − 2)² + (3 − 2)²


def test_more_images_of_a_known_class_move_its_mean() -> None:
    moments = Moments.empty(1)
    moments.grow(1)
    moments.add(torch.tensor([[1.0], [3.0]]), torch.tensor([0, 0]))
    moments.add(torch.tensor([[8.0]]), torch.tensor([0]))
    assert moments.means.tolist() == [[4.0]]
    assert moments.scatter.item() == pytest.approx(9 + 1 + 16)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), num_parts=st.integers(1, 20))
def test_any_order_and_any_number_of_steps_give_the_same_moments(seed: int, num_parts: int) -> None:
    draws = np.random.default_rng(seed)
    labels = torch.from_numpy(np.concatenate([np.arange(5), draws.integers(0, 5, 60)]))
    features = torch.from_numpy(draws.normal(3.0, 1.0, (65, 4)))
    whole = moments_of(features, labels, [np.arange(65)])
    parts = [part for part in np.array_split(draws.permutation(65), num_parts) if len(part)]
    split = moments_of(features, labels, parts)
    assert torch.equal(split.counts, whole.counts)
    torch.testing.assert_close(split.means, whole.means, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(split.scatter, whole.scatter, rtol=1e-11, atol=1e-11)
    # An independent computation: the covariance of each class by numpy.
    expected = np.zeros((4, 4))
    for label in range(5):
        members = features[labels == label].numpy()
        expected += np.cov(members.T, bias=True).reshape(4, 4) * len(members)
    np.testing.assert_allclose(whole.scatter.numpy(), expected, atol=1e-10)


def test_packed_moments_are_read_back_exactly() -> None:
    draws = torch.Generator().manual_seed(0)
    features = torch.randn(30, 7, generator=draws)
    moments = moments_of(features, torch.arange(30) % 3, [np.arange(30)])
    packed = moments.packed()
    assert packed["scatter"].shape == (28,)
    again = Moments.unpacked(packed, 7, 3)
    assert torch.equal(again.counts, moments.counts)
    assert torch.equal(again.means, moments.means)
    assert torch.equal(again.scatter.tril(), moments.scatter.tril())
    assert torch.equal(again.scatter, again.scatter.T)
    half = moments.packed(torch.float32)
    assert half["scatter"].dtype == half["means"].dtype == torch.float32


@pytest.mark.parametrize(
    ("name", "tensor", "reason"),
    [
        ("means", torch.zeros(3, 6), "means has the shape"),
        ("scatter", torch.zeros(27), "scatter has the shape"),
        ("counts", torch.tensor([1, 2, 3]), "counts has the shape"),
        ("counts", torch.tensor([1.0, -2.0, 3.0]), "negative number of images"),
        ("other", torch.zeros(1), "other tensors"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(name: str, tensor: torch.Tensor, reason: str) -> None:
    packed = moments_of(torch.ones(3, 7), torch.arange(3), [np.arange(3)]).packed()
    packed[name] = tensor
    with pytest.raises(ValueError, match=reason):
        Moments.unpacked(packed, 7, 3)
