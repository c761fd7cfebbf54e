"""Randomness with an address: every draw names its seed, purpose, step, epoch and batch."""

import hashlib

import numpy as np

Address = tuple[int | str, ...]


def generator(*address: int | str) -> np.random.Generator:
    """The generator at an address. The same address gives the same draws on any machine."""
    return np.random.Generator(np.random.PCG64(address_number(address)))


def address_number(address: Address) -> int:
    """The 128-bit hash of an address."""
    digest = hashlib.blake2b(repr(address).encode(), digest_size=16).digest()
    return int.from_bytes(digest, "little")
