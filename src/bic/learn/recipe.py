"""Recipe: network, epochs, optimiser, schedule and augmentation; everything but the method."""

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from bic.data.augmentation import Augmentation
from bic.model.pretrained import can_be_frozen
from bic.settings import LARGEST, Settings

MOST_EPOCHS = 1_000_000


def check_milestones(milestones: tuple[float, ...]) -> tuple[float, ...]:
    """The milestones. Raises ValueError unless they rise between 0 and 1."""
    rising = list(milestones) == sorted(milestones)
    if not rising or not all(0 < milestone < 1 for milestone in milestones):
        raise ValueError(f"must rise between 0 and 1, got {milestones}")
    return milestones


class Optimiser(Settings):
    """SGD with momentum; with `muon_rate`, Muon for the kernels of the backbone."""

    momentum: float = Field(0.9, gt=0, lt=1)  # of SGD and of Muon
    nesterov: bool = False  # use Nesterov momentum
    weight_decay: float = Field(0.0, ge=0, le=LARGEST)  # L2 penalty of the weights that SGD trains
    # Divide the weight decay by the share of all classes that have been seen, if their number is
    # known, as the authors' code does.
    weight_decay_by_share: bool = False
    # With a teacher, divide the learning rate of SGD by 1 − λ, the weight of the classification
    # loss, and multiply the weight decay by it. The rate of Muon stays.
    undo_lambda: bool = False
    # Muon's learning rate, relative to the norm of a kernel. None: SGD for all weights.
    muon_rate: float | None = Field(None, gt=0, le=LARGEST)
    # Factor of both learning rates from the second step on.
    later_rate: float = Field(1.0, gt=0, le=1e6)
    later_muon: bool = True  # False: Muon in the first step only


class Schedule(Settings):
    """How the learning rate changes over the epochs.

    `milestones`: it is multiplied by `decay` at every milestone. `triangle`: it rises during the
    first `warmup` share of the epochs, and then falls to zero.
    """

    # milestones: falls by a factor at each milestone; triangle: rises, then falls to zero
    kind: Literal["milestones", "triangle"] = "milestones"
    milestones: tuple[float, ...] = ()  # as shares of the epochs
    decay: float = Field(0.1, gt=0, le=1)  # milestones: the factor at each milestone
    warmup: float = Field(0.2, ge=0, lt=1)  # triangle: share of the epochs with a rising rate

    @field_validator("milestones")
    @classmethod
    def _rise(cls, milestones: tuple[float, ...]) -> tuple[float, ...]:
        return check_milestones(milestones)


class Recipe(Settings):
    """How a network is trained in one step, whatever the method."""

    name: str  # of the recipe in RECIPES that the settings started from
    backbone: str
    epochs: int = Field(ge=1, le=MOST_EPOCHS)
    # In the first step. None: `epochs`.
    first_epochs: int | None = Field(None, ge=1, le=MOST_EPOCHS)
    batch_size: int = Field(128, ge=1, lt=2**31)  # images per update, over all processes
    learning_rate: float = Field(gt=0, le=LARGEST)  # the highest of the schedule
    # Of training; predictions use float32. quickest: bfloat16 if it is measured to be faster.
    precision: Literal["float32", "bfloat16", "quickest"] = "float32"
    # Of the distillation loss; 4 is temperature².
    distillation_factor: float = Field(1.0, gt=0, le=LARGEST)
    # None: that of a pretrained backbone; otherwise arrays keep theirs and folders get 64.
    image_size: int | None = Field(None, ge=1, le=8192)
    resize: int | None = Field(None, ge=1, le=8192)  # of the shorter side, before the centre crop
    optimiser: Optimiser = Optimiser()
    schedule: Schedule = Schedule()
    augmentation: Augmentation = Augmentation()
    # A pretrained backbone is not trained. Its features are computed once for every image and, with
    # augmentation.flip, once for the mirrored image. No other augmentation is used.
    frozen: bool = False

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        sides = [] if self.resize is None else [self.resize]
        sides += self.augmentation.random_resize or ()
        if sides and (self.image_size is None or self.image_size > min(sides)):
            raise ValueError("image_size must be given and at most resize and random_resize")
        return self

    @model_validator(mode="after")
    def _can_be_frozen(self) -> Self:
        if self.frozen and not can_be_frozen(self.backbone):
            raise ValueError(
                f"frozen needs a pretrained backbone, such as lite2, got {self.backbone}"
            )
        return self

    def in_step(self, *, afresh: bool) -> Self:
        """The recipe of one step, for a network that starts afresh or for one that continues."""
        if afresh:
            return self.model_copy(update={"epochs": self.first_epochs or self.epochs})
        return self.later().slower(self.optimiser.later_rate)

    def later(self) -> Self:
        """The recipe without Muon, if only the first step has it."""
        if self.optimiser.later_muon:
            return self
        sgd = self.optimiser.model_copy(update={"muon_rate": None})
        return self.model_copy(update={"optimiser": sgd})

    def slower(self, factor: float) -> Self:
        """The recipe with both learning rates multiplied by a factor."""
        optimiser = self.optimiser
        if optimiser.muon_rate is not None:
            optimiser = optimiser.model_copy(update={"muon_rate": optimiser.muon_rate * factor})
        rate = self.learning_rate * factor
        return self.model_copy(update={"learning_rate": rate, "optimiser": optimiser})
