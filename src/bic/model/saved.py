"""Models on disk: `model.json` and `weights.safetensors`. Everything in them is checked."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Self

import safetensors
import safetensors.torch
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bic import files
from bic.class_names import name_problem
from bic.data.preprocessing import Preprocessing
from bic.errors import BicError, UserError
from bic.foreign_files import parse_json, refuse_unpacking
from bic.model.answers import (
    Answer,
    Blend,
    BlendedHead,
    CorrectedHead,
    Correction,
    HeadAndMeans,
    NearestMean,
    PreviousNetwork,
    RawHead,
    RetrainedHead,
)
from bic.model.backbones import is_imported
from bic.model.calibration import MAX_CERTAINTIES, Calibration
from bic.model.format_1 import from_format_1
from bic.model.model import Model, Tensors
from bic.model.network import Network
from bic.model.tensor_files import read_tensors, refuse_odd_numbers, refuse_other_tensors
from bic.model.version_files import is_versioned, read_live

# Of model.json. 1 had a correction, class means or a head in place of an answer; 2 had no frozen
# backbones.
FORMAT = 3
DESCRIPTION = "model.json"
WEIGHTS = "weights.safetensors"
BACKBONE = "backbone.safetensors"  # of a frozen backbone: the same in all versions of a model
MAX_SIZE = 8192  # pixels
PREVIOUS = "previous.network."  # prefix of the tensors of an answer's previous network
OWN_BACKBONE = "network.backbone."
PREVIOUS_BACKBONE = f"answer.{PREVIOUS}backbone."
BYTES_PER_PIXEL = 100  # that a network takes for each pixel of an image, at least
MAX_REASON = 200  # characters of the reason for which a model is refused
TRIED_SIZE = 512  # pixels; a network for larger images is not tried out when it is loaded


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class CorrectionDescription(Strict):
    alpha: float
    beta: float
    num_old: int = Field(ge=0)


class BlendDescription(Strict):
    head: float
    means: float
    correction: CorrectionDescription


class AnswerDescription(Strict):
    kind: str
    correction: CorrectionDescription | None = None
    teacher_correction: CorrectionDescription | None = None
    previous_correction: CorrectionDescription | None = None
    share: float = Field(0.0, ge=0, lt=1)
    blend: BlendDescription | None = None


class PreprocessingDescription(Strict):
    channels: int = Field(ge=1)
    size: int | None = Field(None, ge=1, le=MAX_SIZE)
    resize: int | None = Field(None, ge=1, le=MAX_SIZE)
    bicubic: bool = False

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Images are grey or RGB, and are not enlarged after the cut."""
        if self.size is not None and self.channels not in (1, 3):
            raise ValueError("images have 1 or 3 channels")
        if self.resize is not None and (self.size is None or self.size > self.resize):
            raise ValueError("size must be at most resize")
        return self


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
    retired: list[int] = []
    frozen: bool = False


def description(model: Model) -> dict[str, Any]:
    """Everything that is not a tensor."""
    preprocessing = model.preprocessing
    described = {
        "format": FORMAT,
        "classes": list(model.classes),
        "classes_per_step": list(model.classes_per_step),
        "backbone": model.backbone,
        "preprocessing": asdict(preprocessing),
        "answer": model.answer.description(),
    }
    if model.network.frozen:
        described["frozen"] = True
    if model.retired:
        described["retired"] = list(model.retired)
    if model.calibration is not None:
        described["calibration"] = asdict(model.calibration)
    return described


def tensors(model: Model) -> Tensors:
    """All tensors, the network's under `network.` and the answer's under `answer.`."""
    named = {f"network.{name}": tensor for name, tensor in model.network.state_dict().items()}
    for name, tensor in model.answer.state_dict().items():
        named[f"answer.{name}"] = tensor
    return named


def tensors_by_file(model: Model) -> dict[str, Tensors]:
    """The tensors of each file.

    A frozen backbone has a file of its own. The network of the previous step has the same one.
    """
    named = tensors(model)
    if not model.network.frozen:
        return {WEIGHTS: named}
    weights: Tensors = {}
    backbone: Tensors = {}
    for name, tensor in named.items():
        if name.startswith(OWN_BACKBONE):
            backbone[name] = tensor
        elif not name.startswith(PREVIOUS_BACKBONE):
            weights[name] = tensor
    return {WEIGHTS: weights, BACKBONE: backbone}


