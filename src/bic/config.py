"""Settings, checked when they are built: what a user asks for, and the plan it resolves to."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from bic.errors import UserError, unknown

Kind = TypeVar("Kind", bound="Settings")
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class MemoryBudget(Settings):
    """How much the memory may hold over all classes: images, or bytes of encoded images."""

    images: int | None = Field(None, ge=1, lt=2**60)
    bytes: int | None = Field(None, ge=1, lt=2**60)

    @model_validator(mode="before")
    @classmethod
    def _parse(cls, value: Any) -> Any:
        """Accept 2000 and "64MB" as they are written on the command line."""
        if isinstance(value, dict | MemoryBudget):
            return value
        match = re.fullmatch(r"\s*(\d+)\s*([KMG]?B?)\s*", str(value).upper())
        if match is None or match[2] not in UNITS:
            raise ValueError(f"must be a number of images or of bytes (2000 or 64MB), got {value!r}")
        return {"bytes" if match[2] else "images": int(match[1]) * UNITS[match[2]]}

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.images is None) == (self.bytes is None):
            raise ValueError("must be either a number of images or of bytes")
        return self


class Recipe(Settings):
    """Network, schedule, augmentation: everything in training that is not the method."""

    name: str
    backbone: str
    image_size: int | None = Field(None, ge=1)  # None: arrays keep theirs, folders get 64
    resize: int | None = Field(None, ge=1)  # shorter side before the centre crop; None: image_size
    random_resize: tuple[int, int] | None = None  # shorter side drawn from this range in training
    epochs: int = Field(ge=1)
    first_epochs: int | None = Field(None, ge=1)  # of a network that starts afresh; None: as many
    batch_size: int = Field(128, ge=1)
    precision: Literal["float32", "bfloat16", "quickest"] = "float32"  # of a backbone's products in training
    learning_rate: float = Field(gt=0)
    kernel_rate: float | None = Field(None, gt=0)  # Muon's, relative, for the backbone's kernels; None: plain SGD
    later_rate: float = Field(1.0, gt=0)  # the rates' factor where a network goes on from the step before
    later_muon: bool = True  # whether Muon, where kernel_rate has it, trains there too; else plain SGD
    schedule: Literal["milestones", "triangle"] = "milestones"
    milestones: tuple[float, ...] = ()  # as shares of the epochs, so that --epochs scales them
    decay: float = Field(0.1, gt=0, le=1)  # the rate's factor at each milestone
    warmup: float = Field(0.2, ge=0, lt=1)  # triangle: the share of the epochs going up
    momentum: float = Field(0.9, gt=0, lt=1)
    nesterov: bool = False
    weight_decay: float = Field(0.0, ge=0)
    distillation_factor: float = Field(1.0, gt=0)  # of the distilling loss; the square of its temperature is 4
    previous_share: float = Field(0.0, ge=0, lt=1)  # bic: of the network before in the scores of its classes
    gradient_noise: float = Field(0.0, ge=0)  # EEIL's, on summed gradients in the first epoch
    balanced_epochs: int = Field(0, ge=0)  # EEIL's second phase; 0: 3/7 of the epochs
    balanced_milestones: tuple[float, ...] | None = None  # None: as in the first phase
    crop_padding: int = Field(0, ge=0)
    crop_fill: Literal["black", "mirror"] = "black"  # what comes in where a crop leaves the image
    flip: bool = False
    brightness: float = Field(0.0, ge=0)  # largest shift, in pixel values
    contrast: float = Field(0.0, ge=0, lt=1)  # largest change of each channel's contrast

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for milestones in (self.milestones, self.balanced_milestones or ()):
            if list(milestones) != sorted(milestones) or not all(0 < share < 1 for share in milestones):
                raise ValueError(f"milestones must rise between 0 and 1, got {milestones}")
        sides = [side for side in (self.resize, *(self.random_resize or ())) if side is not None]
        if sides and (self.image_size is None or self.image_size > min(sides)):
            raise ValueError("image_size must be given and at most resize and random_resize")
        return self

    def in_step(self, *, afresh: bool) -> Self:
        """The recipe for one step: of a network that starts afresh, or of one that goes on."""
        if afresh:
            return self.model_copy(update={"epochs": self.first_epochs or self.epochs})
        kernel_rate = self.kernel_rate if self.later_muon else None
        return self.model_copy(update={"kernel_rate": kernel_rate}).slower(self.later_rate)

    def slower(self, factor: float) -> Self:
        """The recipe with both rates times a factor."""
        kernels = None if self.kernel_rate is None else self.kernel_rate * factor
        return self.model_copy(update={"learning_rate": self.learning_rate * factor, "kernel_rate": kernels})


class Choices(Settings):
    """What a request and the plan made of it have in common."""

    dataset: str
    label: str | None = None  # the label column of a Parquet file
    classes: tuple[str, ...] | None = None  # the only ones to learn; None: all
    method: str = "bic"
    exemplars: Literal["herding", "random"] = "herding"
    correction_penalty: float = Field(0.0, ge=0)  # the authors' code has 0.1, the paper none
    seed: int = Field(0, ge=0)
    class_order: tuple[int, ...] | None = None  # explicit, in place of order_seed's shuffle
    order_seed: int = Field(1993, ge=0, lt=2**32)


class RunConfig(Choices):
    """What a user asks for. What is left out is chosen to suit the data, once, and recorded."""

    steps: int | None = Field(None, ge=1)
    step_sizes: tuple[int, ...] | None = None
    recipe: dict[str, Any] = {}  # its name, and settings that differ from those it has
    backbone: str | None = None
    epochs: int | None = Field(None, ge=1)
    memory: MemoryBudget | None = None
    held_out: float | None = Field(None, gt=0, lt=1)
    compile: bool | None = None  # None: if it is measured to pay
    skip_bad: bool = False

    @field_validator("step_sizes", "class_order", "recipe", mode="before")
    @classmethod
    def _short_form(cls, value: Any, field: ValidationInfo) -> Any:
        if not isinstance(value, str):
            return value
        return {"name": value} if field.field_name == "recipe" else value.split(",")

    @field_validator("classes", mode="before")
    @classmethod
    def _list(cls, value: Any) -> Any:
        """Accept names with commas between them, and the path of a file with one name a line."""
        if isinstance(value, str):
            is_file = Path(value).is_file()
            if not is_file and value.endswith(".txt"):
                raise ValueError(f"must name classes, or a file with one a line, and there is no file {value}")
            lines = Path(value).read_text().splitlines() if is_file else value.split(",")
            value = [line.strip() for line in lines if line.strip()]
        if isinstance(value, list | tuple):
            if not value:
                raise ValueError("must name a class at least")
            if twice := [name for name, count in Counter(value).items() if count > 1]:
                raise ValueError(f"must name each class once, got {twice[0]!r} more often")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.steps is not None and self.step_sizes is not None:
            raise ValueError("steps and step-sizes exclude each other")
        for key in self.recipe.keys() - Recipe.model_fields.keys():
            raise unknown("setting", f"recipe.{key}", [f"recipe.{known}" for known in Recipe.model_fields])
        return self


class Plan(Choices):
    """A run, fully decided: every value that can change its result."""

    fingerprint: str  # of the data
    step_sizes: tuple[int, ...]
    memory: MemoryBudget
    held_out: float
    recipe: Recipe
    compile: bool = False  # it changes the last bits


def load_settings(file: Path | None, assignments: Iterable[str], flags: Mapping[str, Any]) -> RunConfig:
    """A flag beats --set (`assignments`) beats the file. `flags` that are None were not given."""
    merged: dict[str, Any] = {}
    if file is not None:
        try:
            merged = tomllib.loads(file.read_text())
        except (OSError, ValueError) as error:
            raise UserError(f"cannot read {file} as TOML ({error}); check --config") from error
    given = [_parse_assignment(assignment) for assignment in assignments]
    for name, value in [*given, *((name, value) for name, value in flags.items() if value is not None)]:
        *parents, leaf = ["recipe", "name"] if name == "recipe" else name.split(".")
        place = merged
        for parent in parents:
            if isinstance(place.get(parent), str):  # recipe = "fast"
                place[parent] = {"name": place[parent]}
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise UserError(f"{parent} must be a table of settings to hold {name}, got {place!r}; mend it")
        place[leaf] = value
    return checked(RunConfig, merged)


def _parse_assignment(assignment: str) -> tuple[str, Any]:
    name, equals, text = assignment.partition("=")
    if not equals or not name.strip():
        raise UserError(f"--set takes NAME=VALUE such as recipe.learning_rate=0.05, got {assignment!r}")
    try:
        return name.strip(), tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return name.strip(), text


def checked(kind: type[Kind], values: Mapping[str, Any], *, under: str = "") -> Kind:
    """Build settings, turning what pydantic finds wrong into one sentence; `under` is where they stand in others."""
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        problem = error.errors()[0]
        parts = problem["loc"]  # none where several settings do not fit each other
        place = under + ".".join(part for part in parts if isinstance(part, str)) if parts else ""
        if problem["type"] == "extra_forbidden":
            raise unknown("setting", place, kind.model_fields) from error
        message = problem["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
        message = message.partition(", unable to parse")[0]
        got = "" if problem["type"] == "value_error" else f", got {problem['input']!r}"
        raise UserError(f"{place} {message}{got}; change it and run again".strip()) from error
