"""Certainty: how decided probabilities are. Images of unknown classes have a low one."""

import math

import torch
from torch import Tensor


def certainty(probabilities: Tensor) -> Tensor:
    """1 − entropy / log(classes) of probabilities [..., classes], in 0..1.

    It is 1 if one class has all the probability, and 0 if all classes have the same. It finds
    images of unknown classes better than the largest probability, which cannot tell whether two
    classes compete or all of them.
    """
    entropy: Tensor = torch.special.entr(probabilities).sum(dim=-1)
    largest = math.log(max(2, probabilities.shape[-1]))
    return (1 - entropy / largest).clamp(0, 1)