def _joined(content: Mapping[str, bytes]) -> Tensors:
    """The tensors of all files: the reverse of `tensors_by_file`."""
    named = read_tensors(content[WEIGHTS])
    if BACKBONE not in content:
        return named
    backbone = read_tensors(content[BACKBONE])
    has_previous = any(name.startswith(f"answer.{PREVIOUS}") for name in named)
    for name, tensor in backbone.items():
        if not name.startswith(OWN_BACKBONE):
            raise ValueError(f"{BACKBONE} holds {name}")
        named[name] = tensor
        if has_previous:
            named[PREVIOUS_BACKBONE + name.removeprefix(OWN_BACKBONE)] = tensor
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

    contents: dict[str, files.Content] = {DESCRIPTION: files.to_json(description(model))}
    for name, named in tensors_by_file(model).items():
        contents[name] = partial(write_tensors, named)
    return contents


def save_model(model: Model, folder: Path) -> None:
    """Write a model to a new folder. Raises UserError if the folder exists."""
    if folder.exists():
        raise UserError(f"{folder} exists already", "choose another folder")
    files.write_folder(folder, model_files(model))


def load_model(folder: Path, *, trust: bool = False) -> Model:
    """The model in a model folder or a complete run folder, ready to predict."""
    for place in (folder / "model", folder):
        if is_versioned(place):
            _, contents = read_live(place, (DESCRIPTION, WEIGHTS), optional=(BACKBONE,))
            return model_of(contents, place, trust=trust)
    place = find_model_folder(folder)
    contents = files.read_folder(place, (DESCRIPTION, WEIGHTS), optional=(BACKBONE,))
    return model_of(contents, place, trust=trust)


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
    with _refusing_damage(place):
        found = parse_json(content[DESCRIPTION])
        if not isinstance(found, dict):
            raise ValueError("model.json holds no object")
        written_format = found.get("format", 1)
        if isinstance(written_format, int) and written_format > FORMAT:
            raise UserError(f"{place} was written by a newer version of bic", "upgrade bic")
        named = _joined(content)
        if written_format == 1:
            found, named = from_format_1(found, named)
            found["format"] = FORMAT
        checked = ModelDescription.model_validate(found)
        if is_imported(checked.backbone) and not trust:
            raise UserError(
                f"the model in {place} would import and run {checked.backbone}",
                "pass {trust} if you trust where it comes from",
            )
        refuse_odd_numbers(named)
        model = _build(checked, named, trust=trust)
        side = checked.preprocessing.size or 1
        num_bytes = len(content[WEIGHTS]) + len(content.get(BACKBONE, b""))
        refuse_unpacking(place, num_bytes, BYTES_PER_PIXEL * side**2)
        return model


@contextmanager
def _refusing_damage(place: Path) -> Iterator[None]:
    """Turn any exception into a UserError: a foreign file can fail in any way."""
    try:
        yield
    except (BicError, MemoryError):
        raise
    except ValidationError as error:
        found = error.errors()[0]
        where = ".".join(map(str, found["loc"]))
        raise _damaged(place, f"{where}: {found['msg']}"[:MAX_REASON]) from error
    except KeyError as error:
        raise _damaged(place, f"it lacks {error}"[:MAX_REASON]) from error
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise _damaged(place, reason[:MAX_REASON]) from error


def _damaged(place: Path, reason: str) -> UserError:
    return UserError(f"{place} is damaged or not a model ({reason})", "copy or train it again")


