"""Requests: what they accept, what they refuse, and how they are resolved and recorded."""

from pathlib import Path
from typing import Any

import pytest

from bic import RECIPES, MemoryBudget, RunConfig, UserError
from bic.lab.plan import Plan, learning_for, load_settings
from bic.lab.protocol import DEFAULTS, Protocol, defaults_for


def test_short_forms_are_understood(tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("cat\n dog \n\n")
    config = RunConfig(
        dataset="digits",
        step_sizes="5,3,2",
        class_order="1,0",
        recipe="fast",
        memory="64MB",
        classes=str(names),
    )
    assert config.step_sizes == (5, 3, 2)
    assert config.class_order == (1, 0)
    assert config.recipe == {"name": "fast"}
    assert config.memory == MemoryBudget(bytes=64_000_000)
    assert config.classes == ("cat", "dog")
    assert RunConfig(dataset="digits", classes="owl, fox").classes == ("owl", "fox")


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"steps": 5, "step_sizes": (5, 5)}, "cannot both be given"),
        ({"steps": 0}, "steps must be greater than or equal to 1, got 0"),
        ({"classes": ()}, "classes must name at least one class"),
        ({"classes": "a,b,a"}, "classes must name each class once, got 'a' more than once"),
        ({"classes": "none.txt"}, "none.txt does not exist"),
        ({"memory": "5 pounds"}, r"memory must be .*\(2000 or 64MB\), got '5 pounds'"),
        ({"memory": {}}, "memory must be either a number of images or a number of bytes"),
        ({"held_out": float("nan")}, "held_out must be"),
        ({"exemplars": "best"}, "exemplars must be 'herding' or 'random', got 'best'"),
        ({"order_seed": 2**32}, "order_seed must be less than 4294967296"),
        ({"epoch": 1}, "unknown setting 'epoch'; did you mean 'epochs'"),
        ({"recipe": {"learning_rte": 1}}, "did you mean 'recipe.learning_rate'"),
    ],
)
def test_request_that_cannot_work_is_refused(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        RunConfig(dataset="digits", **values)


def test_setting_that_has_moved_is_refused_with_its_new_path() -> None:
    with pytest.raises(UserError) as caught:
        RunConfig(dataset="digits", recipe={"kernel_rate": 0.1})
    assert caught.value.problem == "recipe.kernel_rate has moved"
    assert caught.value.remedy == "use {recipe.optimiser.muon_rate=0.1}"
    with pytest.raises(UserError, match=r"use method_settings\.previous_share=0\.5"):
        RunConfig(dataset="digits", recipe={"previous_share": 0.5})
    with pytest.raises(UserError, match=r'use recipe\.schedule\.kind="triangle"'):
        RunConfig(dataset="digits", recipe={"schedule": "triangle"})
    RunConfig(dataset="digits", recipe={"schedule": {"kind": "triangle"}})


def test_later_sources_win(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('dataset = "x"\nseed = 1\nmemory = 40\nrecipe = "demo"\nepochs = 3\n')
    assignments = ["seed=2", "recipe.learning_rate=0.3", "recipe.optimiser.momentum = 0.5"]
    flags = {"dataset": "digits", "epochs": 1, "backbone": None}
    config = load_settings(file, assignments, flags)
    assert config == RunConfig(
        dataset="digits",
        seed=2,
        memory=40,
        epochs=1,
        recipe={"name": "demo", "learning_rate": 0.3, "optimiser": {"momentum": 0.5}},
    )
    assert "backbone" not in config.model_fields_set


@pytest.mark.parametrize(
    ("assignment", "name", "value"),
    [
        ("seed=3", "seed", 3),
        ("dataset=a=b", "dataset", "a=b"),
        ("step_sizes=[5, 5]", "step_sizes", (5, 5)),
        ("step_sizes=5,5", "step_sizes", (5, 5)),
        ("skip_bad=true", "skip_bad", True),
        ("recipe=fast", "recipe", {"name": "fast"}),
        ('backbone="small"', "backbone", "small"),
    ],
)
def test_assignments_are_toml_or_plain_text(assignment: str, name: str, value: Any) -> None:
    config = load_settings(None, ["dataset=digits", assignment], {})
    assert getattr(config, name) == value


@pytest.mark.parametrize(
    ("assignments", "problem"),
    [
        (["nonsense"], "a setting must be given as NAME=VALUE, got 'nonsense'"),
        (["=1"], "a setting must be given as NAME=VALUE, got '=1'"),
        (["memory=100", "memory.images=100"], "memory must be a table of settings to hold"),
    ],
)
def test_assignments_that_cannot_be_understood_are_refused(
    assignments: list[str], problem: str
) -> None:
    with pytest.raises(UserError, match=problem):
        load_settings(None, assignments, {"dataset": "digits"})


def test_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*missing\.toml as TOML") as caught:
        load_settings(tmp_path / "missing.toml", [], {})
    assert caught.value.remedy == "check {config}"
    (tmp_path / "bad.toml").write_text("a = ")
    with pytest.raises(UserError, match=r"cannot read .*bad\.toml as TOML"):
        load_settings(tmp_path / "bad.toml", [], {})


@pytest.mark.parametrize("dataset", DEFAULTS)
def test_defaults_of_the_paper_are_used(dataset: str) -> None:
    learning = learning_for(RunConfig(dataset=dataset))
    assert learning.memory.images == DEFAULTS[dataset].memory
    assert learning.held_out == DEFAULTS[dataset].held_out
    assert learning.recipe.name == ("demo" if dataset == "digits" else "fast")


def test_defaults_are_those_of_the_paper() -> None:
    assert DEFAULTS["cifar100"] == (5, 2000, 0.1, None, "bic")
    assert DEFAULTS["imagenet100"] == (10, 2000, 0.1, None, "bic")
    assert DEFAULTS["imagenet1000"] == (10, 20_000, 0.1, None, "bic")
    assert DEFAULTS["celeb10000"] == (10, 50_000, 0.2, None, "bic")


def test_data_of_ones_own_has_a_limit_on_held_out_images() -> None:
    assert defaults_for("photos") == (5, 2000, 0.1, 1000, "bic-means")
    assert learning_for(RunConfig(dataset="photos")).held_out_limit == 1000
    assert learning_for(RunConfig(dataset="cifar100")).held_out_limit is None


def test_the_limit_on_held_out_images_can_be_set_or_lifted() -> None:
    for given, limit in ((30, 30), ("30", 30), ("none", None)):
        config = RunConfig(dataset="photos", held_out_limit=given)
        assert learning_for(config).held_out_limit == limit


@pytest.mark.parametrize("limit", [0, -1, 1.5, "few", "", True])
def test_other_limits_on_held_out_images_are_refused(limit: object) -> None:
    with pytest.raises(UserError, match="held_out_limit must be 1 or more, or none"):
        RunConfig(dataset="photos", held_out_limit=limit)


def test_a_run_that_recorded_no_limit_had_none() -> None:
    plan = Plan(
        Protocol(dataset="photos", fingerprint="", step_sizes=(2,)),
        learning_for(RunConfig(dataset="photos")),
    )
    recorded = plan.settings()
    assert Plan.of(recorded).learning.held_out_limit == 1000
    del recorded["held_out_limit"]
    assert Plan.of(recorded).learning.held_out_limit is None


def test_request_overrides_defaults() -> None:
    config = RunConfig(dataset="cifar100", memory=10, held_out=0.5, recipe="best", epochs=2)
    learning = learning_for(config, num_classes=100)
    assert learning.memory.images == 10
    assert learning.held_out == 0.5
    assert learning.recipe.epochs == 2
    assert learning.recipe.first_epochs == 3  # 24 of 16, scaled
    assert learning.recipe.backbone == RECIPES["best"].backbone
    assert learning.num_classes == 100


@pytest.mark.parametrize("method", ["bic", "eeil", "icarl", "joint"])
def test_plan_is_restored_from_its_settings(method: str) -> None:
    learning = learning_for(RunConfig(dataset="cifar100", method=method), num_classes=100)
    protocol = Protocol(dataset="cifar100", fingerprint="f" * 32, step_sizes=(50, 50))
    plan = Plan(protocol, learning)
    assert Plan.of(plan.settings()) == plan
    assert ("method_settings" in plan.settings()) == (method in ("bic", "eeil"))
