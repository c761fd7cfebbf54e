"""A model from its checked description and its tensors. Both may come from a stranger."""

from typing import Any, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator

from bic.class_names import name_problem
from bic.data.preprocessing import Preprocessing
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
    RidgeHead,
)
from bic.model.backbones import is_imported
from bic.model.calibration import MAX_CERTAINTIES, Calibration
from bic.model.model import Model, Tensors
from bic.model.network import Network
from bic.model.pretrained_backbones import Configs, configs_of
from bic.model.random_features import RandomFeatures
from bic.model.tensor_files import refuse_other_tensors

MAX_SIZE = 8192  # pixels
PREVIOUS = "previous.network."  # prefix of the tensors of an answer's previous network
MAX_RANDOM_FEATURES = 20_000
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
    random_features: int = Field(0, ge=0, le=MAX_RANDOM_FEATURES)
    seed: int = Field(0, ge=0, lt=2**32)
    penalty: float = Field(0.0, ge=0)


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
    backbone_configs: dict[str, dict[str, Any]] = {}


def build_model(checked: ModelDescription, named: Tensors, *, trust: bool) -> Model:
    """The model of a description. Raises ValueError or KeyError if the parts do not fit."""
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
    state = _under(named, "network.")
    configs = checked.backbone_configs
    network = _network(checked.backbone, preprocessing, state, configs, trust=trust)
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
    backbone: str, preprocessing: Preprocessing, state: Tensors, configs: Configs, *, trust: bool
) -> Network:
    """A network with these weights. Their shapes are compared before any memory is allocated."""
    num_classes, num_features = state["head.weight"].shape
    if tuple(state["mean"].shape) != (preprocessing.channels,):
        raise ValueError("its preprocessing does not fit its weights")
    if not num_features:
        raise ValueError(f"its weights are not those of the backbone {backbone}")
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
            configs=configs,
        )

    if is_imported(backbone):  # the user trusts it
        network = build(num_features)
        network.head.grow(num_classes)
        network.load_state_dict(state)
        return network
    # A network for large images takes too much memory to try. It is measured on the meta device,
    # where a forward pass imports parts of torch that take a second to import.
    is_tried = size is None or size <= TRIED_SIZE
    # On the meta device nothing is drawn at random. So loading leaves torch's random state alone,
    # on which a training in another thread depends.
    with torch.device("meta"):
        network = build(num_features if is_tried else None)
        network.head.make_room(num_classes)
    refuse_other_tensors(state, network.state_dict(), backbone)
    if configs:  # models of transformers have buffers that are in no file
        network = build(num_features)
        network.head.make_room(num_classes)
    else:
        network._apply(_empty_like)
    network.load_state_dict(state)
    if is_tried and network.measure_features(backbone, channels, size) != num_features:
        raise ValueError(f"its weights are not those of the backbone {backbone}")
    return network


def _empty_like(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor on the CPU without values.

    `to_empty` would import parts of torch that take a third of a second to import.
    """
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")


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
    if described.kind == RidgeHead.kind:
        num_features = shape[1]
        # The shapes are compared before the matrix of random features is made.
        weight = _of_shape(state["weight"], (shape[0], num_features + described.random_features))
        bias = _of_shape(state["bias"], shape[:1])
        expansion = RandomFeatures(num_features, described.random_features, described.seed)
        means = _of_shape(state["means"], shape)
        return RidgeHead(
            expansion, weight.clone(), bias.clone(), means.clone(), penalty=described.penalty
        )
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
    configs = configs_of(model.backbone, model.network.backbone)
    own = _under(state, PREVIOUS)
    network = _network(model.backbone, model.preprocessing, own, configs, trust=trust)
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
