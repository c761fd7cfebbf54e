"""A run on frozen features: its cache, and that it continues."""

from pathlib import Path

import numpy as np
import pytest
from support.frozen import COLOURS, counted_images, frozen_settings, squares

from bic import Dataset, RunConfig, run
from bic.data.images import array_set

pytestmark = pytest.mark.filterwarnings("ignore::bic.errors.HeldOutWarning")


def colours() -> Dataset:
    """Twelve training and four test images of three colours."""
    parts = []
    for count, seed in ((12, 0), (4, 1)):
        images, names = squares("red green blue", count, seed=seed)
        labels = np.array([COLOURS[name] for name in names])
        parts.append(array_set(images, labels))
    return Dataset(name="colours", classes=tuple(COLOURS), train=parts[0], test=parts[1])


def config(method: str) -> RunConfig:
    settings = frozen_settings(method=method)
    image_size = settings.pop("image_size")
    settings["recipe"] = {**settings["recipe"], "image_size": image_size}
    return RunConfig(dataset="colours", steps=3, **settings)


def test_a_second_run_finds_the_features_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIC_CACHE", str(tmp_path / "cache"))
    with counted_images(monkeypatch) as counts:
        first = run(config("bic"), tmp_path / "first", data=colours())
        assert sum(counts) == 2 * 36 + 12
        assert first.steps[-1].seen == 3
        again = run(config("bic"), tmp_path / "again", data=colours())
        assert sum(counts) == 2 * 36 + 12
        run(config("icarl"), tmp_path / "icarl", data=colours())
        assert sum(counts) == 2 * 36 + 12
    assert [step.top1 for step in again.steps] == [step.top1 for step in first.steps]
    assert first.steps[0].top1 > 60
