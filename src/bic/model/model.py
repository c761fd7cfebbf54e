"""Model: what predicts. A network, an answer, class names and preprocessing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bic.data.batches import plain_batches
from bic.data.decode_pool import decoding, default_processes
from bic.data.from_python import Images, as_model_input
from bic.data.preprocessing import Preprocessing
from bic.model.answers import Answer, Correction, Outputs, RawHead
from bic.model.network import Network

Tensors = dict[str, Tensor]


class Model:
    """A classifier. `answer` turns the outputs of `network` into final logits.

    `classes` are the class names in the order in which they were learned. `classes_per_step` has
    the number of new classes of each step. `retired` has the positions of classes that are never
    predicted again: their final logits are −∞ and their probabilities 0.
    """

    def __init__(
        self,
        network: Network,
        backbone: str,
        preprocessing: Preprocessing,
        *,
        classes: Sequence[str] = (),
        classes_per_step: Sequence[int] = (),
        answer: Answer | None = None,
        retired: Sequence[int] = (),
    ) -> None:
        self.network = network
        self.backbone = backbone
        self.preprocessing = preprocessing
        self.classes = tuple(classes)
        self.classes_per_step = tuple(classes_per_step)
        self.answer = RawHead() if answer is None else answer
        self.retired = tuple(retired)

    @classmethod
    def fresh(cls, backbone: str, preprocessing: Preprocessing) -> Self:
        """An untrained model without classes."""
        channels = preprocessing.channels
        network = Network(backbone, channels=channels, image_size=preprocessing.size)
        return cls(network, backbone, preprocessing)

    @property
    def correction(self) -> Correction | None:
        """α and β of the final logits, if the answer has a correction."""
        return self.answer.correction

    @property
    def active(self) -> list[int]:
        """The positions of the classes that can be predicted: all but the retired ones."""
        retired = set(self.retired)
        return [position for position in range(len(self.classes)) if position not in retired]

    def to(self, device: str) -> Self:
        """The model itself, moved to a device."""
        self.network.to(device)
        self.answer.to(device)
        return self

    @torch.no_grad()
    def logits(self, images: Tensor | npt.NDArray[Any]) -> tuple[Tensor, Tensor]:
        """Raw and final logits [batch, classes] of pixels [batch, channels, size, size]."""
        self.network.eval()
        images = torch.as_tensor(images, device=self.network.device)
        features = self.network.features(images)
        raw = self.network.head_logits(features)
        final = self.answer(Outputs(images, features, raw))
        if self.retired:
            final = final.index_fill(
                1, final.new_tensor(self.retired, dtype=torch.int64), -torch.inf
            )
        return raw, final

    def predict(self, images: Images) -> list[str]:
        """The class name of each image.

        Raises UserError for images that cannot be read or do not fit the model.
        """
        best = self.predict_logits(images).argmax(axis=1)
        return [self.classes[position] for position in best]

    def predict_proba(self, images: Images) -> npt.NDArray[np.float32]:
        """Probabilities [images, classes] in the order of `classes`: softmax of the final logits.

        iCaRL answers with distances: its figures only rank the classes and are not probabilities.
        """
        logits = torch.from_numpy(self.predict_logits(images))
        return np.asarray(torch.softmax(logits, dim=1).numpy())

    def predict_logits(self, images: Images) -> npt.NDArray[np.float32]:
        """Final logits [images, classes]."""
        image_set = as_model_input(images, self.preprocessing)
        logits = np.empty((len(image_set), len(self.classes)), dtype=np.float32)
        with decoding(default_processes("cpu") if image_set.pixels is None else 0):
            for pixels, indices in plain_batches(image_set, num_outputs=len(self.classes)):
                logits[indices] = self.logits(pixels)[1].cpu().numpy()
        return logits

    def save(self, folder: Path | str) -> None:
        """Write the model to a folder that does not exist yet, completely or not at all."""
        from bic.model.saved import save_model

        save_model(self, Path(folder))

    @classmethod
    def load(cls, folder: Path | str, *, trust: bool = False) -> "Model":
        """The model in a folder: a model folder, or a complete run folder.

        No code from the folder is run. A backbone of the form `module:function` is imported only
        with `trust`. Raises UserError for a folder that holds no model, or a damaged one.
        """
        from bic.model.saved import load_model

        return load_model(Path(folder), trust=trust)
