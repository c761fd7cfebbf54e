"""Small problems for frozen backbones: bright squares of one colour, on lite0 at 32 pixels."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from bic import Learning
from bic.data.preprocessing import Preprocessing
from bic.model.network import Network

SIZE = 32
COLOURS = {"red": 0, "green": 1, "blue": 2}
PREPROCESSING = Preprocessing(channels=3, size=SIZE, bicubic=True)

Array = npt.NDArray[Any]


def squares(names: str, count: int, *, seed: int = 0) -> tuple[Array, list[str]]:
    """`count` noisy images [n, 16, 16, 3] of each named colour, and the name of each."""
    draws = np.random.default_rng(seed)
    images = []
    labels = []
    for name in names.split():
        pixels = draws.integers(0, 90, (count, 16, 16, 3), dtype=np.uint8)
        pixels[:, 4:12, 2:9, COLOURS[name]] += 160
        images.append(pixels)
        labels += [name] * count
    return np.concatenate(images), labels


def frozen_learning(**settings: Any) -> Learning:
    recipe = {
        "name": "photos",
        "backbone": "lite0",
        "image_size": SIZE,
        "epochs": 3,
        "precision": "float32",
    }
    return Learning(
        **{"method": "bic", "recipe": recipe, "memory": 30, "held_out": 0.3, **settings}
    )


def frozen_settings(**settings: Any) -> dict[str, Any]:
    """The settings of a small model folder."""
    learning = frozen_learning()
    recipe = {"name": "photos", "precision": "float32", "epochs": 3}
    chosen = {
        "method": learning.method,
        "recipe": recipe,
        "backbone": "lite0",
        "image_size": SIZE,
        "memory": 30,
        "held_out": 0.3,
    }
    return {**chosen, **settings}


def frozen_network(size: int = SIZE) -> Network:
    network = Network("lite0", channels=3, image_size=size)
    network.prepare(torch.zeros(1, 3, size, size))
    return network.freeze()


@contextmanager
def counted_images(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The number of images in each forward pass of a backbone inside this context."""
    counts: list[int] = []
    original = Network.normalised

    def counting(network: Network, images: torch.Tensor) -> torch.Tensor:
        counts.append(len(images))
        return original(network, images)

    with monkeypatch.context() as patch:
        patch.setattr(Network, "normalised", counting)
        yield counts
