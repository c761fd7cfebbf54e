"""Calibration: what turns final logits into probabilities that can be trusted."""

import math
from dataclasses import dataclass

from bic.errors import UserError

MIN_TEMPERATURE = 1e-6
MAX_TEMPERATURE = 1e6
MAX_CERTAINTIES = 1000  # that are kept: a share of 0.1 % can still be told apart


@dataclass(frozen=True)
class Calibration:
    """A temperature, and how certain the model is about images that it has never trained on.

    Probabilities are the softmax of the final logits divided by `temperature`. `certainties` are
    those of the held-out images, in ascending order: of all `num_images`, or evenly spaced ones.
    """

    temperature: float
    certainties: tuple[float, ...]
    num_images: int

    def __post_init__(self) -> None:
        if not MIN_TEMPERATURE <= self.temperature <= MAX_TEMPERATURE:
            raise ValueError(f"a temperature of {self.temperature} is out of range")
        if not 1 <= len(self.certainties) <= min(MAX_CERTAINTIES, self.num_images):
            raise ValueError(f"{len(self.certainties)} certainties of {self.num_images} images")
        if not all(0 <= certainty <= 1 for certainty in self.certainties):
            raise ValueError("certainties must lie in 0..1")
        if list(self.certainties) != sorted(self.certainties):
            raise ValueError("certainties must be in ascending order")

    def threshold(self, share: float) -> float:
        """The certainty below which an image is rejected as none of the classes.

        It wrongly rejects `share` of the held-out images, or as many as ties allow, but not more.
        Raises UserError for a share outside 0..1.
        """
        if not 0 <= share < 1:
            raise UserError(
                f"the share of images to reject must be at least 0 and less than 1, got {share}",
                "change {reject}",
            )
        num_rejected = math.floor(share * len(self.certainties) + 1e-9)  # 0.29 · 100 is 29
        return self.certainties[num_rejected]
