"""The settings of a recorded run: filled in, flattened, compared, and put into words."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from bic.lab.plan import Plan
from bic.lab.protocol import Protocol
from bic.learn.learning import Learning
from bic.learn.methods import ALL, METHODS
from bic.learn.recipe import Recipe
from bic.settings import checked

Settings = dict[str, Any]


def plan_of(config: Mapping[str, Any]) -> Settings:
    """All settings of a run from its recorded `config`, with defaults for what it does not have.

    Runs of earlier and of present versions with the same settings give the same plan. A recipe that
    lacks a setting was recorded before the setting existed, so it gets the setting's default and
    not the value that the recipe of this name has today. Raises UserError for damaged settings.
    """
    method = str(config.get("method", "bic"))
    is_known = method in METHODS or method in ALL
    names = Learning.model_fields.keys() - {"recipe", "num_classes"}
    if not is_known:  # a plug-in's method, which is not loaded here
        names -= {"method", "method_settings"}
    learning = {name: config[name] for name in names if name in config}
    learning.setdefault("held_out_limit", None)  # recorded before there was a limit
    learning["recipe"] = checked(Recipe, config.get("recipe", {}), under="recipe.")
    protocol = {name: config[name] for name in Protocol.model_fields if name in config}
    plan = Plan(checked(Protocol, protocol), checked(Learning, learning)).settings()
    filled_in = plan if is_known else config
    own_settings = filled_in.get("method_settings", {})
    return {**plan, "method": method, "method_settings": own_settings}


def flat(settings: Settings, prefix: str = "") -> Settings:
    """Nested settings as one flat mapping; the memory and the steps are put into words.

    >>> flat({"memory": {"images": 2000, "bytes": None}, "recipe": {"epochs": 6}})
    {'memory': '2,000 images', 'recipe.epochs': 6}
    """
    flattened: Settings = {}
    for name, value in settings.items():
        if name == "memory":
            flattened[name] = memory_in_words(value)
        elif name == "step_sizes":
            flattened[name] = sizes_in_words(value)
        elif isinstance(value, dict):
            flattened |= flat(value, f"{prefix}{name}.")
        else:
            flattened[prefix + name] = value
    return flattened


def memory_in_words(memory: Mapping[str, Any]) -> str:
    """
    >>> memory_in_words({"images": None, "bytes": 64_000})
    '64,000 bytes'
    """
    if memory["bytes"] is None:
        return f"{memory['images']:,} images"
    return f"{memory['bytes']:,} bytes"


def sizes_in_words(sizes: Sequence[int]) -> str:
    """
    >>> sizes_in_words([20] * 5), sizes_in_words([50, 10, 10]), sizes_in_words([4])
    ('5 × 20', '50, 2 × 10', '4')
    """
    counted = [(size, len(list(same))) for size, same in groupby(sizes)]
    return ", ".join(f"{count} × {size}" if count > 1 else f"{size}" for size, count in counted)


def name_in_words(path: str) -> str:
    """
    >>> name_in_words("recipe.optimiser.weight_decay"), name_in_words("recipe.schedule.kind")
    ('weight decay', 'schedule')
    >>> name_in_words("recipe.name"), name_in_words("held_out")
    ('recipe', 'held out')
    """
    path = path.removesuffix(".name").removesuffix(".kind")
    return path.rpartition(".")[2].replace("_", " ")


def differing(plans: Sequence[Settings], *, but: Iterable[str] = ()) -> list[str]:
    """The names of the settings in which flat plans differ, except for the names in `but`.

    A setting that only some methods have is compared among the plans that have it.
    """
    ignored = set(but)
    values: dict[str, list[Any]] = {}
    for plan in plans:
        for name, value in plan.items():
            if name not in ignored:
                values.setdefault(name, []).append(value)
    return [name for name, given in values.items() if any(value != given[0] for value in given)]
