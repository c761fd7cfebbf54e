"""Teacher: the previous step's model, which the student learns to imitate on old classes."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from bic.model.answers import Correction
from bic.model.folding import folded
from bic.model.network import Network


class Teacher:
    """A frozen copy of a network in evaluation mode, with its correction applied."""

    def __init__(self, network: Network, correction: Correction | None) -> None:
        self.network = copy.deepcopy(network).eval().requires_grad_(False)
        self.correction = correction
        self.folded = folded_network(self.network)
        self.forward: Callable[[Tensor], Tensor] = self.folded  # or its compiled form

    @torch.inference_mode()
    def __call__(self, images: Tensor) -> Tensor:
        logits = self.forward(images)
        return logits if self.correction is None else self.correction.apply_(logits)


def folded_network(network: Network) -> Network:
    """The network for inference only, with batch-norm folded into the convolutions before it.

    A frozen backbone is folded already.
    """
    # The head is shared and not copied: with many classes it is most of the memory.
    network = copy.deepcopy(network, {id(network.head): network.head})
    if not network.frozen:
        network.backbone = folded(network.backbone)
    return network
