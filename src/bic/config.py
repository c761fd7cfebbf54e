"""Settings, checked when they are built: what a user asks for, and the plan it resolves to."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from bic.errors import UserError, unknown

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


Kind = TypeVar("Kind", bound=Settings)


class MemoryBudget(Settings):
    """How much the memory may hold over all classes: images, or bytes of encoded images."""

    images: int | None = Field(None, ge=1)
    bytes: int | None = Field(None, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _parse(cls, value: Any) -> Any:
        """Accept 2000 and "64MB" as they are written on the command line."""
        if isinstance(value, int):
            return {"images": value}
        if not isinstance(value, str):
            return value
        match = re.fullmatch(r"\s*([\d_]+(?:\.\d+)?)\s*([kKmMgG]?[bB]?)\s*", value)
        if match is None or match[2].upper() not in UNITS or (not match[2] and "." in match[1]):
            raise ValueError(f"is a number of images or of bytes (2000 or 64MB), got {value!r}")
        amount = float(match[1]) * UNITS[match[2].upper()]
        return {"bytes" if match[2] else "images": int(amount)}

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.images is None) == (self.bytes is None):
            raise ValueError("is either a number of images or of bytes")
        return self

    def __str__(self) -> str:
        return f"{self.images} images" if self.bytes is None else f"{self.bytes} bytes"


class Recipe(Settings):
    """Network, schedule, augmentation: everything in training that is not the method."""

    name: str
    backbone: str
    image_size: int | None = Field(None, ge=1)  # None: arrays keep theirs, folders get 64
    resize: int | None = Field(None, ge=1)  # shorter side before the centre crop; None: image_size
    random_resize: tuple[int, int] | None = None  # shorter side drawn from this range in training

    epochs: int = Field(ge=1)
    batch_size: int = Field(128, ge=1)
    learning_rate: float = Field(gt=0)
    schedule: Literal["milestones", "triangle"] = "milestones"
    milestones: tuple[float, ...] = ()  # as shares of the epochs, so that --epochs scales them
    decay: float = Field(0.1, gt=0, le=1)  # the rate's factor at each milestone
    warmup: float = Field(0.2, ge=0, lt=1)  # triangle: the share of the epochs going up
    momentum: float = Field(0.9, ge=0, lt=1)
    nesterov: bool = False
    weight_decay: float = Field(0.0, ge=0)
    gradient_noise: float = Field(
        0.0, ge=0
    )  # EEIL: deviation 0.3/(1+epoch)^0.55 on summed gradients

    balanced_epochs: int = Field(0, ge=0)  # EEIL's second phase; 0: 3/7 of the epochs
    balanced_milestones: tuple[float, ...] | None = None  # None: as in the first phase

    crop_padding: int = Field(0, ge=0)
    flip: bool = False
    brightness: float = Field(0.0, ge=0)  # largest shift, in pixel values
    contrast: float = Field(0.0, ge=0, lt=1)  # largest change of each channel's contrast

    @field_validator("milestones", "balanced_milestones")
    @classmethod
    def _rising(cls, value: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if value and (list(value) != sorted(value) or not 0 < value[0] <= value[-1] < 1):
            raise ValueError("rises between 0 and 1 (shares of the epochs)")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.random_resize is not None:
            low, high = self.random_resize
            if self.image_size is None or not self.image_size <= low <= high:
                raise ValueError("random_resize needs image_size ≤ its lower ≤ its upper bound")
        if self.resize is not None and (self.image_size is None or self.resize < self.image_size):
            raise ValueError("resize needs an image_size no larger than itself")
        return self


class RunConfig(Settings):
    """What a user asks for. What is left out is chosen to suit the data, once, and recorded."""

    dataset: str
    label: str | None = None  # the label column of a Parquet file
    steps: int | None = Field(None, ge=1)
    step_sizes: tuple[int, ...] | None = None
    order_seed: int = Field(1993, ge=0, lt=2**32)
    class_order: tuple[int, ...] | None = None
    method: str = "bic"
    recipe: dict[str, Any] = Field(default_factory=dict)  # its name and settings that differ
    backbone: str | None = None
    epochs: int | None = Field(None, ge=1)
    memory: MemoryBudget | None = None
    exemplars: Literal["herding", "random"] = "herding"
    held_out: float | None = Field(None, gt=0, lt=1)
    correction_penalty: float = Field(0.0, ge=0)
    seed: int = Field(0, ge=0)
    skip_bad: bool = False

    @field_validator("recipe", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @field_validator("recipe")
    @classmethod
    def _known(cls, value: dict[str, Any]) -> dict[str, Any]:
        for key in value:
            if key not in Recipe.model_fields:
                raise unknown(
                    "setting", f"recipe.{key}", [f"recipe.{k}" for k in Recipe.model_fields]
                )
        return value

    @model_validator(mode="after")
    def _one_plan(self) -> Self:
        if self.steps is not None and self.step_sizes is not None:
            raise ValueError("steps and step_sizes exclude each other; give one of them")
        return self


class Plan(Settings):
    """A run, fully decided: every value that can change its result."""

    dataset: str
    fingerprint: str  # of the data
    label: str | None
    method: str
    seed: int
    step_sizes: tuple[int, ...]
    order_seed: int | None  # None where the order is explicit
    class_order: tuple[int, ...] | None
    memory: MemoryBudget
    exemplars: Literal["herding", "random"]
    held_out: float
    correction_penalty: float
    recipe: Recipe


def load_settings(
    file: Path | None, assignments: Iterable[str], flags: Mapping[str, Any]
) -> RunConfig:
    """A flag beats --set beats the file. `flags` that are None were not given."""
    merged: dict[str, Any] = {}
    if file is not None:
        try:
            merged = tomllib.loads(file.read_text())
        except OSError as error:
            raise UserError(f"cannot read {file} ({error.strerror}); check --config") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UserError(f"{file} is not valid TOML: {error}") from error
    if isinstance(merged.get("recipe"), str):
        merged["recipe"] = {"name": merged["recipe"]}
    for assignment in assignments:
        _assign(merged, assignment)
    for name, value in flags.items():
        if value is not None:
            _put(merged, name, value)
    return checked(RunConfig, merged)


def _assign(merged: dict[str, Any], assignment: str) -> None:
    key, equals, text = assignment.partition("=")
    if not equals or not key:
        raise UserError(
            f"--set takes NAME=VALUE such as recipe.learning_rate=0.05, got {assignment!r}"
        )
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    _put(merged, "recipe.name" if key.strip() == "recipe" else key.strip(), value)


def _put(merged: dict[str, Any], name: str, value: Any) -> None:
    *parents, leaf = name.split(".")
    place = merged
    for parent in parents:
        place = place.setdefault(parent, {})
        if not isinstance(place, dict):
            raise UserError(f"{name}: {parent} has no settings of its own; leave out the dot")
    place[leaf] = value


def checked(kind: type[Kind], values: Mapping[str, Any]) -> Kind:
    """Build settings, turning what pydantic finds wrong into one sentence."""
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            raise unknown("setting", place, kind.model_fields) from error
        message = problem["msg"].removeprefix("Value error, ")
        got = f", got {problem['input']!r}" if problem["type"] != "value_error" else ""
        subject = f"{place.replace('_', '-') if kind is RunConfig else place} " if place else ""
        raise UserError(f"{subject}{_plain(message)}{got}; change it and run again") from error


def _plain(message: str) -> str:
    return re.sub(r"^Input should be", "must be", message)
