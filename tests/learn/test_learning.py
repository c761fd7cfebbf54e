"""Learning: how a method, a recipe and a user's changes become one set of settings."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError
from support.training import plain_recipe

from bic import METHODS, RECIPES, Learning, MemoryBudget, Recipe, UserError
from bic.settings import known_paths

# Recipes


def test_every_recipe_is_known_by_its_name() -> None:
    for name, recipe in RECIPES.items():
        assert recipe.name == name
        assert Learning(recipe=name, method="bic").recipe == recipe


def test_on_a_frozen_backbone_the_default_is_ridge_which_keeps_held_out_images_only() -> None:
    for learning in (Learning(recipe="photos"), Learning(backbone="lite2")):
        assert learning.method == "ridge"
        assert learning.memory == MemoryBudget(images=0)
        assert not learning.recipe.augmentation.flip
    assert Learning(recipe="photos", memory=500).memory == MemoryBudget(images=500)
    for changes in ({"method": "bic"}, {"tune": True}, {"recipe": "fast"}):
        learning = Learning(**{"recipe": "photos", **changes})
        assert learning.method == changes.get("method", "bic-means")
        assert learning.memory == MemoryBudget(images=2000)


def test_a_recipe_can_be_a_name_a_mapping_or_an_object() -> None:
    by_name = Learning(recipe="demo")
    assert Learning(recipe={"name": "demo"}) == by_name
    assert Learning(recipe=RECIPES["demo"]) == by_name
    assert Learning().recipe == Learning(recipe={}).recipe == RECIPES["fast"]


def test_changes_of_a_recipe_leave_its_other_settings() -> None:
    changes = {"name": "fast", "learning_rate": 0.3, "optimiser": {"muon_rate": 0.01}}
    recipe = Learning(recipe=changes).recipe
    optimiser = RECIPES["fast"].optimiser.model_copy(update={"muon_rate": 0.01})
    expected = {"learning_rate": 0.3, "optimiser": optimiser}
    assert recipe == RECIPES["fast"].model_copy(update=expected)


def test_the_first_step_has_its_own_epochs_and_later_steps_their_own_rates() -> None:
    optimiser = {"muon_rate": 0.1, "later_rate": 0.3}
    recipe = plain_recipe(epochs=6, first_epochs=9, learning_rate=0.2, optimiser=optimiser)
    first = recipe.in_step(afresh=True)
    assert (first.epochs, first.learning_rate, first.optimiser.muon_rate) == (9, 0.2, 0.1)
    later = recipe.in_step(afresh=False)
    rates = (later.learning_rate, later.optimiser.muon_rate)
    assert later.epochs == 6
    assert rates == pytest.approx((0.06, 0.03))


def test_muon_can_be_left_to_the_first_step() -> None:
    optimiser = {"muon_rate": 0.1, "later_rate": 0.3, "later_muon": False}
    recipe = plain_recipe(epochs=6, first_epochs=9, learning_rate=0.2, optimiser=optimiser)
    first = recipe.in_step(afresh=True)
    assert first == recipe.model_copy(update={"epochs": 9})
    later = recipe.in_step(afresh=False)
    assert later.epochs == 6
    assert later.learning_rate == pytest.approx(0.06)
    assert later.optimiser.muon_rate is None


def test_a_recipe_without_such_settings_is_the_same_in_all_steps() -> None:
    recipe = plain_recipe(epochs=6)
    assert recipe.in_step(afresh=True) == recipe.in_step(afresh=False) == recipe


def test_a_slower_recipe_changes_both_rates() -> None:
    recipe = plain_recipe(learning_rate=0.2, optimiser={"muon_rate": 0.1}).slower(0.1)
    assert recipe.learning_rate == pytest.approx(0.02)
    assert recipe.optimiser.muon_rate == pytest.approx(0.01)
    assert plain_recipe().slower(0.1).optimiser.muon_rate is None


# Methods


def test_a_method_brings_its_published_schedule_to_the_recipe_of_the_paper() -> None:
    learning = Learning(method="eeil", recipe="paper-cifar100")
    assert learning.recipe.epochs == 40
    assert learning.recipe.schedule.milestones == (0.25, 0.5, 0.75)
    assert learning.recipe.optimiser.weight_decay == 1e-4
    assert learning.recipe.optimiser.momentum == 0.9  # as the recipe has it
    own = learning.method_settings.model_dump()
    assert (own["balanced_epochs"], own["balanced_milestones"]) == (30, (1 / 3, 2 / 3))


def test_the_users_changes_win_over_those_of_the_method() -> None:
    learning = Learning(
        method="eeil",
        recipe={"name": "paper-cifar100", "epochs": 7, "schedule": {"decay": 0.5}},
        method_settings={"balanced_epochs": 2},
    )
    assert learning.recipe.epochs == 7
    assert learning.recipe.schedule.decay == 0.5
    assert learning.recipe.schedule.milestones == (0.25, 0.5, 0.75)
    assert learning.method_settings.model_dump()["balanced_epochs"] == 2


def test_only_bic_has_a_previous_share() -> None:
    shares = {}
    for method in ("bic", "bic-means"):
        for recipe in ("best", "fast"):
            settings = Learning(method=method, recipe=recipe).method_settings.model_dump()
            shares[method, recipe] = settings["previous_share"]
    assert shares == {
        ("bic", "best"): 0.5,
        ("bic", "fast"): 0.0,
        ("bic-means", "best"): 0.5,
        ("bic-means", "fast"): 0.0,
    }
    assert Learning(method="distill", recipe="best").method_settings.model_dump() == {}


def test_epochs_scale_the_epochs_of_the_first_step_and_of_fine_tuning() -> None:
    recipe = Learning(recipe="fast", epochs=10).recipe
    assert (recipe.epochs, recipe.first_epochs) == (10, 16)
    learning = Learning(method="eeil", recipe="paper-cifar100", epochs=20)
    assert learning.recipe.epochs == 20
    assert learning.recipe.first_epochs is None
    assert learning.method_settings.model_dump()["balanced_epochs"] == 15
    shortest = Learning(method="eeil", recipe="paper-cifar100", epochs=1)
    assert shortest.method_settings.model_dump()["balanced_epochs"] == 1


def test_backbone_and_precision_are_short_for_those_of_the_recipe() -> None:
    learning = Learning(recipe="best", backbone="resnet32", precision="float32")
    assert learning.recipe.backbone == "resnet32"
    assert learning.precision == learning.recipe.precision == "float32"


@pytest.mark.parametrize("method", METHODS)
def test_json_gives_the_same_settings_back(method: str) -> None:
    for name in RECIPES:
        learning = Learning(method=method, recipe=name, memory="5MB", num_classes=50)
        assert Learning(**json.loads(learning.model_dump_json())) == learning


# The memory


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        (2000, {"images": 2000}),
        ("2000", {"images": 2000}),
        ("7B", {"bytes": 7}),
        ("5kb", {"bytes": 5_000}),
        (" 64 MB ", {"bytes": 64_000_000}),
        ("1GB", {"bytes": 10**9}),
    ],
)
def test_the_memory_is_a_number_of_images_or_of_bytes(
    text: int | str, budget: dict[str, int]
) -> None:
    assert Learning(memory=text).memory == MemoryBudget(**budget)


@pytest.mark.parametrize("value", ["many", "5k", "1.5MB", 2.5, -3, 0, 2**60, "", None, {}])
def test_other_memories_are_refused(value: Any) -> None:
    with pytest.raises(UserError, match=r"^memory"):
        Learning(memory=value)


def test_a_memory_of_images_and_bytes_is_refused() -> None:
    with pytest.raises(UserError, match="either a number of images or a number of bytes"):
        Learning(memory={"images": 3, "bytes": 4})


# Wrong settings


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"method": "bick"}, "unknown method 'bick'; did you mean 'bic'?"),
        ({"recipe": "fats"}, "unknown recipe 'fats'; did you mean 'fast'?"),
        (
            {"recipe": {"learning_rte": 1}},
            "unknown setting 'recipe.learning_rte'; did you mean 'recipe.learning_rate'?",
        ),
        (
            {"recipe": {"optimiser": {"momentun": 0.5}}},
            "unknown setting 'recipe.optimiser.momentun'; "
            "did you mean 'recipe.optimiser.momentum'?",
        ),
        (
            {"method_settings": {"previous_shar": 0.5}},
            "unknown setting 'method_settings.previous_shar'; "
            "did you mean 'method_settings.previous_share'?",
        ),
        (
            {"method": "finetune", "method_settings": {"previous_share": 0.5}},
            "unknown setting 'method_settings.previous_share'",
        ),
        ({"recipe": {"learning_rate": -1}}, "recipe.learning_rate must be greater than 0, got -1"),
        (
            {"recipe": {"learning_rate": float("inf")}},
            "recipe.learning_rate must be a finite number, got inf",
        ),
        ({"epochs": 0}, "recipe.epochs must be greater than or equal to 1, got 0"),
        ({"held_out": 1.0}, "held_out must be less than 1, got 1.0"),
        ({"exemplars": "best"}, "exemplars must be 'herding' or 'random', got 'best'"),
        (
            {"recipe": {"schedule": {"milestones": (0.9, 0.1)}}},
            "milestones must rise between 0 and 1, got (0.9, 0.1)",
        ),
        (
            {"method": "eeil", "method_settings": {"balanced_milestones": (0.5, 1.0)}},
            "milestones must rise between 0 and 1, got (0.5, 1.0)",
        ),
        ({"recipe": {"resize": 9}}, "image_size must be given"),
        (
            {"recipe": {"image_size": 10, "augmentation": {"random_resize": (9, 12)}}},
            "image_size must be given and at most resize and random_resize",
        ),
    ],
)
def test_wrong_settings_are_refused_in_one_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        Learning(**values)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "--" not in str(caught.value)


def test_settings_cannot_be_changed_afterwards() -> None:
    learning = Learning(recipe="demo")
    with pytest.raises(ValidationError, match="frozen"):
        learning.seed = 3  # type: ignore[misc]
    changed = learning.with_recipe(image_size=16)
    assert changed.recipe == RECIPES["demo"].model_copy(update={"image_size": 16})
    assert learning.recipe.image_size is None


def test_all_paths_of_a_recipe_are_known() -> None:
    paths = known_paths(Recipe, "recipe.")
    assert "recipe.learning_rate" in paths
    assert "recipe.augmentation.flip" in paths
    assert "recipe.augmentation" not in paths
    assert len(paths) == len(set(paths))
