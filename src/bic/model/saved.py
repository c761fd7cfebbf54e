"""Models on disk: `model.json` and `weights.safetensors`. Everything in them is checked."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bic import files
from bic.data.preprocessing import Preprocessing
from bic.errors import UserError
from bic.model.answers import (
    Answer,
    BlendedHead,
    CorrectedHead,
    Correction,
    NearestMean,
    PreviousNetwork,
    RawHead,
    RetrainedHead,
)
from bic.model.backbones import is_imported
from bic.model.calibration import MAX_CERTAINTIES, Calibration
from bic.model.model import Model, Tensors
from bic.model.network import Network

FORMAT = 2  # of model.json; 1 had a correction, class means or a head in place of an answer
DESCRIPTION = "model.json"
WEIGHTS = "weights.safetensors"
MAX_SIZE = 8192  # pixels
TRIED_SIZE = 512  # pixels; a network for larger images is not tried out when it is loaded


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class CorrectionDescription(Strict):
    alpha: float
    beta: float
    num_old: int = Field(ge=0)


class AnswerDescription(Strict):
    kind: str
    correction: CorrectionDescription | None = None
    teacher_correction: CorrectionDescription | None = None
    previous_correction: CorrectionDescription | None = None
    share: float = Field(0.0, ge=0, lt=1)


class PreprocessingDescription(Strict):
    channels: int = Field(ge=1)
    size: int | None = Field(None, ge=1, le=MAX_SIZE)
    resize: int | None = Field(None, ge=1, le=MAX_SIZE)


class CalibrationDescription(Strict):
    temperature: float
    certainties: tuple[float, ...] = Field(min_length=1, max_length=MAX_CERTAINTIES)
    num_images: int = Field(ge=1)


class ModelDescription(Strict):
    format: int
    classes: list[str] = Field(min_length=1)
    classes_per_step: list[int]
    backbone: str
    preprocessing: PreprocessingDescription
    answer: AnswerDescription
    calibration: CalibrationDescription | None = None


def description(model: Model) -> dict[str, Any]:
    """Everything that is not a tensor."""
    preprocessing = model.preprocessing
    described = {
        "format": FORMAT,
        "classes": list(model.classes),
        "classes_per_step": list(model.classes_per_step),
        "backbone": model.backbone,
        "preprocessing": {
            "channels": preprocessing.channels,
            "size": preprocessing.size,
            "resize": preprocessing.resize,
        },
        "answer": model.answer.description(),
    }
    if model.calibration is not None:
        described["calibration"] = asdict(model.calibration)
    return described


def tensors(model: Model) -> Tensors:
    """All tensors, the network's under `network.` and the answer's under `answer.`."""
    named = {f"network.{name}": tensor for name, tensor in model.network.state_dict().items()}
    for name, tensor in model.answer.state_dict().items():
        named[f"answer.{name}"] = tensor
    return named


def write_tensors(named: Tensors, path: Path) -> None:
    """Write a safetensors file without copying the tensors. A full disk raises OSError."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in named.items()}
    try:
        safetensors.torch.save_file(contiguous, path)
    except safetensors.SafetensorError as error:
        raise OSError(str(error)) from error
    path.chmod(path.parent.stat().st_mode & 0o666)  # the permissions of its folder


def model_files(model: Model) -> dict[str, files.Content]:
    """The files of a model folder."""

    def write_weights(path: Path) -> None:
        write_tensors(tensors(model), path)

    return {DESCRIPTION: files.to_json(description(model)), WEIGHTS: write_weights}


def save_model(model: Model, folder: Path) -> None:
    """Write a model to a new folder. Raises UserError if the folder exists."""
    if folder.exists():
        raise UserError(f"{folder} exists already", "choose another folder")
    files.write_folder(folder, model_files(model))


def load_model(folder: Path, *, trust: bool = False) -> Model:
    """The model in a model folder or a complete run folder, ready to predict."""
    place = find_model_folder(folder)
    return model_of(files.read_folder(place, (DESCRIPTION, WEIGHTS)), place, trust=trust)


def find_model_folder(folder: Path) -> Path:
    """The folder that holds the model: this one, or the `model` folder of a complete run."""
    if not folder.exists():
        raise UserError(f"{folder} does not exist", "give a folder that bic has written")
    for place in (folder / "model", folder):
        if (place / DESCRIPTION).exists():
            return place
    raise UserError(
        f"{folder} holds no model",
        "give a folder that a complete bic run or Model.save has written",
    )


def model_of(content: Mapping[str, bytes], place: Path, *, trust: bool) -> Model:
    """A model from the content of its files. `place` names it in errors."""
    try:
        named = safetensors.torch.load(content[WEIGHTS])
        found = json.loads(content[DESCRIPTION])
        if found.get("format", 1) == 1:
            found, named = _from_format_1(found, named)
        checked = ModelDescription.model_validate(found)
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        ValidationError,
    ) as error:
        raise _damaged(place, str(error).splitlines()[0]) from error
    except safetensors.SafetensorError as error:
        raise _damaged(place, str(error)) from error
    if checked.format > FORMAT:
        raise UserError(f"{place} was written by a newer version of bic", "upgrade bic")
    if is_imported(checked.backbone) and not trust:
        raise UserError(
            f"the model in {place} would import and run {checked.backbone}",
            "pass {trust} if you trust where it comes from",
        )
    try:
        return _build(checked, named, trust=trust)
    except (ValueError, KeyError, RuntimeError) as error:
        raise _damaged(place, str(error).splitlines()[0]) from error


def _damaged(place: Path, reason: str) -> UserError:
    return UserError(f"{place} is damaged or not a model ({reason})", "copy or train it again")


