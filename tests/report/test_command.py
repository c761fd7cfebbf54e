"""The command that repeats a run, parsed by the command line itself."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from support.recorded_runs import plan_settings, write_run

from bic.cli import app
from bic.lab.plan import RunConfig
from bic.report.command import WITHOUT_FLAG, asked_of, command
from bic.report.runs import load


def request_of(words: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The settings that the command line would run."""
    requests: list[RunConfig] = []

    class StoppedError(Exception):
        pass

    def run(config: RunConfig, *_: object, **__: object) -> None:
        requests.append(config)
        raise StoppedError

    monkeypatch.setattr("bic.lab.run.run", run)
    with pytest.raises(StoppedError):
        app(shlex.split(words)[1:], exit_on_error=False, print_error=False)
    return requests[0].model_dump(mode="json", exclude_unset=True)


def test_the_command_gives_the_same_request_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {
        "dataset": "photos/of mine",
        "method": "bic",
        "step_sizes": [3, 2],
        "recipe": {
            "name": "fast",
            "learning_rate": 0.05,
            "optimiser": {"momentum": 0.8},
            "schedule": {"kind": "milestones", "milestones": [0.5]},
        },
        "method_settings": {"previous_share": 0.5},
        "memory": {"bytes": 64_000_000},
        "correction_penalty": 0.1,
        "classes": ["a", "b,c"],
        "class_order": [1, 0],
        "held_out": 0.2,
        "skip_bad": True,
        "compile": False,
    }
    request = request_of(command(asked), monkeypatch)
    assert request == RunConfig(**asked).model_dump(mode="json", exclude_unset=True)


def test_the_command_of_a_run_of_an_earlier_version_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(tmp_path / "a", [2])
    asked = {"dataset": "digits", "recipe": {"name": "fast", "momentum": 0.8, "kernel_rate": 0.1}}
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "asked": asked}))
    words = command(load(folder).asked or {})
    assert words == (
        "bic run digits --recipe fast --set recipe.optimiser.momentum=0.8 "
        "--set recipe.optimiser.muon_rate=0.1"
    )
    optimiser = {"momentum": 0.8, "muon_rate": 0.1}
    assert request_of(words, monkeypatch) == {
        "dataset": "digits",
        "recipe": {"name": "fast", "optimiser": optimiser},
    }


def test_a_result_without_its_folder_gets_a_command_from_its_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = plan_settings([2, 2], dataset="cifar100", held_out_limit=None)
    words = command(asked_of(plan))
    assert words == (
        "bic run cifar100 --data PATH --step-sizes 2,2 --method bic --memory 200 "
        "--exemplars herding --held-out 0.1 --order-seed 1993 --seed 0 --recipe fast --epochs 6 "
        "--backbone fast"
    )
    assert request_of(words, monkeypatch)["epochs"] == 6


def test_a_limit_on_held_out_images_that_is_not_the_default_is_in_the_command() -> None:
    for dataset, limit, words in (
        ("cifar100", 50, "--held-out-limit 50"),
        ("photos", 50, "--held-out-limit 50"),
        ("photos", None, "--held-out-limit none"),
    ):
        plan = plan_settings([2, 2], dataset=dataset, held_out_limit=limit)
        assert words in command(asked_of(plan))
    plan = plan_settings([2, 2], dataset="photos", held_out_limit=1000)
    assert "--held-out-limit" not in command(asked_of(plan))


def test_the_precision_is_in_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_settings([2, 2], dataset="cifar100")
    plan["recipe"]["precision"] = "bfloat16"  # another machine may choose another one
    words = command(asked_of(plan))
    assert "--recipe fast --set 'recipe.precision=\"bfloat16\"'" in words
    assert request_of(words, monkeypatch)["recipe"]["precision"] == "bfloat16"


def test_every_setting_of_a_request_has_a_flag_or_is_known_to_have_none() -> None:
    flags = {
        name for argument in app["run"].assemble_argument_collection() for name in argument.names
    }
    in_tables = {"recipe", "method_settings"}
    for name in RunConfig.model_fields.keys() - in_tables:
        has_flag = f"--{name.replace('_', '-')}" in flags
        assert has_flag == (name not in WITHOUT_FLAG), name
