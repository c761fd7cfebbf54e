"""Answers: what turns a network's features into final logits. Every model has exactly one."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bic.model.certainty import certainty
from bic.model.network import Network
from bic.model.random_features import RandomFeatures

Logits = TypeVar("Logits", Tensor, npt.NDArray[Any])


@dataclass(frozen=True)
class Correction:
    """q_k = o_k for the `num_old` old classes, α·o_k + β for the new ones (Eq. 4)."""

    alpha: float
    beta: float
    num_old: int

    def apply(self, logits: Logits) -> Logits:
        """Corrected logits [..., classes]. The input does not change."""
        return self.apply_(logits.clone() if isinstance(logits, Tensor) else logits.copy())

    def apply_(self, logits: Logits) -> Logits:
        """The logits, corrected in place."""
        logits[..., self.num_old :] *= self.alpha
        logits[..., self.num_old :] += self.beta
        return logits


@dataclass(frozen=True)
class Blend:
    """Corrected logits plus cosines to class means, in four numbers.

    With o_k the logit of class k and c_k the cosine between the feature and the mean of the class:
    q_k = a·o_k + γ·c_k for old classes, q_k = α·o_k + β + γ·c_k for new ones. `head` is a, `means`
    is γ, and `correction` has α and β. This is not in the paper; a = 1 and γ = 0 is its form.
    """

    head: float
    means: float
    correction: Correction

    def apply(self, logits: Tensor, cosines: Tensor) -> Tensor:
        """Final logits [..., classes] from raw logits and cosines of the same shape."""
        blended = self.correction.apply(logits)
        blended[..., : self.correction.num_old] *= self.head
        return blended.add_(cosines, alpha=self.means)


class Outputs(NamedTuple):
    """A network's outputs for a batch: what an answer can use."""

    images: Tensor
    features: Tensor  # [batch, num_features]
    logits: Tensor  # [batch, classes], raw


class Answer(nn.Module):
    """Maps a network's outputs to final logits [batch, classes].

    `correction` corrects the logits and is reported; `teacher_correction` corrects the network's
    own logits when the model teaches the next step. They differ if a previous network has a share.
    """

    kind: ClassVar[str]
    uses_head: ClassVar[bool] = True  # False: the network's head is not trained
    correction: Correction | None = None
    teacher_correction: Correction | None = None

    def forward(self, outputs: Outputs) -> Tensor:
        raise NotImplementedError

    def certainty(self, features: Tensor, probabilities: Tensor) -> Tensor:
        """How certain it is that images belong to one of the classes: [batch], in 0..1.

        features [batch, num_features]; probabilities [batch, classes].
        """
        return certainty(probabilities)

    def description(self) -> dict[str, Any]:
        """Everything that is not a tensor, for saving."""
        return {"kind": self.kind}


class RawHead(Answer):
    """The network's own logits."""

    kind = "head"

    def forward(self, outputs: Outputs) -> Tensor:
        return outputs.logits


class CorrectedHead(Answer):
    """BiC's answer: the logits of the newest classes corrected by α and β."""

    kind = "corrected head"

    def __init__(self, correction: Correction) -> None:
        super().__init__()
        self.correction = correction
        self.teacher_correction = correction

    def forward(self, outputs: Outputs) -> Tensor:
        assert self.correction is not None
        return self.correction.apply(outputs.logits)

    def description(self) -> dict[str, Any]:
        assert self.correction is not None
        return {"kind": self.kind, "correction": asdict(self.correction)}


class NearestMean(Answer):
    """iCaRL's answer: minus the squared distance to each class mean. means [classes, features]."""

    kind = "nearest mean"
    means: Tensor

    def __init__(self, means: Tensor) -> None:
        super().__init__()
        self.register_buffer("means", means)

    def forward(self, outputs: Outputs) -> Tensor:
        return -torch.cdist(F.normalize(outputs.features, dim=1), self.means).square()


class RetrainedHead(Answer):
    """Another head on the same features. weight [classes, features], bias [classes]."""

    kind = "retrained head"
    weight: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)

    def forward(self, outputs: Outputs) -> Tensor:
        return F.linear(outputs.features, self.weight, self.bias)


