"""Muon against singular value decompositions and against torch's own SGD."""

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
def test_the_quintic_changes_singular_values_and_not_vectors(shape: tuple[int, int]) -> None:
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


def small_network() -> Network:
    torch.manual_seed(0)
    network = Network("small", channels=1, image_size=8)
    network.head.grow(3)
    return network.train()


def compute_gradients(network: Network, factor: float = 1.0) -> None:
    network.zero_grad()
    draws = torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (12, 1, 8, 8), generator=draws, dtype=torch.uint8)
    loss = F.cross_entropy(network(images), torch.arange(12) % 3)
    (factor * loss).backward()


def kernels(network: Network) -> dict[str, Tensor]:
    """The kernels of the convolutions."""
    parameters = network.backbone.named_parameters()
    return {name: parameter.detach() for name, parameter in parameters if parameter.ndim == 4}


def muon(module: nn.Module) -> Muon:
    return Muon(module, muon_rate=0.1, lr=0.2, momentum=0.9, nesterov=True, weight_decay=1e-3)


def sgd(module: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(
        module.parameters(), lr=0.2, momentum=0.9, nesterov=True, weight_decay=1e-3
    )


def test_kernels_keep_their_norm_and_turn_by_the_rate() -> None:
    network = small_network()
    optimiser = muon(network)
    before = copy.deepcopy(kernels(network))
    compute_gradients(network)
    optimiser.step()
    for name, kernel in kernels(network).items():
        old = before[name]
        torch.testing.assert_close(kernel.norm(), old.norm())
        # An update of 0.1 × the norm, then back to the norm: about 0.1, less the curvature.
        assert 0.05 < (kernel - old).norm() / old.norm() < 0.11


def test_kernels_turn_against_the_orthogonalised_gradient() -> None:
    network = small_network()
    optimiser = muon(network)
    before = copy.deepcopy(kernels(network))
    compute_gradients(network)
    directions = {}
    for name, parameter in network.backbone.named_parameters():
        if parameter.ndim == 4:
            assert parameter.grad is not None
            directions[name] = orthogonalised(parameter.grad.flatten(1))
    optimiser.step()
    for name, kernel in kernels(network).items():
        old = before[name].flatten(1)
        moved = old - 0.1 * old.norm() * directions[name] / directions[name].norm()
        expected = moved * old.norm() / moved.norm()
        torch.testing.assert_close(kernel.flatten(1), expected, rtol=1e-4, atol=1e-6)


def test_the_size_of_the_gradient_does_not_matter_to_kernels() -> None:
    moved = []
    for factor in (1.0, 1000.0):
        network = small_network()
        optimiser = muon(network)
        compute_gradients(network, factor)
        optimiser.step()
        moved.append(kernels(network))
    for name, kernel in moved[0].items():
        torch.testing.assert_close(kernel, moved[1][name], rtol=1e-4, atol=1e-6)


def test_kernels_with_a_gradient_of_zero_and_kernels_of_zeros_do_not_move() -> None:
    network = small_network()
    optimiser = muon(network)
    first, second, *_ = [weight for weight in network.parameters() if weight.ndim == 4]
    second.detach().zero_()
    before = first.detach().clone()
    compute_gradients(network)
    assert first.grad is not None
    first.grad.zero_()
    optimiser.step()
    assert torch.equal(first, before)
    assert torch.equal(second, torch.zeros_like(second))


def test_sgd_moves_everything_but_kernels() -> None:
    network = small_network()
    optimiser = muon(network)
    plain_network = small_network()
    plain_optimiser = sgd(plain_network)
    parameters = dict(network.named_parameters())
    for _ in range(2):
        compute_gradients(network)
        for name, parameter in plain_network.named_parameters():
            gradient = parameters[name].grad
            assert gradient is not None
            parameter.grad = gradient.clone()
        optimiser.step()
        plain_optimiser.step()
    moved_alike = set()
    for name, parameter in plain_network.named_parameters():
        if torch.equal(parameter, parameters[name]):
            moved_alike.add(name)
    assert moved_alike == parameters.keys() - {f"backbone.{name}" for name in kernels(network)}


def test_the_rate_of_kernels_follows_the_schedule() -> None:
    network = small_network()
    optimiser = muon(network)
    for group in optimiser.param_groups:
        group["lr"] = 0.0
    before = copy.deepcopy(kernels(network))
    compute_gradients(network)
    optimiser.step()
    for name, kernel in kernels(network).items():
        torch.testing.assert_close(kernel, before[name], rtol=1e-6, atol=0)


def test_sgd_trains_a_head_alone() -> None:
    head = nn.Linear(4, 3)
    plain_head = copy.deepcopy(head)
    for module, optimiser in ((head, muon(head)), (plain_head, sgd(plain_head))):
        module(torch.ones(2, 4)).square().sum().backward()
        optimiser.step()
    assert torch.equal(head.weight, plain_head.weight)
