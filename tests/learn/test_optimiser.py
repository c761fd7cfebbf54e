"""Muon: what moves how far, against singular value decompositions and torch's own SGD."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bic.learn.optimiser import Muon, orthogonalised
from bic.model.network import Network


def quintic(value: Tensor) -> Tensor:
    return 3.4445 * value - 4.7750 * value**3 + 2.0315 * value**5


@pytest.mark.parametrize("shape", [(6, 20), (20, 6), (7, 7)])
def test_singular_values_go_through_the_quintic_and_vectors_stay(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    values = values / matrix.norm()
    for _ in range(3):
        values = quintic(values)
    torch.testing.assert_close(orthogonalised(matrix), left @ torch.diag(values) @ right)


def test_many_iterations_bring_every_singular_value_near_one() -> None:
    matrix = torch.diag(torch.tensor([1.0, 0.5, 0.1, 0.02]))
    values = torch.linalg.svdvals(orthogonalised(matrix, 8))
    assert 0.65 < values.min() < values.max() < 1.25


def network() -> Network:
    torch.manual_seed(0)
    made = Network("small", channels=1, image_size=8)
    made.head.grow(3)
    return made.train()


def gradients(module: Network, factor: float = 1.0) -> None:
    module.zero_grad()
    draws = torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (12, 1, 8, 8), generator=draws, dtype=torch.uint8)
    (factor * F.cross_entropy(module(images), torch.arange(12) % 3)).backward()


def kernels(module: Network) -> dict[str, Tensor]:
    return {
        name: each.detach() for name, each in module.backbone.named_parameters() if each.ndim == 4
    }


def muon(module: nn.Module, rate: float = 0.1) -> Muon:
    return Muon(module, muon_rate=rate, lr=0.2, momentum=0.9, nesterov=True, weight_decay=1e-3)


def test_kernels_keep_their_norm_and_turn_by_the_rate() -> None:
    module = network()
    optimiser = muon(module)
    before = copy.deepcopy(kernels(module))
    gradients(module)
    optimiser.step()
    for name, kernel in kernels(module).items():
        old = before[name]
        torch.testing.assert_close(kernel.norm(), old.norm())
        # A step of 0.1 × its norm, then back to the norm: less than 0.1, but for curvature.
        assert 0.05 < (kernel - old).norm() / old.norm() < 0.11


def test_kernels_turn_against_the_orthogonalised_gradient() -> None:
    module = network()
    optimiser = muon(module)
    before = copy.deepcopy(kernels(module))
    gradients(module)
    wanted = {
        name: orthogonalised(each.grad.flatten(1))
        for name, each in module.backbone.named_parameters()
        if each.ndim == 4
    }
    optimiser.step()
    for name, kernel in kernels(module).items():
        old, direction = before[name].flatten(1), wanted[name]
        moved = old - 0.1 * old.norm() * direction / direction.norm()
        torch.testing.assert_close(
            kernel.flatten(1), moved * old.norm() / moved.norm(), rtol=1e-4, atol=1e-6
        )


def test_the_gradients_size_does_not_matter_to_kernels() -> None:
    one, two = network(), network()
    for module, factor in ((one, 1.0), (two, 1000.0)):
        optimiser = muon(module)
        gradients(module, factor)
        optimiser.step()
    for name, kernel in kernels(one).items():
        torch.testing.assert_close(kernel, kernels(two)[name], rtol=1e-4, atol=1e-6)


def test_everything_else_moves_as_by_sgd() -> None:
    one, two = network(), network()
    plain = torch.optim.SGD(
        two.parameters(), lr=0.2, momentum=0.9, nesterov=True, weight_decay=1e-3
    )
    optimiser = muon(one)
    for _ in range(2):
        gradients(one)
        for name, each in two.named_parameters():
            each.grad = dict(one.named_parameters())[name].grad.clone()
        optimiser.step()
        plain.step()
    same = [
        name
        for name, each in one.named_parameters()
        if torch.equal(each, dict(two.named_parameters())[name])
    ]
    assert set(same) == {name for name, _ in one.named_parameters()} - {
        f"backbone.{name}" for name in kernels(one)
    }


def test_the_kernels_rate_follows_the_schedule() -> None:
    module = network()
    optimiser = muon(module)
    for group in optimiser.param_groups:
        group["lr"] = 0.0
    before = copy.deepcopy(kernels(module))
    gradients(module)
    optimiser.step()
    for name, kernel in kernels(module).items():
        torch.testing.assert_close(kernel, before[name], rtol=1e-6, atol=0)


def test_a_head_alone_is_trained_by_sgd() -> None:
    one, two = nn.Linear(4, 3), nn.Linear(4, 3)
    two.load_state_dict(one.state_dict())
    plain = torch.optim.SGD(
        two.parameters(), lr=0.2, momentum=0.9, nesterov=True, weight_decay=1e-3
    )
    for module, optimiser in ((one, muon(one)), (two, plain)):
        module(torch.ones(2, 4)).square().sum().backward()
        optimiser.step()
    assert torch.equal(one.weight, two.weight)
