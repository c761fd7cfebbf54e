"""The teacher: frozen, in evaluation mode, corrected, with batch-norm folded."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from support.learners import are_equal
from support.training import (
    classification_loss,
    copied,
    noisy_images,
    plain_recipe,
    small_network,
    train,
)
from torch import Tensor, nn
from torch.fx import GraphModule

from bic import Correction
from bic.learn.losses import Losses
from bic.learn.teacher import Teacher
from bic.model.network import Head, Network

if TYPE_CHECKING:
    from collections.abc import Callable


def test_the_teacher_is_in_evaluation_mode_and_training_does_not_change_it() -> None:
    recipe = plain_recipe(epochs=2)
    network = small_network()
    train(network, recipe, noisy_images(40), classification_loss)
    assert network.training  # a teacher that kept the mode would be in training mode
    before = copied(network)
    pixels = noisy_images(12, seed=7).take(np.arange(12))
    correction = Correction(alpha=0.5, beta=-1.0, num_old=2)
    teacher = Teacher(network, correction)
    with torch.no_grad():
        expected = correction.apply(network_with(before)(pixels))
    torch.testing.assert_close(teacher(pixels), expected)

    received: list[Tensor] = []

    def loss(logits: Tensor, labels: Tensor, targets: Tensor | None) -> Losses:
        assert targets is not None
        received.append(targets)
        distance = (logits - targets).square().mean()
        return {"distillation": 1e-3 * distance, **classification_loss(logits, labels, None)}

    train(network, recipe, noisy_images(40), loss, seed=1, teacher=teacher)
    assert received
    assert not any(targets.requires_grad for targets in received)
    assert are_equal(copied(teacher.network), before)  # weights and batch-norm statistics
    assert not are_equal(copied(network), before)
    assert network.training
    torch.testing.assert_close(teacher(pixels), expected)
    assert not any(module.training for module in teacher.network.modules())


def network_with(state: dict[str, Tensor]) -> Network:
    """A network in evaluation mode with these weights."""
    network = small_network()
    network.load_state_dict(state)
    return network.eval()


def network_with_statistics(backbone: str) -> Network:
    """A network whose batch-norm statistics and scales are far from their initial values."""
    torch.manual_seed(0)
    network = Network(backbone, channels=3, image_size=32)
    network.head.grow(5)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    return network


# In the fast network three batch-norms follow a max-pooling: they cannot be folded, because a
# negative scale turns the maximum into the minimum.
@pytest.mark.parametrize(
    ("backbone", "num_left"), [("resnet32", 0), ("resnet18", 0), ("fast", 3), ("small", 0)]
)
def test_batch_norm_is_folded_into_convolutions(backbone: str, num_left: int) -> None:
    network = network_with_statistics(backbone)
    teacher = Teacher(network, None)
    pixels = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
    with torch.no_grad():
        expected = network.eval()(pixels)
    tolerance = 1e-3 * float(expected.abs().max())
    torch.testing.assert_close(teacher(pixels), expected, rtol=1e-3, atol=tolerance)
    traced = teacher.folded.backbone
    assert traced is not network.backbone
    called = [node.target for node in traced.graph.nodes if node.op == "call_module"]
    batch_norms = [
        name for name in called if isinstance(traced.get_submodule(name), nn.BatchNorm2d)
    ]
    assert len(batch_norms) == num_left


class Branching(nn.Module):
    """Cannot be traced, because it branches on the values that it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x))
        return (x if x.mean() > 0 else -x).mean(dim=(2, 3))


class Shared(nn.Module):
    """One convolution before two batch-norms: folding one would change the other."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.first_norm = nn.BatchNorm2d(4)
        self.second_norm = nn.BatchNorm2d(4)
        nn.init.uniform_(self.first_norm.weight)

    def forward(self, x: Tensor) -> Tensor:
        total = self.first_norm(self.conv(x)) + self.second_norm(self.conv(x))
        return total.mean(dim=(2, 3))


@pytest.mark.parametrize("backbone", [Branching, Shared])
def test_a_backbone_that_cannot_be_folded_teaches_as_it_is(backbone: type[nn.Module]) -> None:
    network = small_network()
    network.backbone = backbone()
    network.head = Head(4)
    network.head.grow(3)
    pixels = noisy_images(6).take(np.arange(6))
    with torch.no_grad():
        expected = network.eval()(pixels)
    torch.testing.assert_close(Teacher(network, None)(pixels), expected)


class Meeting(nn.Module):
    """A backbone in whose forward pass another thread does `work`."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.work = work

    def forward(self, x: Tensor) -> Tensor:
        thread = threading.Thread(target=self.work)
        thread.start()
        thread.join()
        features: Tensor = self.norm(self.conv(x))
        return features.mean(dim=(2, 3))


def test_while_a_backbone_is_traced_other_threads_can_predict() -> None:
    other = small_network().eval()
    pixels = noisy_images(6).take(np.arange(6))
    with torch.no_grad():
        expected = other(pixels)
    found: list[Tensor] = []

    def predict() -> None:
        with torch.no_grad():
            found.append(other(pixels))

    network = small_network()
    network.backbone = Meeting(predict)
    traced = Teacher(network, None).folded.backbone
    assert isinstance(traced, GraphModule)
    called = [node.target for node in traced.graph.nodes if node.op == "call_module"]
    assert called == ["conv"]
    assert len(found) == 1
    assert torch.equal(found[0], expected)


def test_traces_of_two_threads_leave_modules_as_they_were() -> None:
    """The second trace begins during the first; undoing both in this order would undo neither."""
    call = nn.Module.__call__
    is_traced = threading.Event()
    first_has_ended = threading.Event()

    def wait() -> None:
        is_traced.set()
        first_has_ended.wait(10)

    second = small_network()
    second.backbone = Meeting(wait)
    thread = threading.Thread(target=Teacher, args=(second, None))

    def begin_second() -> None:
        thread.start()
        is_traced.wait(0.5)

    first = small_network()
    first.backbone = Meeting(begin_second)
    try:
        assert isinstance(Teacher(first, None).folded.backbone, GraphModule)
        first_has_ended.set()
        thread.join()
        assert is_traced.is_set()
        assert nn.Module.__call__ is call
    finally:
        nn.Module.__call__ = call
