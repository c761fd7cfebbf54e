"""Recipe: network, epochs, optimiser, schedule and augmentation. All of training but the method."""

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from bic.data.augmentation import Augmentation
from bic.settings import Settings


def check_milestones(milestones: tuple[float, ...]) -> tuple[float, ...]:
    """Milestones must rise between 0 and 1. Raises ValueError."""
    rising = list(milestones) == sorted(milestones)
    if not rising or not all(0 < milestone < 1 for milestone in milestones):
        raise ValueError(f"must rise between 0 and 1, got {milestones}")
    return milestones


class Optimiser(Settings):
    """SGD with momentum; with `muon_rate`, Muon for the kernels of the backbone."""

    momentum: float = Field(0.9, gt=0, lt=1)  # of SGD and of Muon
    nesterov: bool = False  # Nesterov's form of the momentum
    weight_decay: float = Field(0.0, ge=0)  # L2 penalty of the weights that SGD trains
    # Muon's learning rate, relative to the norm of a kernel. None: SGD for all weights.
    muon_rate: float | None = Field(None, gt=0)
    later_rate: float = Field(1.0, gt=0)  # factor of both rates from the second step on
    later_muon: bool = True  # False: Muon in the first step only


class Schedule(Settings):
    """How the learning rate changes over the epochs.

    `milestones`: times `decay` at every milestone. `triangle`: up over the first `warmup` of the
    epochs, then down to zero.
    """

    kind: Literal["milestones", "triangle"] = "milestones"  # see above
    milestones: tuple[float, ...] = ()  # as shares of the epochs, so that --epochs scales them
    decay: float = Field(0.1, gt=0, le=1)  # milestones: the factor at each of them
    warmup: float = Field(0.2, ge=0, lt=1)  # triangle: share of the epochs with a rising rate

    @field_validator("milestones")
    @classmethod
    def _rise(cls, milestones: tuple[float, ...]) -> tuple[float, ...]:
        return check_milestones(milestones)


class Recipe(Settings):
    """How a network is trained in one step, whatever the method."""

    name: str  # under which the recipe was found
    backbone: str
    epochs: int = Field(ge=1)
    first_epochs: int | None = Field(None, ge=1)  # in the first step; None: `epochs`
    batch_size: int = Field(128, ge=1)  # images per update, over all processes
    learning_rate: float = Field(gt=0)  # the highest in the schedule
    precision: Literal["float32", "bfloat16", "quickest"] = "float32"  # of training, not of answers
    distillation_factor: float = Field(1.0, gt=0)  # of the distillation loss; 4 is temperature²
    image_size: int | None = Field(None, ge=1, le=8192)  # None: arrays keep theirs, folders get 64
    resize: int | None = Field(None, ge=1, le=8192)  # of the shorter side, before the centre crop
    optimiser: Optimiser = Optimiser()
    schedule: Schedule = Schedule()
    augmentation: Augmentation = Augmentation()

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        sides = [] if self.resize is None else [self.resize]
        sides += self.augmentation.random_resize or ()
        if sides and (self.image_size is None or self.image_size > min(sides)):
            raise ValueError("image_size must be given and at most resize and random_resize")
        return self

    def in_step(self, *, afresh: bool) -> Self:
        """The recipe of one step: of a network that starts afresh, or of one that continues."""
        if afresh:
            return self.model_copy(update={"epochs": self.first_epochs or self.epochs})
        recipe = self
        if not self.optimiser.later_muon:
            sgd = self.optimiser.model_copy(update={"muon_rate": None})
            recipe = self.model_copy(update={"optimiser": sgd})
        return recipe.slower(self.optimiser.later_rate)

    def slower(self, factor: float) -> Self:
        """The recipe with both learning rates times a factor."""
        optimiser = self.optimiser
        if optimiser.muon_rate is not None:
            optimiser = optimiser.model_copy(update={"muon_rate": optimiser.muon_rate * factor})
        rate = self.learning_rate * factor
        return self.model_copy(update={"learning_rate": rate, "optimiser": optimiser})
