"""A new network is measured on a number of images that fits into memory."""

from typing import Any

import numpy as np
import pytest
import torch

from bic import ImageSet
from bic.data.preprocessing import Preprocessing
from bic.learn.measure import prepare
from bic.model.network import Network


@pytest.mark.parametrize(("side", "count"), [(8, 5000), (32, 5000), (64, 1250), (224, 102)])
def test_fewer_images_are_measured_if_they_are_large(
    monkeypatch: pytest.MonkeyPatch, side: int, count: int
) -> None:
    asked: list[int] = []

    def take_readable(images: ImageSet, indices: Any, **_: Any) -> Any:
        asked.append(len(indices))
        return torch.zeros(2, 3, side, side, dtype=torch.uint8), indices

    monkeypatch.setattr(ImageSet, "take_readable", take_readable)
    images = ImageSet(
        labels=np.zeros(6000, dtype=np.int64),
        preprocessing=Preprocessing(channels=3, size=side),
        files=[b""] * 6000,
    )
    network = Network("small", channels=3, image_size=side)
    prepare(network, images, np.random.default_rng(0))
    assert asked == [count]