class RidgeHead(Answer):
    """The exact head: a linear map of random features. weight [classes, dim], bias [classes].

    `means` [classes, num_features] are class means of length 1, or zeros for a class without
    images. An image that is far from all of them belongs to none of the classes. On images of
    unknown classes this was a better guess than the probabilities. `penalty` is the ridge that the
    head was solved with; it is recorded and not used here.
    """

    kind = "ridge"
    uses_head = False
    weight: Tensor
    bias: Tensor
    means: Tensor

    def __init__(
        self,
        expansion: RandomFeatures,
        weight: Tensor,
        bias: Tensor,
        means: Tensor,
        *,
        penalty: float,
    ) -> None:
        super().__init__()
        self.expansion = expansion
        self.penalty = penalty
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)
        self.register_buffer("means", means)

    def forward(self, outputs: Outputs) -> Tensor:
        return F.linear(self.expansion(outputs.features), self.weight, self.bias)

    def certainty(self, features: Tensor, probabilities: Tensor) -> Tensor:
        """The cosine to the nearest class mean, mapped from −1..1 to 0..1."""
        nearest = cosines(features, self.means).amax(dim=1)
        return ((1 + nearest) / 2).clamp(0, 1)

    def description(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "random_features": self.expansion.count,
            "seed": self.expansion.seed,
            "penalty": self.penalty,
        }


class PreviousNetwork(nn.Module):
    """The network of the step before with its correction, and its share in the blended logits."""

    def __init__(self, network: Network, correction: Correction | None, share: float) -> None:
        super().__init__()
        self.network = network
        self.correction = correction
        self.share = share

    def blend(self, logits: Tensor, images: Tensor) -> Tensor:
        """Blend old-class logits with the previous network's, keeping their mean."""
        previous = self.network.eval()(images)
        if self.correction is not None:
            previous = self.correction.apply(previous)
        old, new = logits.tensor_split([previous.shape[1]], dim=1)
        shift = old.mean(dim=1, keepdim=True)
        previous = previous - previous.mean(dim=1, keepdim=True) + shift
        return torch.cat([torch.lerp(old, previous, self.share), new], dim=1)


class BlendedHead(Answer):
    """Logits blended with those of the previous network, then corrected."""

    kind = "blended head"

    def __init__(
        self,
        previous: PreviousNetwork,
        correction: Correction,
        teacher_correction: Correction | None,
    ) -> None:
        super().__init__()
        self.previous = previous
        self.correction = correction
        self.teacher_correction = teacher_correction

    def forward(self, outputs: Outputs) -> Tensor:
        assert self.correction is not None
        return self.correction.apply(self.previous.blend(outputs.logits, outputs.images))

    def description(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "correction": _optional(self.correction),
            "teacher_correction": _optional(self.teacher_correction),
            "share": self.previous.share,
            "previous_correction": _optional(self.previous.correction),
        }


class HeadAndMeans(Answer):
    """The corrected head and class means [classes, features], weighed by a Blend.

    `correction` is that of the head without the means; it is reported and not used here. With a
    previous network, the logits are first blended with its logits.
    """

    kind = "head and means"
    means: Tensor

    def __init__(
        self,
        means: Tensor,
        blend: Blend,
        *,
        correction: Correction | None,
        teacher_correction: Correction | None,
        previous: PreviousNetwork | None = None,
    ) -> None:
        super().__init__()
        self.register_buffer("means", means)
        self.blend = blend
        self.correction = correction
        self.teacher_correction = teacher_correction
        self.previous = previous

    def forward(self, outputs: Outputs) -> Tensor:
        logits = outputs.logits
        if self.previous is not None:
            logits = self.previous.blend(logits, outputs.images)
        return self.blend.apply(logits, cosines(outputs.features, self.means))

    def description(self) -> dict[str, Any]:
        described: dict[str, Any] = {
            "kind": self.kind,
            "correction": _optional(self.correction),
            "teacher_correction": _optional(self.teacher_correction),
            "blend": asdict(self.blend),
        }
        if self.previous is not None:
            described["share"] = self.previous.share
            described["previous_correction"] = _optional(self.previous.correction)
        return described


def cosines(features: Tensor, means: Tensor) -> Tensor:
    """Cosines [batch, classes] between features and class means of length 1 (0: no feature)."""
    return F.linear(F.normalize(features, dim=1), means)


def _optional(correction: Correction | None) -> dict[str, Any] | None:
    return None if correction is None else asdict(correction)
