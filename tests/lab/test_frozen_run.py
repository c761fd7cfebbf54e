"""A run on frozen features: its cache, and that it continues."""

from pathlib import Path

import numpy as np
import pytest
from support.foreign_code import ForeignCode
from support.frozen import COLOURS, counted_images, frozen_settings, squares

from bic import Dataset, Learner, RunConfig, run
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


def test_a_frozen_network_is_measured_on_the_images_of_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIC_CACHE", str(tmp_path / "cache"))
    foreign = ForeignCode(tmp_path, monkeypatch, num_features=16)
    draws = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2, 3], 12)
    pixels = draws.integers(0, 50, (48, 8, 8, 3), dtype=np.uint8)
    pixels[labels < 2] += 200  # the classes that are learned last
    images = array_set(pixels, labels)
    asked = RunConfig(
        dataset="toy",
        steps=2,
        class_order=(3, 2, 1, 0),
        method="bic",
        memory=40,
        held_out=0.3,
        recipe={
            "name": "photos",
            "backbone": foreign.backbone,
            "epochs": 1,
            "precision": "float32",
        },
    )
    dataset = Dataset(name="toy", classes=tuple("abcd"), train=images, test=images)
    run(asked, tmp_path / "run", data=dataset)
    learner = Learner.load(tmp_path / "run", trust=True)
    expected = pixels[labels >= 2].mean(axis=(0, 1, 2))
    np.testing.assert_allclose(learner.model.network.mean.numpy(), expected, rtol=1e-6)
