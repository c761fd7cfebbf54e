"""A model as one torch module, and its graph of operations: what every export starts from."""

import copy
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from bic.errors import LostError, UserError
from bic.model.answers import Outputs
from bic.model.model import Model
from bic.model.network import Network

TOLERANCE = 1e-4  # of the largest logit
CHECKED = (8, 1)  # numbers of images on which an export is compared with its model
# Traced with so many images: torch computes distances in another way for 25 images or fewer.
TRACED_IMAGES = 32


class Predictor(nn.Module):
    """Square images or vectors → final logits and probabilities [batch, classes].

    It is the model's network and answer, whatever they are, with what `Model` adds to them: retired
    classes have a logit of −∞, and the temperature is applied. The model itself does not change.
    """

    retired: Tensor | None

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.network = copy.deepcopy(model.network).cpu()
        self.answer = copy.deepcopy(model.answer).cpu()
        self.temperature = temperature_of(model)
        retired = torch.zeros(len(model.classes))
        retired[list(model.retired)] = -torch.inf
        self.register_buffer("retired", retired if model.retired else None)
        for module in self.modules():
            if isinstance(module, Network):
                module.frozen = False  # a frozen one changes itself for speed: that has no trace
        self.eval()
        self.requires_grad_(False)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.network.features(images)
        logits = self.answer(Outputs(images, features, self.network.head(features)))
        if self.retired is not None:
            logits = logits + self.retired
        return logits, torch.softmax(logits / self.temperature, dim=1)


def temperature_of(model: Model) -> float:
    """The temperature of the probabilities; 1 without a calibration."""
    return 1.0 if model.calibration is None else model.calibration.temperature


def traced(model: Model) -> ExportedProgram:
    """The operations of the model's Predictor, for any number of images.

    Raises UserError for a network that torch cannot trace, such as one with loops over values.
    """
    images = random_inputs(model, TRACED_IMAGES)
    try:
        with quiet_torch(), torch.no_grad():
            return torch.export.export(
                Predictor(model), (images,), dynamic_shapes=({0: Dim.DYNAMIC},)
            )
    except Exception as error:  # torch.export raises almost anything
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"torch cannot trace the network {model.backbone} ({reason})",
            "change the network so that torch.export can trace it",
        ) from error


def random_inputs(model: Model, count: int) -> Tensor:
    """Random square images, uint8 [count, channels, size, size], or vectors [count, dim]."""
    draws = torch.Generator().manual_seed(count)
    preprocessing = model.preprocessing
    if preprocessing.size is None:
        mean = model.network.mean.cpu()
        std = model.network.std.cpu()
        return mean + std * torch.randn(count, preprocessing.channels, generator=draws)
    shape = (count, preprocessing.channels, preprocessing.size, preprocessing.size)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=draws)


def logit_difference(model: Model, inputs: Tensor, logits: Tensor) -> float:
    """The largest difference from the model's final logits, divided by the largest logit."""
    expected = model.logits(inputs)[1].cpu()
    finite = expected.isfinite()
    if not torch.equal(finite, logits.isfinite()):
        return float("inf")
    scale = max(float(expected[finite].abs().max()), TOLERANCE)
    return float((logits[finite] - expected[finite]).abs().max()) / scale


def refuse_difference(difference: float) -> None:
    """Raise LostError for an export that differs from its model."""
    if not difference <= TOLERANCE:
        raise LostError(
            f"the exported model differs from the model by {difference:.1e} of its largest logit, "
            f"{TOLERANCE:.0e} is allowed, so nothing was written",
            "report this with the versions of torch, onnxscript and onnxruntime",
        )


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Without the warnings and messages that torch's exporter addresses to its developers."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
