"""Torch's draws from an address, and the global state that they leave alone."""

import torch

from bic.compute.seeding import seeded


def draws(*address: int | str) -> list[float]:
    with seeded(*address):
        return torch.rand(3).tolist()


def test_same_address_gives_the_same_draws() -> None:
    assert draws(0, "weights", 1) == draws(0, "weights", 1)
    assert draws(0, "weights", 1) != draws(0, "weights", 2)
    assert draws(0, "weights", 1) != draws(0, "head", 1)
    assert draws(1, 0) != draws(10)


def test_global_state_is_restored() -> None:
    torch.manual_seed(5)
    expected = torch.rand(2).tolist()
    torch.manual_seed(5)
    draws(0, "weights", 1)
    assert torch.rand(2).tolist() == expected
