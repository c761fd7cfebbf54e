"""Small saved models of every kind of answer, and changes to their files."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from bic import Correction, Model, Preprocessing
from bic.model.answers import (
    Answer,
    Blend,
    BlendedHead,
    CorrectedHead,
    HeadAndMeans,
    NearestMean,
    PreviousNetwork,
    RawHead,
    RetrainedHead,
    RidgeHead,
)
from bic.model.network import Network
from bic.model.random_features import RandomFeatures

CLASSES = ("ant", "bee", "cat", "dog", "eel")
CLASSES_PER_STEP = (2, 3)
NUM_FEATURES = {"mlp": 128, "mlp+mlp": 256, "small": 256}
ANSWERS = (
    *("head", "corrected", "nearest mean", "retrained", "blended", "blended twice"),
    *("head and means", "blended head and means", "ridge"),
)
GREY = Preprocessing(channels=1, size=8)


def prepared_network(backbone: str, preprocessing: Preprocessing, num_classes: int) -> Network:
    """An untrained network with measured normalisation."""
    channels = preprocessing.channels
    size = preprocessing.size
    network = Network(backbone, channels=channels, image_size=size)
    network.prepare(torch.rand(20, channels, *(() if size is None else (size, size))) * 255)
    network.head.grow(num_classes)
    return network.eval()


def answer_for(kind: str, backbone: str, preprocessing: Preprocessing) -> Answer:
    num_features = NUM_FEATURES[backbone]
    correction = Correction(0.7, -0.3, CLASSES_PER_STEP[0])
    if kind == "head":
        return RawHead()
    if kind == "corrected":
        return CorrectedHead(correction)
    if kind == "nearest mean":
        return NearestMean(torch.randn(len(CLASSES), num_features))
    if kind == "retrained":
        return RetrainedHead(torch.randn(len(CLASSES), num_features), torch.randn(len(CLASSES)))
    if kind == "ridge":
        expansion = RandomFeatures(num_features, 10, seed=3)
        weight = torch.randn(len(CLASSES), num_features + 10)
        means = torch.nn.functional.normalize(torch.randn(len(CLASSES), num_features), dim=1)
        return RidgeHead(expansion, weight, torch.randn(len(CLASSES)), means, penalty=0.1)
    if kind == "head and means":
        return HeadAndMeans(
            torch.randn(len(CLASSES), num_features),
            Blend(0.9, 5.5, Correction(0.6, -0.2, 2)),
            correction=correction,
            teacher_correction=correction,
        )
    network = prepared_network(backbone, preprocessing, CLASSES_PER_STEP[0])
    if kind == "blended head and means":
        return HeadAndMeans(
            torch.randn(len(CLASSES), num_features),
            Blend(0.9, 5.5, Correction(0.6, -0.2, 2)),
            correction=correction,
            teacher_correction=Correction(0.8, -0.4, 2),
            previous=PreviousNetwork(network, Correction(1.1, 0.2, 1), 0.25),
        )
    if kind == "blended":
        return BlendedHead(PreviousNetwork(network, None, 0.5), correction, None)
    previous = PreviousNetwork(network, Correction(1.1, 0.2, 1), 0.25)
    return BlendedHead(previous, correction, teacher_correction=Correction(0.8, -0.4, 2))


def made_model(
    kind: str = "head", backbone: str = "mlp", preprocessing: Preprocessing = GREY, seed: int = 0
) -> Model:
    """A model of five classes with random weights and the given kind of answer."""
    torch.manual_seed(seed)
    return Model(
        prepared_network(backbone, preprocessing, len(CLASSES)),
        backbone,
        preprocessing,
        classes=CLASSES,
        classes_per_step=CLASSES_PER_STEP,
        answer=answer_for(kind, backbone, preprocessing),
    )


def change_description(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change model.json in place, with a checksum that fits."""
    file = folder / "model.json"
    content = json.loads(file.read_bytes())
    change(content)
    file.write_text(json.dumps(content))
    renew_checksums(folder)


def change_tensors(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    """Change the tensors in place, with a checksum that fits."""
    file = folder / "weights.safetensors"
    tensors = safetensors.torch.load(file.read_bytes())
    change(tensors)
    safetensors.torch.save_file(tensors, file)
    renew_checksums(folder)


def renew_checksums(folder: Path) -> None:
    """Write checksums that fit the files as they are now."""
    checksums = {}
    for file in sorted(folder.iterdir()):
        if file.name != "checksums.json":
            checksums[file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
    (folder / "checksums.json").write_text(json.dumps(checksums))
