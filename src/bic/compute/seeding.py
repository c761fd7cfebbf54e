"""Seeds for torch's own draws, such as initial weights and dropout."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from bic.randomness import address_number


@contextmanager
def seeded(*address: int | str) -> Iterator[None]:
    """In this context torch draws from the address. The global state is restored afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(address_number(address) % 2**63)
        yield
