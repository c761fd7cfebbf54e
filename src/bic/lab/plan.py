"""RunConfig, what a user asks for, and Plan, the protocol and the learning that it resolves to."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from bic.errors import UserError
from bic.foreign_files import read_regular_file
from bic.lab.protocol import Defaults, Protocol, defaults_for
from bic.learn.learning import Learning, MemoryBudget, default_recipe
from bic.learn.moved import refuse_moved
from bic.learn.recipe import MOST_EPOCHS, Recipe
from bic.settings import Settings, assigned, checked, known_paths, one_sentence

MAX_TEXT_BYTES = 2**24  # of a file of settings or class names


class RunConfig(Settings):
    """What a user asks for. Settings that are left out are chosen to suit the data."""

    dataset: str
    label: str | None = None  # the label column of a Parquet file
    classes: tuple[str, ...] | None = None  # learn only these; None: all
    steps: int | None = Field(None, ge=1)
    step_sizes: tuple[int, ...] | None = None
    class_order: tuple[int, ...] | None = None  # explicit, instead of order_seed's shuffle
    order_seed: int = Field(1993, ge=0, lt=2**32)
    method: str | None = None
    recipe: dict[str, Any] = Field({})  # its name, and the settings that differ
    method_settings: dict[str, Any] = Field({})  # settings that only this method has
    backbone: str | None = None
    tune: bool | None = None  # train a pretrained backbone too
    epochs: int | None = Field(None, ge=1, le=MOST_EPOCHS)
    memory: MemoryBudget | None = None
    held_out: float | None = Field(None, ge=0, lt=1)
    # Most held-out images of old classes, and of new ones. "none": no limit.
    held_out_limit: int | Literal["none"] | None = None
    exemplars: Literal["herding", "random"] = "herding"
    # Weight of β²/2 in the fit of the correction. The authors' code has 0.1, the paper 0.
    correction_penalty: float = Field(0.0, ge=0, le=1e9)
    seed: int = Field(0, ge=0)
    compile: bool | None = None  # None: only if it is measured to save time
    skip_bad: bool = False

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise one_sentence(error, type(self)) from error

    @field_validator("step_sizes", "class_order", "recipe", mode="before")
    @classmethod
    def _short_form(cls, value: Any, field: ValidationInfo) -> Any:
        if not isinstance(value, str):
            return value
        return {"name": value} if field.field_name == "recipe" else value.split(",")

    @field_validator("held_out_limit", mode="before")
    @classmethod
    def _read_limit(cls, value: Any) -> Any:
        if value is None or value == "none":
            return value
        if not isinstance(value, int | str) or not re.fullmatch(r"[1-9]\d{0,11}", str(value)):
            raise ValueError(f"must be 1 or more, or none for no limit, got {value!r}")
        return int(value)

    @field_validator("classes", mode="before")
    @classmethod
    def _read_classes(cls, value: Any) -> Any:
        """Accept names separated by commas, and the path of a file with one name per line."""
        if isinstance(value, str):
            value = _class_names(value)
        if isinstance(value, list | tuple):
            if not value:
                raise ValueError("must name at least one class")
            twice = [name for name, count in Counter(value).items() if count > 1]
            if twice:
                raise ValueError(f"must name each class once, got {twice[0]!r} more than once")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.steps is not None and self.step_sizes is not None:
            raise ValueError("steps and step_sizes cannot both be given")
        refuse_moved(self.recipe, "recipe.", known_paths(Recipe, "recipe."))
        return self


def _class_names(text: str) -> list[str]:
    is_file = _is_file(text)
    if not is_file and text.endswith(".txt"):
        raise ValueError(f"must name classes or a file with one per line; {text} does not exist")
    lines = _read_text(Path(text)).splitlines() if is_file else text.split(",")
    return [line.strip() for line in lines if line.strip()]


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # a list of many names is too long for a path
        return False


def _read_text(path: Path) -> str:
    """The content of a small text file. Raises ValueError if it cannot be read."""
    try:
        return read_regular_file(path, MAX_TEXT_BYTES).decode()
    except OSError as error:
        raise ValueError(f"cannot be read from {path} ({error.strerror})") from error


@dataclass(frozen=True)
class Plan:
    """All settings that can change the result of a run."""

    protocol: Protocol
    learning: Learning

    def settings(self) -> dict[str, Any]:
        """All settings in one flat mapping, as config.json and result.json record them."""
        protocol = self.protocol.model_dump(mode="json")
        learning = self.learning.model_dump(mode="json", exclude={"num_classes"})
        own = learning.pop("method_settings")
        order = (
            *("dataset", "label", "classes", "method", "exemplars", "correction_penalty", "seed"),
            *("class_order", "order_seed", "fingerprint", "step_sizes", "memory", "held_out"),
            *("held_out_limit", "recipe", "compile"),
        )
        both = {**protocol, **learning}
        flat = {name: both[name] for name in order}
        return {**flat, "method_settings": own} if own else flat

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """The plan that `settings()` was taken from. Raises UserError for damaged settings."""
        if not isinstance(settings.get("recipe"), Mapping):
            raise UserError("the recorded settings have no recipe", "choose another {out}")
        protocol = {name: settings[name] for name in Protocol.model_fields if name in settings}
        learning = {name: settings[name] for name in Learning.model_fields if name in settings}
        # Built as a Recipe: a setting that an older version did not record gets the default of
        # Recipe, and not the value that the recipe of this name has today.
        learning["recipe"] = checked(Recipe, settings["recipe"], under="recipe.")
        checked_protocol = checked(Protocol, protocol)
        learning.setdefault("held_out_limit", None)  # recorded before there was a limit
        learning["num_classes"] = sum(checked_protocol.step_sizes)
        return cls(checked_protocol, checked(Learning, learning))


def learning_for(
    config: RunConfig,
    *,
    defaults: Defaults | None = None,
    default_recipe_name: str = "fast",
    num_classes: int | None = None,
) -> Learning:
    """The learning that a request asks for, with the protocol's defaults for what it leaves out."""
    defaults = defaults or defaults_for(config.dataset)
    name = config.recipe.get("name")
    if name is None:
        otherwise = "demo" if config.dataset == "digits" else default_recipe_name
        name = default_recipe(config.backbone, tune=bool(config.tune), otherwise=otherwise)
    values = {
        "method": config.method or defaults.method,
        "recipe": {**config.recipe, "name": name},
        "method_settings": config.method_settings,
        "backbone": config.backbone,
        "tune": config.tune,
        "epochs": config.epochs,
        "memory": config.memory or MemoryBudget(images=defaults.memory),
        "held_out": defaults.held_out if config.held_out is None else config.held_out,
        "held_out_limit": _limit(config, defaults),
        "exemplars": config.exemplars,
        "correction_penalty": config.correction_penalty,
        "seed": config.seed,
        "compile": config.compile or False,
        "num_classes": num_classes,
    }
    return checked(Learning, values)


def _limit(config: RunConfig, defaults: Defaults) -> int | None:
    if config.held_out_limit == "none":
        return None
    return config.held_out_limit or defaults.held_out_limit


def load_settings(
    file: Path | None, assignments: Iterable[str], flags: Mapping[str, Any]
) -> RunConfig:
    """A request from a TOML file, `NAME=VALUE` assignments, and flags. Later ones override.

    Flags that are None were not given.
    """
    start = {} if file is None else _read_toml(file)
    return checked(RunConfig, assigned(assignments, flags, start))


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(_read_text(file))
    except (ValueError, RecursionError) as error:
        raise UserError(f"cannot read {file} as TOML ({error})", "check {config}") from error
