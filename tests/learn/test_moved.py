"""Settings that have moved: errors name the new path, and old records can still be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bic import RECIPES, Learning, RunConfig, UserError
from bic.learn.methods import ALL
from bic.learn.moved import MOVED, upgraded
from bic.learn.recipe import Recipe
from bic.settings import known_paths

RESULTS = Path(__file__).parents[2] / "results"


def record(method: str, name: str, **recipe: Any) -> dict[str, Any]:
    """The settings that version 0.1 recorded for CIFAR-100, with a flat recipe."""
    flat = {
        "name": name,
        "image_size": 32,
        "resize": None,
        "random_resize": None,
        "batch_size": 64,
        "learning_rate": 0.1,
        "kernel_rate": 0.05,
        "later_rate": 0.3,
        "schedule": "triangle",
        "milestones": [],
        "decay": 0.1,
        "warmup": 0.2,
        "momentum": 0.9,
        "nesterov": True,
        "weight_decay": 0.0005,
        "distillation_factor": 1.0,
        "crop_fill": "mirror",
        "flip": True,
        "balanced_epochs": 0,
        "balanced_milestones": None,
        **recipe,
    }
    return {
        "method": method,
        "exemplars": "herding",
        "correction_penalty": 0.0,
        "seed": 0,
        "memory": {"images": 2000, "bytes": None},
        "held_out": 0.1,
        "recipe": flat,
        "compile": False,
    }


BEST = record(
    "bic",
    "best",
    backbone="wide+wide",
    epochs=16,
    first_epochs=24,
    precision="bfloat16",
    later_muon=False,
    previous_share=0.5,
    gradient_noise=0.0,
    crop_padding=4,
    brightness=0.0,
    contrast=0.0,
)
# An earlier record: it has neither later_muon nor previous_share nor a precision.
EEIL = record(
    "eeil",
    "fast",
    backbone="fast",
    epochs=5,
    first_epochs=8,
    gradient_noise=0.3,
    crop_padding=2,
    brightness=63.0,
    contrast=0.8,
)


@pytest.mark.parametrize("path", MOVED)
def test_a_path_that_has_moved_names_the_new_one(path: str) -> None:
    recipe = {"name": "fast", path.removeprefix("recipe."): 0.5}
    for build in (lambda: Learning(recipe=recipe), lambda: RunConfig(dataset="x", recipe=recipe)):
        with pytest.raises(UserError) as caught:
            build()
        assert caught.value.problem == f"{path} has moved"
        assert str(caught.value).endswith(f"; use {MOVED[path]}=0.5")


def test_every_new_path_exists() -> None:
    paths = set(known_paths(Recipe, "recipe."))
    for method in ALL.values():
        paths.update(known_paths(method.settings, "method_settings."))
    assert set(MOVED.values()) <= paths
    assert not paths & MOVED.keys()


def test_a_table_with_the_name_of_a_moved_setting_is_accepted() -> None:
    learning = Learning(recipe={"name": "paper-cifar100", "schedule": {"kind": "triangle"}})
    assert learning.recipe.schedule.kind == "triangle"
    assert learning.recipe.schedule.milestones == (0.4, 0.6, 0.8)


def test_a_recorded_flat_recipe_is_the_present_recipe() -> None:
    learning = Learning(**upgraded(BEST))
    recipe = {"name": "best", "image_size": 32, "precision": "bfloat16"}
    expected = Learning(method="bic", recipe=recipe)
    assert learning == expected
    assert (
        learning.recipe.model_copy(update={"image_size": None, "precision": "quickest"})
        == (RECIPES["best"])
    )
    assert learning.method_settings.model_dump() == {"previous_share": 0.5}


def test_a_recorded_setting_of_a_method_moves_to_its_settings() -> None:
    learning = Learning(**upgraded(EEIL))
    assert learning == Learning(method="eeil", recipe={"name": "fast", "image_size": 32})
    assert learning.method_settings.model_dump()["gradient_noise"] == 0.3
    # Other methods recorded it too, and did not use it.
    assert upgraded({**EEIL, "method": "distill"}).get("method_settings") is None


def test_upgrading_settings_twice_changes_nothing() -> None:
    for recorded in (BEST, EEIL):
        assert upgraded(upgraded(recorded)) == upgraded(recorded)
    present = Learning(method="eeil", recipe="best").model_dump(mode="json")
    assert upgraded(present) == present


def test_settings_without_a_recipe_stay_as_they_are() -> None:
    assert upgraded({"dataset": "digits", "recipe": "fast"}) == {
        "dataset": "digits",
        "recipe": "fast",
    }
    assert upgraded({"dataset": "digits"}) == {"dataset": "digits"}


def test_results_with_flat_recipes_have_the_present_recipes() -> None:
    """Only what the data decides, what was measured, and the epochs may differ."""
    for file in sorted(RESULTS.glob("*/result.json")):
        config = json.loads(file.read_text())["config"]
        if "momentum" not in config["recipe"]:
            continue
        settings = upgraded(config)
        recipe = settings["recipe"]
        asked = {name: recipe[name] for name in ("name", "image_size", "epochs")}
        asked["precision"] = recipe.get("precision", "float32")
        common = {"method": config["method"], "num_classes": sum(config["step_sizes"])}
        learning = Learning(
            recipe=recipe, method_settings=settings.get("method_settings"), **common
        )
        assert learning == Learning(recipe=asked, **common), file
