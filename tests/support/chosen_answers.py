"""A model whose answers are chosen by the test, and images that ask for them."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from bic import Model
from bic.model.answers import Outputs
from bic.model.calibration import Calibration
from bic.model.certainty import certainty
from support.model_folders import CLASSES, made_model


def answering(
    probabilities: Sequence[Sequence[float]], temperature: float | None = None
) -> tuple[Model, np.ndarray]:
    """A model and one image per row of probabilities of the five classes; it answers with them.

    With a temperature, its logits are such that the probabilities hold after the calibration.
    """
    model = made_model()
    assert model.classes == CLASSES
    scale = 1.0 if temperature is None else temperature
    table = torch.tensor(probabilities).log() * scale

    def raw_and_final(outputs: Outputs) -> tuple[Tensor, Tensor]:
        rows = table[outputs.images[:, 0, 0, 0].long()]
        return rows, rows

    model.raw_and_final = raw_and_final  # type: ignore[method-assign]
    if temperature is not None:
        certainties = sorted(certainty(torch.tensor(probabilities)).tolist())
        model.calibration = Calibration(temperature, tuple(certainties), len(certainties))
    images = np.arange(len(probabilities), dtype=np.uint8)
    return model, np.tile(images[:, None, None], (1, 8, 8))


def sure_of(position: int, confidence: float) -> list[float]:
    """Probabilities of five classes: one has the confidence, the others share the rest."""
    rest = (1 - confidence) / (len(CLASSES) - 1)
    return [confidence if number == position else rest for number in range(len(CLASSES))]
