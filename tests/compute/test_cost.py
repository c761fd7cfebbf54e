"""The time of an update, by a clock that the test moves."""

import time

import pytest
import torch
from torch import Tensor, nn

from bic.compute import cost
from bic.compute.cost import seconds_per_image


class Clock:
    """A clock that moves on by the next of some times at every second look."""

    def __init__(self, times: list[float]) -> None:
        self.now = 0.0
        self.times = times
        self.num_looks = 0

    def __call__(self) -> float:
        self.num_looks += 1
        if self.num_looks % 2 == 0:
            self.now += self.times.pop(0)
        return self.now


@pytest.fixture
def network() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.5), nn.Linear(4, 3)).eval()


def test_fastest_update_counts(monkeypatch: pytest.MonkeyPatch, network: nn.Module) -> None:
    monkeypatch.setattr(time, "perf_counter", Clock([8.0, 2.0, 4.0]))
    assert seconds_per_image(network, torch.zeros(10, 5)) == 0.2
    assert network.training


def test_short_updates_are_repeated_until_they_add_up(
    monkeypatch: pytest.MonkeyPatch, network: nn.Module
) -> None:
    clock = Clock([0.05] * 100)
    monkeypatch.setattr(time, "perf_counter", clock)
    monkeypatch.setattr(cost, "MIN_SECONDS", 0.5)
    assert seconds_per_image(network, torch.zeros(10, 5)) == pytest.approx(0.005)
    assert len(clock.times) in (89, 90)  # 0.05 is not exact in binary


def test_other_forward_pass_is_timed_and_nothing_is_trained(
    monkeypatch: pytest.MonkeyPatch, network: nn.Module
) -> None:
    monkeypatch.setattr(time, "perf_counter", Clock([1.0] * 3))
    calls: list[int] = []
    before = [parameter.clone() for parameter in network.parameters()]

    def forward(images: Tensor) -> Tensor:
        calls.append(len(images))
        logits: Tensor = network(images)
        return logits

    seconds_per_image(network, torch.zeros(10, 5), forward)
    assert calls == [10, 10, 10]
    for parameter, value in zip(network.parameters(), before, strict=True):
        assert torch.equal(parameter, value)
        assert parameter.grad is None