def _build(checked: ModelDescription, named: Tensors, *, trust: bool) -> Model:
    num_classes = len(checked.classes)
    if sum(checked.classes_per_step) != num_classes or min(checked.classes_per_step) < 0:
        raise ValueError("its steps and its classes disagree")
    preprocessing = Preprocessing(**checked.preprocessing.model_dump())
    network = _network(checked.backbone, preprocessing, _under(named, "network."), trust=trust)
    if network.num_classes != num_classes:
        raise ValueError(f"{num_classes} class names for {network.num_classes} outputs")
    model = Model(
        network,
        checked.backbone,
        preprocessing,
        classes=checked.classes,
        classes_per_step=checked.classes_per_step,
    )
    model.answer = _answer(checked.answer, _under(named, "answer."), model, trust=trust)
    if checked.calibration is not None:
        model.calibration = Calibration(**checked.calibration.model_dump())
    return model


def _network(
    backbone: str, preprocessing: Preprocessing, state: Tensors, *, trust: bool
) -> Network:
    """A network with these weights. Their shapes are compared before any memory is allocated."""
    num_classes, num_features = state["head.weight"].shape
    if tuple(state["mean"].shape) != (preprocessing.channels,):
        raise ValueError("its preprocessing does not fit its weights")
    channels = preprocessing.channels
    size = preprocessing.size

    def build(num_features: int | None) -> Network:
        return Network(
            backbone, channels=channels, image_size=size, num_features=num_features, trust=trust
        )

    # The user trusts an imported backbone. A network for large images takes too much memory to try.
    is_tried = not is_imported(backbone) and (size is None or size <= TRIED_SIZE)
    if not is_imported(backbone):
        # A forward pass on the meta device imports parts of torch that take a second to import.
        with torch.device("meta"):
            described = build(num_features if is_tried else None)
        expected = {name: tensor.shape for name, tensor in described.state_dict().items()}
        expected["head.weight"] = torch.Size((num_classes, described.num_features))
        expected["head.bias"] = torch.Size((num_classes,))
        if expected != {name: tensor.shape for name, tensor in state.items()} or not num_features:
            raise ValueError(f"its weights are not those of the backbone {backbone}")
    network = build(num_features)
    network.head.grow(num_classes)
    network.load_state_dict(state)
    if is_tried and network.measure_features(backbone, channels, size) != num_features:
        raise ValueError(f"its weights are not those of the backbone {backbone}")
    return network


def _answer(described: AnswerDescription, state: Tensors, model: Model, *, trust: bool) -> Answer:
    shape = (len(model.classes), model.network.num_features)
    if described.kind == RawHead.kind:
        return RawHead()
    if described.kind == CorrectedHead.kind:
        return CorrectedHead(_needed(described.correction))
    # Cloned below, because a tensor in a file's buffer may not be aligned.
    if described.kind == NearestMean.kind:
        return NearestMean(_of_shape(state["means"], shape).clone())
    if described.kind == RetrainedHead.kind:
        weight = _of_shape(state["weight"], shape).clone()
        return RetrainedHead(weight, _of_shape(state["bias"], shape[:1]).clone())
    if described.kind == BlendedHead.kind:
        previous = _network(
            model.backbone, model.preprocessing, _under(state, "previous.network."), trust=trust
        )
        if previous.num_classes > len(model.classes):
            raise ValueError("its previous network knows more classes than it does")
        return BlendedHead(
            PreviousNetwork(previous, _correction(described.previous_correction), described.share),
            _needed(described.correction),
            _correction(described.teacher_correction),
        )
    raise ValueError(f"unknown answer {described.kind!r}")


def _of_shape(tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    if tuple(tensor.shape) != shape:
        raise ValueError(f"a tensor has the shape {list(tensor.shape)}, not {list(shape)}")
    return tensor


def _needed(described: CorrectionDescription | None) -> Correction:
    if described is None:
        raise ValueError("its answer has no correction")
    return Correction(**described.model_dump())


def _correction(described: CorrectionDescription | None) -> Correction | None:
    return None if described is None else _needed(described)


def _under(named: Tensors, prefix: str) -> Tensors:
    """The tensors whose names start with `prefix`, without it."""
    start = len(prefix)
    return {name[start:]: tensor for name, tensor in named.items() if name.startswith(prefix)}


def _from_format_1(found: dict[str, Any], named: Tensors) -> tuple[dict[str, Any], Tensors]:
    """The description and tensors in the present format."""
    renamed: Tensors = {}
    for name, tensor in named.items():
        if name.startswith("previous."):
            name = f"answer.previous.network.{name.removeprefix('previous.')}"
        elif name == "class_means":
            name = "answer.means"
        elif name.startswith("own_head."):
            name = f"answer.{name.removeprefix('own_head.')}"
        elif not name.startswith("network."):
            continue
        if name.endswith("network.deviation"):
            name = f"{name.removesuffix('deviation')}std"
        renamed[name] = tensor
    answer: dict[str, Any] = {"kind": RawHead.kind}
    correction = found.get("correction")
    previous = found.get("previous")
    if previous is not None:
        answer = {
            "kind": BlendedHead.kind,
            "correction": correction,
            "teacher_correction": found.get("own_correction"),
            "share": previous["share"],
            "previous_correction": previous["correction"],
        }
    elif correction is not None:
        answer = {"kind": CorrectedHead.kind, "correction": correction}
    elif "answer.means" in renamed:
        answer = {"kind": NearestMean.kind}
    elif "answer.weight" in renamed:
        answer = {"kind": RetrainedHead.kind}
    return {**found, "format": FORMAT, "answer": answer}, renamed
