"""The exact head agrees with scikit-learn's ridge regression, and treats classes equally."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from bic.learn.exact_head import MATRICES
from bic.learn.moments import Moments
from bic.learn.ridge import PENALTIES, SCALE, Regression, best_of
from bic.model.calibrate import fit_temperature


def blobs(
    counts: list[int], dim: int, seed: int, noise: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Features around one random centre for each class, and labels."""
    draws = np.random.default_rng(seed)
    centres = np.random.default_rng(5).normal(0, 1, (len(counts), dim))
    labels = np.repeat(np.arange(len(counts)), counts)
    features = centres[labels] + noise * draws.normal(0, 1, (len(labels), dim))
    return torch.from_numpy(features), torch.from_numpy(labels)


def moments_of(features: torch.Tensor, labels: torch.Tensor) -> Moments:
    moments = Moments.empty(features.shape[1])
    moments.grow(int(labels.max()) + 1)
    moments.add(features, labels)
    return moments


def test_with_equal_classes_it_is_ridge_regression_on_one_hot_targets() -> None:
    features, labels = blobs([12] * 4, 6, seed=1)
    regression = Regression(moments_of(features, labels), range(4))
    weight, bias = regression.solved(0.3)
    one_hot = np.eye(4)[labels.numpy()]
    # scikit-learn adds its penalty to the sum over images, not to their mean.
    sklearn_penalty = 0.3 * regression.size * len(labels)
    solved = Ridge(alpha=sklearn_penalty).fit(features.numpy(), one_hot)
    np.testing.assert_allclose(weight.numpy(), SCALE * solved.coef_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(bias.numpy(), SCALE * solved.intercept_, rtol=1e-9)


def test_classes_with_few_images_do_not_lose() -> None:
    train, labels = blobs([8] * 5 + [400] * 5, 20, seed=1, noise=1.2)
    test, test_labels = blobs([200] * 10, 20, seed=2, noise=1.2)
    weight, bias = Regression(moments_of(train, labels), range(10)).solved(0.1)
    is_right = (test @ weight.T + bias).argmax(dim=1) == test_labels
    few = float(is_right[test_labels < 5].double().mean())
    many = float(is_right[test_labels >= 5].double().mean())
    one_hot = np.eye(10)[labels.numpy()]
    plain = Ridge(alpha=1.0).fit(train.numpy(), one_hot).predict(test.numpy()).argmax(axis=1)
    plain_few = float((plain == test_labels.numpy())[test_labels.numpy() < 5].mean())
    assert plain_few < 0.4  # what least squares would do
    assert few > 0.7
    assert abs(few - many) < 0.15


def test_steps_and_orders_give_the_same_head() -> None:
    features, labels = blobs([30] * 6, 40, seed=3)
    whole = Regression(moments_of(features, labels), range(6)).head(0.01)
    for num_steps in (5, 20):
        moments = Moments.empty(40)
        moments.grow(6)
        order = np.random.default_rng(num_steps).permutation(len(labels))
        for part in np.array_split(order, num_steps):
            moments.add(features[part], labels[part])
        head = Regression(moments, range(6)).head(0.01)
        difference = (head.weight - whole.weight).norm() / whole.weight.norm()
        assert difference < 1e-5


def test_a_class_that_is_not_active_has_a_row_of_zeros_and_no_influence() -> None:
    features, labels = blobs([20] * 3, 5, seed=4)
    moments = moments_of(features, labels)
    moments.counts[1] = 0.0
    moments.means[1] = 0.0
    head = Regression(moments, [0, 2]).head(0.1)
    assert not head.weight[1].any()
    assert head.bias[1] == 0
    alone = moments_of(features[labels != 1], (labels[labels != 1] > 0).long())
    alone.scatter = moments.scatter.clone()  # which still holds the images of the class
    alone.counts *= moments.counts.sum() / alone.counts.sum()
    expected = Regression(alone, [0, 1]).head(0.1)
    torch.testing.assert_close(head.weight[[0, 2]], expected.weight)


def test_the_penalty_is_the_one_with_the_smallest_loss_on_held_out_images() -> None:
    features, labels = blobs([15] * 5, 60, seed=6, noise=2.0)
    held_out, own = blobs([40] * 5, 60, seed=7, noise=2.0)
    regression = Regression(moments_of(features, labels), range(5))
    chosen = regression.chosen_head(held_out.float(), own, None)

    def loss(penalty: float) -> float:
        head = regression.chosen_head(held_out.float(), own, penalty)
        logits = held_out.float() @ head.weight.T + head.bias
        return float(torch.nn.functional.cross_entropy(logits, own))

    losses = {penalty: loss(penalty) for penalty in PENALTIES}
    assert chosen.penalty == min(losses, key=losses.__getitem__)
    assert losses[chosen.penalty] < min(losses[PENALTIES[0]], losses[PENALTIES[-1]])


@pytest.mark.parametrize("num_values", [1, 2, 5, 10, 11, 12])
def test_every_minimum_is_found(num_values: int) -> None:
    values = [float(place) for place in range(num_values)]
    for lowest in values:
        assert best_of(values, lambda value, lowest=lowest: abs(value - lowest)) == lowest


def test_features_that_are_all_equal_can_be_solved() -> None:
    moments = moments_of(torch.ones(6, 4), torch.tensor([0, 0, 0, 1, 1, 1]))
    head = Regression(moments, range(2)).head(1.0)
    assert torch.isfinite(head.weight).all()
    assert torch.isfinite(head.bias).all()


def test_five_penalties_are_tried_at_most() -> None:
    for best in PENALTIES:
        tried = []

        def loss(penalty: float, best: float = best, tried: list[float] = tried) -> float:
            tried.append(penalty)
            return abs(np.log(penalty / best))

        assert best_of(PENALTIES, loss) == best
        assert len(tried) <= 5
        assert best in tried


@pytest.mark.parametrize("num_images", [2, 30])
def test_the_scale_is_the_same_for_few_and_for_many_held_out_images(num_images: int) -> None:
    features, labels = blobs([15] * 5, 60, seed=8)
    held_out, own = blobs([30] * 5, 60, seed=9)
    places = torch.arange(0, 150, 150 // num_images)[:num_images]
    held_out, own = held_out[places].float(), own[places]
    regression = Regression(moments_of(features, labels), range(5))
    weight, bias = regression.solved(0.1)
    temperature = fit_temperature(held_out @ weight.T.float() + bias.float(), own)
    head = regression.chosen_head(held_out, own, 0.1)
    np.testing.assert_allclose(head.weight * temperature, weight, rtol=1e-4, atol=1e-5)


# Prints how many matrices in double precision exist at once while a head learns and is solved.
PEAK = """
import copy, torch
from pathlib import Path
from bic.learn.moments import Moments
from bic.learn.ridge import Regression

def solve(dim):
    features = torch.randn(50, dim, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(50) % 5
    moments = Moments.empty(dim)
    moments.grow(5)
    moments.add(features, labels)
    learned = copy.deepcopy(moments)  # the memory of the step before stays until this one ends
    learned.add(features, labels)
    Regression(learned, range(5)).chosen_head(features, labels, None)

def peak():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024

torch.set_num_threads(1)
solve(300)  # what the libraries take once
before = peak()
solve(2500)
print((peak() - before) / (8 * 2500**2))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux says it")
def test_a_head_takes_as_much_memory_as_is_checked_before() -> None:
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    assert float(done.stdout) == pytest.approx(MATRICES, abs=1)
