"""Models on disk: `model.json` and `weights.safetensors`. Everything in them is checked."""

import json
from collections.abc import Mapping
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
from bic.model.model import Model, Tensors
from bic.model.network import Network
from bic.model.version_files import is_versioned, read_live

FORMAT = 2  # of model.json; 1 had a correction, class means or a head in place of an answer
DESCRIPTION = "model.json"
WEIGHTS = "weights.safetensors"
MAX_SIZE = 8192  # pixels


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


class ModelDescription(Strict):
    format: int
    classes: list[str] = Field(min_length=1)
    classes_per_step: list[int]
    backbone: str
    preprocessing: PreprocessingDescription
    answer: AnswerDescription
    retired: list[int] = []


def description(model: Model) -> dict[str, Any]:
    """Everything that is not a tensor."""
    preprocessing = model.preprocessing
    retired = {"retired": list(model.retired)} if model.retired else {}
    return {
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
        **retired,
    }


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
    for place in (folder / "model", folder):
        if is_versioned(place):
            _, contents = read_live(place, (DESCRIPTION, WEIGHTS))
            return model_of(contents, place, trust=trust)
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
    retired = set(checked.retired)
    if not retired < set(range(num_classes)) or len(retired) < len(checked.retired):
        raise ValueError("its retired classes are not among its classes, or are all of them")
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
        retired=checked.retired,
    )
    model.answer = _answer(checked.answer, _under(named, "answer."), model, trust=trust)
    return model


def _network(
    backbone: str, preprocessing: Preprocessing, state: Tensors, *, trust: bool
) -> Network:
    """A network with these weights. Their shapes are compared before any memory is allocated."""
    num_classes, num_features = state["head.weight"].shape
    if tuple(state["mean"].shape) != (preprocessing.channels,):
        raise ValueError("its preprocessing does not fit its weights")

    def build(num_features: int | None = None) -> Network:
        network = Network(
            backbone,
            channels=preprocessing.channels,
            image_size=preprocessing.size,
            num_features=num_features,
            trust=trust,
        )
        network.head.grow(num_classes)
        return network

    if not is_imported(backbone):  # an imported backbone is trusted by the user
        with torch.device("meta"):
            expected = {name: tensor.shape for name, tensor in build().state_dict().items()}
        if expected != {name: tensor.shape for name, tensor in state.items()}:
            raise ValueError(f"its weights are not those of the backbone {backbone}")
    network = build(num_features)
    network.load_state_dict(state)
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
