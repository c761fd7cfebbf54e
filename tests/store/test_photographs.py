"""Photographs are learned on pretrained features, unless the settings say how to learn them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bic import Progress, UserError, open_model
from bic.data.new_images import NewImages, NewImagesReader
from bic.store import photographs
from bic.store.lesson_images import source_of
from bic.store.photographs import possible_learning, suited_to_photographs


class Said(Progress):
    """A progress that keeps what was said."""

    def __init__(self) -> None:
        super().__init__("quiet")
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def write_images(
    folder: Path, *, side: int, mode: str = "RGB", per_class: int = 4, classes: str = "ab"
) -> Path:
    """Images of two classes: smooth colour gradients with a class of their own."""
    draws = np.random.default_rng(side)
    for place, name in enumerate(classes):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(per_class):
            ramp = np.linspace(0, 255, side, dtype=np.float64)
            pixels = np.stack([np.tile(ramp, (side, 1))] * 3, axis=2)
            pixels[..., place % 3] = draws.integers(0, 255, (side, side))
            image = Image.fromarray(pixels.astype(np.uint8)).convert(mode)
            image.save(folder / name / f"{number}.png")
    return folder


def suited(folder: Path, **asked: Any) -> tuple[dict[str, Any], list[str]]:
    progress = Said()
    reader = NewImagesReader(keep_files=True, progress=progress)
    return suited_to_photographs(asked, source_of(folder, None), reader, progress), progress.lines


def test_large_images_in_colour_are_photographs(tmp_path: Path) -> None:
    settings, lines = suited(write_images(tmp_path / "large", side=96), memory=50)
    assert settings == {"memory": 50, "recipe": "photos"}
    assert "lite2" in lines[0]


@pytest.mark.parametrize(("side", "mode"), [(95, "RGB"), (32, "RGB"), (120, "L")])
def test_small_and_grey_images_are_not(tmp_path: Path, side: int, mode: str) -> None:
    settings, lines = suited(write_images(tmp_path / "small", side=side, mode=mode))
    assert settings == {}
    assert lines == []


@pytest.mark.parametrize(
    "asked", [{"recipe": "fast"}, {"backbone": "wide"}, {"epochs": 3}, {"tune": True}]
)
def test_settings_of_training_are_left_alone(tmp_path: Path, asked: dict[str, Any]) -> None:
    def never(reader: NewImagesReader) -> NewImages:
        raise AssertionError("the images need not be opened")

    reader = NewImagesReader(keep_files=True, progress=Said())
    assert suited_to_photographs(asked, never, reader, Said()) == asked


def test_without_the_weights_a_network_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(photographs, "is_installed", lambda backbone: False)
    settings, lines = suited(write_images(tmp_path / "large", side=100))
    assert settings == {}
    assert "bic[pretrained] is not installed" in lines[0]


def test_arrays_can_be_photographs(tmp_path: Path) -> None:
    pixels = np.zeros((4, 100, 100, 3), dtype=np.uint8)
    reader = NewImagesReader(keep_files=True, progress=Said())
    source = source_of(pixels, ["a", "a", "b", "b"])
    assert suited_to_photographs({}, source, reader, Said()) == {"recipe": "photos"}


@pytest.mark.parametrize(("side", "expected"), [(96, {"recipe": "photos"}), (95, {})])
def test_lists_of_paths_can_be_photographs(
    tmp_path: Path, side: int, expected: dict[str, Any]
) -> None:
    folder = write_images(tmp_path / "photos", side=side)
    paths = sorted(str(path) for path in folder.glob("*/*.png"))
    reader = NewImagesReader(keep_files=True, progress=Said())
    source = source_of(paths, ["a"] * 4 + ["b"] * 4)
    assert suited_to_photographs({}, source, reader, Said()) == expected


def test_pillow_images_of_several_sizes_can_be_photographs() -> None:
    images = [Image.new("RGB", (100 + place, 120)) for place in range(4)]
    reader = NewImagesReader(keep_files=True, progress=Said())
    source = source_of(images, ["a", "a", "b", "b"])
    assert suited_to_photographs({}, source, reader, Said()) == {"recipe": "photos"}


@pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")
def test_a_model_of_photographs_learns_and_predicts(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "photos", side=96, per_class=6)
    model = open_model(tmp_path / "m", random_features=20)
    model.learn(folder)
    assert model.model.backbone == "lite2"
    assert model.model.network.frozen
    assert [summary.kept for summary in model.classes()] == [1, 1]  # held out; no others
    paths = sorted(str(path) for path in folder.glob("*/*.png"))
    assert model.predict(paths) == ["a"] * 6 + ["b"] * 6
    more = write_images(tmp_path / "more", side=97, classes="cd")
    model.learn(more)
    paths = sorted(str(path) for path in more.glob("*/*.png"))
    assert set(model.predict(paths)) >= {"c", "d"}


def test_a_model_of_photographs_need_not_keep_images(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "photos", side=96, per_class=4)
    model = open_model(tmp_path / "m", memory=0, held_out=0.0)
    model.learn(folder)
    assert [summary.kept for summary in model.classes()] == [0, 0]


def test_settings_for_photographs_are_refused_for_other_images(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "small", side=32, per_class=4)
    with pytest.raises(UserError, match="held_out must be more than 0 for bic-means, got 0"):
        open_model(tmp_path / "m", held_out=0.0).learn(folder)
    asked = {"held_out": 0.0, "backbone": "fast"}
    with pytest.raises(UserError, match="held_out must be more than 0"):
        possible_learning(asked)
    assert possible_learning({"held_out": 0.0}).method == "ridge"
