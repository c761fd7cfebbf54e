"""The settings of recorded runs: the same for runs of earlier versions as for new ones."""

from pathlib import Path
from typing import Any

import pytest
from support.recorded_runs import plan_settings

from bic.errors import UserError
from bic.learn.moved import MOVED, upgraded
from bic.learn.recipe import Recipe
from bic.learn.recipes import RECIPES
from bic.report.plans import differing, flat, plan_of
from bic.store.results import read_result

# A run of bic with the fast recipe as version 0.1 recorded it.
RECORDED_BY_0_1 = {
    "dataset": "cifar100",
    "label": None,
    "classes": None,
    "method": "bic",
    "exemplars": "herding",
    "correction_penalty": 0.0,
    "seed": 0,
    "class_order": None,
    "order_seed": 1993,
    "fingerprint": "f" * 32,
    "step_sizes": [20, 20, 20, 20, 20],
    "memory": {"images": 2000, "bytes": None},
    "held_out": 0.1,
    "recipe": {
        "name": "fast",
        "backbone": "fast",
        "image_size": 32,
        "resize": None,
        "random_resize": None,
        "epochs": 5,
        "first_epochs": 8,
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
        "gradient_noise": 0.0,
        "balanced_epochs": 0,
        "balanced_milestones": None,
        "crop_padding": 2,
        "crop_fill": "mirror",
        "flip": True,
        "brightness": 0.0,
        "contrast": 0.0,
    },
    "compile": False,
}


def fast(**changes: Any) -> Recipe:
    return RECIPES["fast"].model_copy(update={"image_size": 32, **changes})


def test_a_run_of_an_earlier_version_has_the_plan_of_a_new_one() -> None:
    new = plan_settings([20] * 5, dataset="cifar100", recipe=fast(), memory=2000)
    new["held_out_limit"] = None  # there was no limit
    assert plan_of(upgraded(RECORDED_BY_0_1)) == plan_of(new)


def test_the_number_of_classes_is_not_in_a_plan() -> None:
    assert "num_classes" not in plan_of({**plan_settings([2]), "num_classes": 2})


def test_a_setting_that_was_not_recorded_gets_its_default_and_not_the_recipes_value() -> None:
    recipe = {"name": "best", "backbone": "wide", "epochs": 16, "learning_rate": 0.1}
    plan = plan_of({**plan_settings([2]), "recipe": recipe})
    assert RECIPES["best"].optimiser.later_muon is False
    assert plan["recipe"]["optimiser"]["later_muon"] is True
    assert plan["method_settings"] == {"previous_share": 0.0}


def test_settings_of_an_unknown_method_are_kept() -> None:
    recorded = {**plan_settings([2]), "method": "plug-in", "method_settings": {"strength": 3}}
    plan = plan_of(recorded)
    assert plan["method"] == "plug-in"
    assert plan["method_settings"] == {"strength": 3}
    assert plan["recipe"]["epochs"] == 6


@pytest.mark.parametrize("changes", [{"recipe": {}}, {"step_sizes": "two"}, {"held_out": 2}])
def test_damaged_settings_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        plan_of({**plan_settings([2]), **changes})


def test_every_moved_setting_is_in_a_flat_plan() -> None:
    plans = [flat(plan_of(plan_settings([2], method=method))) for method in ("bic", "eeil")]
    assert set(MOVED.values()) <= plans[0].keys() | plans[1].keys()


def test_only_settings_that_differ_are_named() -> None:
    first = flat(plan_settings([2], memory=200))
    second = flat(plan_settings([2], memory="64KB", seed=1))
    assert differing([first, second]) == ["seed", "memory"]
    assert differing([first, second], but=["seed"]) == ["memory"]


def test_a_setting_of_one_method_makes_no_difference_to_another_method() -> None:
    bic = flat(plan_of(plan_settings([2])))
    distill = flat(plan_of(plan_settings([2], method="distill")))
    with_share = flat(plan_of(plan_settings([2], method_settings={"previous_share": 0.5})))
    assert differing([bic, distill]) == ["method"]
    assert differing([bic, with_share]) == ["method_settings.previous_share"]


def test_all_recorded_results_have_a_plan(results_folder: Path) -> None:
    folders = [file.parent for file in results_folder.glob("*/result.json")]
    assert folders
    for folder in folders:
        config = read_result(folder).config
        plan = plan_of(config)
        assert plan["step_sizes"] == config["step_sizes"]
        assert plan["recipe"]["name"] == config["recipe"]["name"]
