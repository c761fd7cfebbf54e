"""The command that repeats a run."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from bic.lab.protocol import DEFAULTS, defaults_for

# Settings that `bic run` has no flag for, besides those inside a table such as recipe.
WITHOUT_FLAG = ("class_order", "correction_penalty")
INCLUDED = "digits"  # every other named data set needs --data
# The settings of a plan that are also settings of a request.
IN_BOTH = (
    "dataset",
    "step_sizes",
    "method",
    "memory",
    "exemplars",
    "held_out",
    "order_seed",
    "class_order",
    "seed",
    "classes",
)


def command(asked: Mapping[str, Any]) -> str:
    """The command line for the settings that a user gave, as `config.json` records them.

    >>> command({"dataset": "digits", "recipe": {"name": "demo", "optimiser": {"momentum": 0.8}}})
    'bic run digits --recipe demo --set recipe.optimiser.momentum=0.8'
    """
    dataset = str(asked["dataset"])
    words = ["bic", "run", dataset]
    if dataset in DEFAULTS and dataset != INCLUDED:
        words += ["--data", "PATH"]
    for name, value in asked.items():
        if name != "dataset" and value is not None:
            words += _words(name, value)
    return shlex.join(words)


def asked_of(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a user probably gave for a plan, if no `config.json` records them.

    Of the recipe only the name, epochs, backbone and precision are included.
    """
    recipe = {"name": plan["recipe"]["name"]}
    precision = plan["recipe"]["precision"]
    if precision != "float32":
        recipe["precision"] = precision
    limit = plan["held_out_limit"]
    is_default = limit == defaults_for(str(plan["dataset"])).held_out_limit
    return {
        **{name: plan[name] for name in IN_BOTH},
        "held_out_limit": None if is_default else limit or "none",
        "recipe": recipe,
        "epochs": plan["recipe"]["epochs"],
        "backbone": plan["recipe"]["backbone"],
    }


def _words(name: str, value: Any) -> list[str]:
    """The words of the command line for one setting."""
    if name == "recipe":
        changes = {key: change for key, change in value.items() if key != "name"}
        named = ["--recipe", value["name"]] if "name" in value else []
        return named + _assignments(name, changes)
    if name == "memory":
        in_images = value.get("images")
        return ["--memory", f"{value['bytes']}B" if in_images is None else str(in_images)]
    if name in WITHOUT_FLAG or isinstance(value, Mapping):
        return _assignments(name, value)
    return _flag(name, value)


def _flag(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if value is True:
        return [flag]
    if value is False:
        return ["--no-compile"] if name == "compile" else []
    if isinstance(value, list):
        if any("," in str(item) for item in value):
            return _assignments(name, value)
        return [flag, ",".join(map(str, value))]
    return [flag, str(value)]


def _assignments(path: str, value: Any) -> list[str]:
    """`--set` for one setting, or for each setting of a table."""
    if isinstance(value, Mapping):
        return [
            word for key, inner in value.items() for word in _assignments(f"{path}.{key}", inner)
        ]
    return ["--set", f"{path}={json.dumps(value, ensure_ascii=False)}"]
