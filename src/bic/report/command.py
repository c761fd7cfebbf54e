"""The command that repeats a run."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

# What `bic run` has a flag for; anything else is said by --set.
FLAGS = {"steps", "step_sizes", "method", "exemplars", "held_out", "order_seed", "seed", "epochs", "backbone", "label"}
FLAGS |= {"classes", "skip_bad", "compile"}
ELSEWHERE = ("cifar100", "imagenet100", "imagenet1000", "celeb10000")  # --data says where they lie


def command(asked: Mapping[str, Any]) -> str:
    """The command line of a request, as recorded in `config.json`.

    >>> command({"dataset": "digits", "recipe": {"name": "demo", "epochs": 3}, "memory": {"images": 99}})
    'bic run digits --recipe demo --set recipe.epochs=3 --memory 99'
    """
    words = ["bic", "run", str(asked["dataset"])]
    if asked["dataset"] in ELSEWHERE:
        words += ["--data", "PATH"]
    for name, value in asked.items():
        if name == "recipe":
            words += ["--recipe", value["name"]] if "name" in value else []
            words += [word for key, one in value.items() if key != "name" for word in _set(f"recipe.{key}", one)]
        elif name == "memory":
            words += ["--memory", str(value.get("images") or f"{value['bytes']}B")]
        elif name in FLAGS and value is not None:
            words += _flag(name, value)
        elif name != "dataset" and value is not None:
            words += _set(name, value)
    return shlex.join(words)


def asked_of(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The request that a plan without its `config.json` most likely came from.

    Changes of a recipe other than its epochs, backbone and precision are not in it.
    """
    kept = ("dataset", "step_sizes", "method", "memory", "exemplars", "held_out", "order_seed", "class_order", "seed")
    recipe = plan["recipe"]
    named = {key: recipe[key] for key in ("name", "precision") if recipe.get(key, "float32") != "float32"}
    chosen = {name: plan[name] for name in (*kept, "classes")}
    return {**chosen, "recipe": named, "epochs": recipe["epochs"], "backbone": recipe["backbone"]}


def _flag(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return [flag] if value else [f"--no-{name}"] if name == "compile" else []
    if isinstance(value, list):
        if any("," in str(each) for each in value):
            return _set(name, value)
        value = ",".join(map(str, value))
    return [flag, str(value)]


def _set(name: str, value: Any) -> list[str]:
    return ["--set", f"{name}={json.dumps(value, ensure_ascii=False)}"]
