"""Model: what predicts. A network, an answer, class names and preprocessing."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bic.data.batches import plain_batches
from bic.data.decode_pool import decoding, default_processes
from bic.data.from_python import Images, as_model_input
from bic.data.images import ImageSet
from bic.data.preprocessing import Preprocessing
from bic.errors import UserError
from bic.model.answers import Answer, Correction, Outputs, RawHead
from bic.model.calibration import Calibration
from bic.model.evaluation import Evaluation
from bic.model.network import Network
from bic.progress import Progress

if TYPE_CHECKING:
    from bic.model.export import Exported

Tensors = dict[str, Tensor]


class Judged(NamedTuple):
    """What a model says about a batch of images."""

    final: Tensor  # logits [batch, classes]
    probabilities: Tensor  # [batch, classes]
    certainty: Tensor  # that an image belongs to one of the classes: [batch], in 0..1


class Model:
    """A classifier. `answer` turns the outputs of `network` into final logits.

    `classes` are the class names in the order in which they were learned. `classes_per_step` has
    the number of new classes of each step. `calibration` makes probabilities of the final logits; a
    model without one uses their softmax as it is. `retired` has the positions of classes that are
    never predicted again: their final logits are −∞ and their probabilities 0.
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
        calibration: Calibration | None = None,
        retired: Sequence[int] = (),
    ) -> None:
        self.network = network
        self.backbone = backbone
        self.preprocessing = preprocessing
        self.classes = tuple(classes)
        self.classes_per_step = tuple(classes_per_step)
        self.answer = RawHead() if answer is None else answer
        self.calibration = calibration
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
        """Raw and final logits [batch, classes] of pixels [batch, channels, size, size].

        Without a trained head, the raw logits are the final ones.
        Raises UserError if they are not finite, as those of extreme weights.
        """
        outputs = self.outputs(images)
        return self.raw_and_final(outputs)

    @torch.no_grad()
    def judged(self, images: Tensor | npt.NDArray[Any]) -> Judged:
        """Final logits, probabilities and certainty of pixels [batch, channels, size, size].

        Raises UserError as `logits` does.
        """
        outputs = self.outputs(images)
        final = self.raw_and_final(outputs)[1]
        probabilities = self.probabilities(final)
        certain = self.answer.certainty(outputs.features, probabilities)
        return Judged(final, probabilities, certain)

    @torch.no_grad()
    def outputs(self, images: Tensor | npt.NDArray[Any]) -> Outputs:
        """What the network makes of pixels, in evaluation mode."""
        self.network.eval()
        images = torch.as_tensor(images, device=self.network.device)
        features = self.network.features(images)
        return Outputs(images, features, self.network.head_logits(features))

    @torch.no_grad()
    def raw_and_final(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        """Raw and final logits, as `logits` returns them."""
        raw = outputs.logits
        final = self.answer(outputs)
        if not torch.isfinite(final).all():
            raise UserError(
                "the model's logits are NaN or infinite",
                "check the images for extreme values, or train the model again",
            )
        if not self.answer.uses_head:
            raw = final
        if self.retired:
            final = final.index_fill(
                1, final.new_tensor(self.retired, dtype=torch.int64), -torch.inf
            )
        return raw, final

    @overload
    def predict(self, images: Images) -> list[str]: ...

    @overload
    def predict(self, images: Images, *, reject: float) -> list[str | None]: ...

    def predict(
        self, images: Images, *, reject: float | None = None
    ) -> list[str] | list[str | None]:
        """The class name of each image.

        With `reject`, the answer is None for an image that seems to belong to none of the classes.
        The threshold is the one that wrongly rejects this share of the held-out images. Raises
        UserError for images that cannot be read or do not fit the model.
        """
        threshold = None if reject is None else self.threshold(reject)
        image_set = as_model_input(images, self.preprocessing)
        answers: list[str | None] = [None] * len(image_set)
        with decoding(default_processes("cpu") if image_set.is_decoded else 0):
            for pixels, indices in plain_batches(image_set, num_outputs=len(self.classes)):
                if threshold is None:
                    final = self.logits(pixels)[1]
                    is_known = [True] * len(final)
                else:
                    judged = self.judged(pixels)
                    final = judged.final
                    is_known = [value >= threshold for value in judged.certainty.tolist()]
                best = final.argmax(dim=1).tolist()
                for index, position, known in zip(indices.tolist(), best, is_known, strict=True):
                    if known:
                        answers[index] = self.classes[position]
        return answers

    def predict_proba(self, images: Images) -> npt.NDArray[np.float32]:
        """Probabilities [images, classes] in the order of `classes`.

        Without a calibration, the figures of iCaRL, which answers with distances, only rank the
        classes and are not probabilities.
        """
        logits = torch.from_numpy(self.predict_logits(images))
        return np.asarray(self.probabilities(logits).numpy())

    def probabilities(self, logits: Tensor) -> Tensor:
        """The softmax of final logits [..., classes], divided by the temperature if any."""
        if self.calibration is not None:
            logits = logits / self.calibration.temperature
        return torch.softmax(logits, dim=-1)

    def threshold(self, share: float) -> float:
        """The certainty below which an image is none of the classes.

        It wrongly rejects `share` of the held-out images. Raises UserError for a model without a
        calibration.
        """
        if self.calibration is None:
            raise UserError(
                "this model is not calibrated, so it cannot tell images of other classes apart",
                "leave out {reject}, or learn with a method that holds images out, such as bic",
            )
        return self.calibration.threshold(share)

    def predict_logits(self, images: Images) -> npt.NDArray[np.float32]:
        """Final logits [images, classes]."""
        image_set = as_model_input(images, self.preprocessing)
        logits = np.empty((len(image_set), len(self.classes)), dtype=np.float32)
        with decoding(default_processes("cpu") if image_set.is_decoded else 0):
            for pixels, indices in plain_batches(image_set, num_outputs=len(self.classes)):
                logits[indices] = self.logits(pixels)[1].cpu().numpy()
        return logits

    def evaluate(
        self,
        images: Images,
        labels: Sequence[Any] | npt.NDArray[Any] | None = None,
        *,
        classes: Sequence[str] | None = None,
        reject: float | None = None,
        progress: Progress | None = None,
    ) -> Evaluation:
        """Classify labelled test images and sum up how well that went.

        `labels` has the class of each image: a name or an integer; 7 stands for the class "7". An
        ImageSet can be passed without `labels`: its own labels are then positions in `classes`.
        Images of classes that the model does not know are counted apart: with `reject`, "none of
        these" is the right answer for them.

        Raises UserError for images that cannot be used, and if no class of them is known.
        """
        from bic.model.evaluate_model import evaluate_model

        image_set = as_model_input(images, self.preprocessing)
        if labels is not None:
            names = [str(label) for label in labels]
            if len(names) != len(image_set):
                problem = f"there are {len(image_set):,} images and {len(names):,} labels"
                raise UserError(problem, "pass one label per image")
            classes = sorted(set(names))
            position = {name: number for number, name in enumerate(classes)}
            numbers = np.array([position[name] for name in names], dtype=np.int64)
            image_set = replace(image_set, labels=numbers)
        if classes is None:
            raise UserError("the images have no labels", "pass labels, one for each image")
        return evaluate_model(self, image_set, classes, reject=reject, progress=progress)

    def save(self, folder: Path | str) -> None:
        """Write the model to a folder that does not exist yet, completely or not at all."""
        from bic.model.saved import save_model

        save_model(self, Path(folder))

    def export(
        self,
        path: Path | str,
        *,
        int8: bool = False,
        held_out: ImageSet | None = None,
        safetensors: bool = False,
    ) -> "Exported":
        """Write the model to a file that runs without bic, and return what was written.

        The file is in ONNX's format. It takes images of any size (or vectors), and its outputs are
        logits and probabilities. Before it is written, its logits are compared with the model's.
        `int8` makes it smaller and faster, if that costs less than a point of accuracy on
        `held_out`, images that were never trained on; their labels are positions in `classes`.

        With `safetensors`, `path` is a new folder for the weights and a list of operations that
        plain torch can run. Raises UserError if packages are missing or int8 costs too much.
        """
        from bic.model.export import export_onnx
        from bic.model.weight_files import export_weights

        if not safetensors:
            return export_onnx(self, Path(path), int8=int8, held_out=held_out)
        if int8:
            raise UserError("int8 is for ONNX files only", "leave out {int8} or {safetensors}")
        return export_weights(self, Path(path))

    @classmethod
    def load(cls, folder: Path | str, *, trust: bool = False) -> "Model":
        """The model in a folder: a model folder, or a complete run folder.

        No code from the folder is run. A backbone of the form `module:function` is imported only
        with `trust`. Raises UserError for a folder that holds no model, or a damaged one.
        """
        from bic.model.saved import load_model

        return load_model(Path(folder), trust=trust)
