"""EEIL: End-to-End Incremental Learning (Castro et al., 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field, field_validator

from bic.learn.losses import Losses, classification, distillation_per_step
from bic.learn.methods.method import Method, MethodSettings
from bic.learn.recipe import MOST_EPOCHS, check_milestones
from bic.settings import LARGEST

if TYPE_CHECKING:
    from torch import Tensor


class EeilSettings(MethodSettings):
    """Gradient noise, and the balanced fine-tuning after every step."""

    # Std of the noise in the first epoch, for gradients summed over the batch.
    gradient_noise: float = Field(0.3, ge=0, le=LARGEST)
    balanced_epochs: int = Field(0, ge=0, le=MOST_EPOCHS)  # 0: 3/7 of the recipe's epochs
    balanced_milestones: tuple[float, ...] | None = None  # None: those of the recipe

    @field_validator("balanced_milestones")
    @classmethod
    def _rise(cls, milestones: tuple[float, ...] | None) -> tuple[float, ...] | None:
        return None if milestones is None else check_milestones(milestones)


def eeil(
    logits: Tensor, labels: Tensor, teacher: Tensor | None, classes_per_step: Sequence[int]
) -> Losses:
    """Cross-entropy, plus one distillation term for each step that the teacher knows."""
    losses = {"classification": classification(logits, labels)}
    if teacher is not None:
        losses["distillation"] = distillation_per_step(logits, teacher, classes_per_step)
    return losses


# EEIL's own schedule. The paper's figures for EEIL are based on it.
PUBLISHED = {
    "recipe": {
        "epochs": 40,
        "batch_size": 128,
        "learning_rate": 0.1,
        "optimiser": {"weight_decay": 1e-4},
        "schedule": {"milestones": (0.25, 0.5, 0.75)},
    },
    "method_settings": {"balanced_epochs": 30, "balanced_milestones": (1 / 3, 2 / 3)},
}

METHOD = Method(
    name="eeil",
    summary="distillation for each earlier step, then balanced fine-tuning",
    loss=eeil,
    balanced_phase=True,
    settings=EeilSettings,
    changes={"recipe": {"augmentation": {"brightness": 63.0, "contrast": 0.8}}},
    changes_to={"paper-cifar100": PUBLISHED, "paper-imagenet": PUBLISHED},
    colour="#CC79A7",
    marker="P",
    symbol="cross",
)
