"""Randomness with an address: every draw names its seed, purpose, step, epoch and batch."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

Address = tuple[int | str, ...]


def generator(*address: int | str) -> np.random.Generator:
    """The generator at an address; the same address gives the same draws, on any machine."""
    return np.random.Generator(np.random.PCG64(_number(address)))


@contextmanager
def seeded(*address: int | str) -> Iterator[None]:
    """Within, torch's own initialisers draw from the address; the global state is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_number(address) % 2**63)
        yield


def _number(address: Address) -> int:
    return int.from_bytes(hashlib.blake2b(repr(address).encode(), digest_size=16).digest(), "little")