def _build(checked: ModelDescription, named: Tensors, *, trust: bool) -> Model:
    num_classes = len(checked.classes)
    if sum(checked.classes_per_step) != num_classes or min(checked.classes_per_step) < 0:
        raise ValueError("its steps and its classes disagree")
    num_outputs = len(named["network.head.weight"])
    if num_outputs != num_classes:
        raise ValueError(f"{num_classes} class names for {num_outputs} outputs")
    problem = name_problem(checked.classes)
    if problem is not None:
        raise ValueError(problem)
    retired = set(checked.retired)
    if not retired < set(range(num_classes)) or len(retired) < len(checked.retired):
        raise ValueError("its retired classes are not among its classes, or are all of them")
    preprocessing = Preprocessing(**checked.preprocessing.model_dump())
    network = _network(checked.backbone, preprocessing, _under(named, "network."), trust=trust)
    if checked.frozen:
        if preprocessing.size is None:
            raise ValueError("only a network for images can be frozen")
        network.freeze()
    model = Model(
        network,
        checked.backbone,
        preprocessing,
        classes=checked.classes,
        classes_per_step=checked.classes_per_step,
        retired=checked.retired,
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
            backbone,
            channels=channels,
            image_size=size,
            num_features=num_features,
            trust=trust,
            weights=False,
        )

    # The user trusts an imported backbone. A network for large images takes too much memory to try.
    is_tried = not is_imported(backbone) and (size is None or size <= TRIED_SIZE)
    if not is_imported(backbone):
        # A forward pass on the meta device imports parts of torch that take a second to import.
        with torch.device("meta"):
            described = build(num_features if is_tried else None)
            expected = dict(described.state_dict())
            expected["head.weight"] = torch.empty(num_classes, described.num_features)
            expected["head.bias"] = torch.empty(num_classes)
        refuse_other_tensors(state, expected, backbone)
        if not num_features:
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
        return CorrectedHead(_needed(described.correction, shape[0]))
    # Cloned below, because a tensor in a file's buffer may not be aligned.
    if described.kind == NearestMean.kind:
        return NearestMean(_of_shape(state["means"], shape).clone())
    if described.kind == RetrainedHead.kind:
        weight = _of_shape(state["weight"], shape).clone()
        return RetrainedHead(weight, _of_shape(state["bias"], shape[:1]).clone())
    if described.kind == HeadAndMeans.kind:
        has_previous = any(name.startswith(PREVIOUS) for name in state)
        return HeadAndMeans(
            _of_shape(state["means"], shape).clone(),
            _blend(described.blend, shape[0]),
            correction=_correction(described.correction, shape[0]),
            teacher_correction=_correction(described.teacher_correction, shape[0]),
            previous=_previous(described, state, model, trust=trust) if has_previous else None,
        )
    if described.kind == BlendedHead.kind:
        return BlendedHead(
            _previous(described, state, model, trust=trust),
            _needed(described.correction, shape[0]),
            _correction(described.teacher_correction, shape[0]),
        )
    raise ValueError(f"unknown answer {described.kind!r}")


def _previous(
    described: AnswerDescription, state: Tensors, model: Model, *, trust: bool
) -> PreviousNetwork:
    network = _network(model.backbone, model.preprocessing, _under(state, PREVIOUS), trust=trust)
    if not 1 <= network.num_classes <= len(model.classes):
        raise ValueError("its previous network knows more classes than it does, or none")
    if model.network.frozen:
        network.freeze()
    correction = _correction(described.previous_correction, network.num_classes)
    return PreviousNetwork(network, correction, described.share)


def _of_shape(tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    if tuple(tensor.shape) != shape:
        raise ValueError(f"a tensor has the shape {list(tensor.shape)}, not {list(shape)}")
    if tensor.dtype != torch.float32:
        raise ValueError(f"a tensor has the type {tensor.dtype}, not {torch.float32}")
    return tensor


def _needed(described: CorrectionDescription | None, num_classes: int) -> Correction:
    if described is None:
        raise ValueError("its answer has no correction")
    if described.num_old > num_classes:
        raise ValueError("its correction has more old classes than there are classes")
    return Correction(**described.model_dump())


def _blend(described: BlendDescription | None, num_classes: int) -> Blend:
    if described is None:
        raise ValueError("its answer has no blend")
    correction = _needed(described.correction, num_classes)
    return Blend(described.head, described.means, correction)


def _correction(described: CorrectionDescription | None, num_classes: int) -> Correction | None:
    return None if described is None else _needed(described, num_classes)


def _under(named: Tensors, prefix: str) -> Tensors:
    """The tensors whose names start with `prefix`, without it."""
    start = len(prefix)
    return {name[start:]: tensor for name, tensor in named.items() if name.startswith(prefix)}
