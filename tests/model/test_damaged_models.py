"""Damaged and hostile model folders: one sentence, at once, and with little memory."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.memory_limit import memory_limit
from support.model_folders import change_description, change_tensors, made_model, renew_checksums
from torch import Tensor

from bic import Model, UserError

MAX_SECONDS = 1.0
MAX_BYTES = 2**28
Change = Callable[[Path], object]


def described(change: Callable[[dict[str, Any]], object]) -> Change:
    """A change of model.json."""
    return lambda folder: change_description(folder, change)


def stored(change: Callable[[dict[str, Tensor]], object]) -> Change:
    """A change of the tensors."""
    return lambda folder: change_tensors(folder, change)


def written(name: str, content: bytes) -> Change:
    """Other content of a file, with a checksum that fits."""

    def change(folder: Path) -> None:
        (folder / name).write_bytes(content)
        renew_checksums(folder)

    return change


def write_checksums(content: str) -> Change:
    return lambda folder: (folder / "checksums.json").write_text(content)


def truncate_weights(folder: Path) -> None:
    file = folder / "weights.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    renew_checksums(folder)


def name_a_million_classes(content: dict[str, Any]) -> None:
    content["classes"] = [f"class {number}" for number in range(10**6)]
    content["classes_per_step"] = [10**6]


def name_three_million_classes(content: dict[str, Any]) -> None:
    content["classes"] = [f"class {number}" for number in range(3 * 10**6)]
    content["classes_per_step"] = [3 * 10**6]


def rename_class(name: str) -> Change:
    """Another name of the first class."""
    return described(lambda content: content["classes"].__setitem__(0, name))


def forget_previous_classes(tensors: dict[str, Tensor]) -> None:
    for part in ("weight", "bias"):
        name = f"answer.previous.network.head.{part}"
        tensors[name] = tensors[name][:0].clone()


def correct(**values: Any) -> Change:
    """Another correction in model.json."""
    return described(lambda content: content["answer"]["correction"].update(values))


HEADER_OF_4_EXABYTES = (2**62).to_bytes(8, "little") + b"{}"

# Each folder holds a blended model, which has every part. (change, what the error says)
DAMAGE: dict[str, tuple[Change, str]] = {
    "10**9 channels": (
        described(lambda content: content["preprocessing"].update(channels=10**9)),
        "images have 1 or 3 channels",
    ),
    "three channels": (
        described(lambda content: content["preprocessing"].update(channels=3)),
        "its preprocessing does not fit its weights",
    ),
    "a size of 10**6": (
        described(lambda content: content["preprocessing"].update(size=10**6)),
        "is damaged or not a model",
    ),
    "the largest size": (
        described(lambda content: content["preprocessing"].update(size=8192)),
        "its weights are not those of the backbone mlp",
    ),
    "no size": (
        described(lambda content: content["preprocessing"].update(size=None)),
        "its weights are not those of the backbone mlp",
    ),
    "a million classes": (described(name_a_million_classes), "1000000 class names for 5 outputs"),
    "steps that do not add up": (
        described(lambda content: content.update(classes_per_step=[2, 2])),
        "its steps and its classes disagree",
    ),
    "a negative step": (
        described(lambda content: content.update(classes_per_step=[6, -1])),
        "its steps and its classes disagree",
    ),
    "half a class": (
        described(lambda content: content.update(classes_per_step=[2.5, 2.5])),
        "is damaged or not a model",
    ),
    "no classes": (
        described(lambda content: content.update(classes=[], classes_per_step=[])),
        "is damaged or not a model",
    ),
    "classes that are not text": (
        described(lambda content: content.update(classes=[1, 2, 3, 4, 5])),
        "is damaged or not a model",
    ),
    "a NaN in the correction": (correct(alpha=float("nan")), "is damaged or not a model"),
    "an infinite correction": (correct(beta=float("-inf")), "is damaged or not a model"),
    "a correction that is text": (correct(alpha="nan"), "is damaged or not a model"),
    "a negative number of old classes": (correct(num_old=-1), "is damaged or not a model"),
    "half an old class": (correct(num_old=0.5), "is damaged or not a model"),
    "a share of one": (
        described(lambda content: content["answer"].update(share=1.0)),
        "is damaged or not a model",
    ),
    "no correction": (
        described(lambda content: content["answer"].pop("correction")),
        "its answer has no correction",
    ),
    "an unknown answer": (
        described(lambda content: content["answer"].update(kind="oracle")),
        "unknown answer 'oracle'",
    ),
    "no answer": (described(lambda content: content.pop("answer")), "is damaged or not a model"),
    "an unknown backbone": (
        described(lambda content: content.update(backbone="banana")),
        "unknown backbone 'banana'",
    ),
    "another backbone": (
        described(lambda content: content.update(backbone="small")),
        "its weights are not those of the backbone small",
    ),
    "a newer format": (
        described(lambda content: content.update(format=99)),
        "was written by a newer version of bic; upgrade bic",
    ),
    "a newer format with other fields": (
        written("model.json", b'{"format": 4, "labels": ["cat"]}'),
        "was written by a newer version of bic; upgrade bic",
    ),
    "an infinite format": (
        described(lambda content: content.update(format=float("inf"))),
        "is damaged or not a model",
    ),
    "a format that is no number": (
        described(lambda content: content.update(format=[2])),
        "is damaged or not a model",
    ),
    "format 1 with a strange previous network": (
        described(lambda content: content.update(format=1, previous=5)),
        "is damaged or not a model",
    ),
    "a newer format without anything else": (
        written("model.json", b'{"format": 4}'),
        "was written by a newer version of bic; upgrade bic",
    ),
    "three million classes": (described(name_three_million_classes), "JSON of "),
    "an empty class name": (rename_class(""), "the class name '' is empty or not printable"),
    "an escape sequence": (
        rename_class("\x1b]0;title\x07"),
        r"the class name '\x1b]0;title\x07' is empty or not printable",
    ),
    "a long class name": (rename_class("x" * 300), "has 300 characters, more than 255"),
    "a class named twice": (rename_class("bee"), "class 'bee' is named twice"),
    "half a character": (rename_class("\ud800"), r"the class name '\ud800' is empty"),
    "a correction of too many classes": (
        correct(num_old=6),
        "its correction has more old classes than there are classes",
    ),
    "five channels": (
        described(lambda content: content["preprocessing"].update(channels=5)),
        "images have 1 or 3 channels",
    ),
    "a size above resize": (
        described(lambda content: content["preprocessing"].update(resize=4)),
        "size must be at most resize",
    ),
    "a thousand networks": (
        described(lambda content: content.update(backbone="+".join(["mlp"] * 1000))),
        "an ensemble has at most 64 members, got 1,000",
    ),
    "a backbone with an escape sequence": (
        described(lambda content: content.update(backbone="\x1b[2J")),
        r"unknown backbone '\x1b[2J'",
    ),
    "NaN in the weights": (
        stored(lambda tensors: tensors["network.backbone.1.weight"][3].fill_(float("nan"))),
        "network.backbone.1.weight holds NaN or infinity",
    ),
    "infinity in the previous head": (
        stored(
            lambda tensors: tensors["answer.previous.network.head.bias"][:1].fill_(float("inf"))
        ),
        "answer.previous.network.head.bias holds NaN or infinity",
    ),
    "a negative variance": (
        stored(lambda tensors: tensors["network.backbone.2.running_var"].fill_(-1)),
        "network.backbone.2.running_var holds a negative variance",
    ),
    "a std of zero": (
        stored(lambda tensors: tensors["network.std"].zero_()),
        "network.std holds a standard deviation that is not positive",
    ),
    "weights in double precision": (
        stored(lambda tensors: tensors.update({"network.head.bias": torch.zeros(5).double()})),
        "head.bias has the type torch.float64, not torch.float32",
    ),
    "weights that are whole numbers": (
        stored(lambda tensors: tensors.update({"network.head.bias": torch.zeros(5).long()})),
        "head.bias has the type torch.int64, not torch.float32",
    ),
    "a previous network without classes": (
        stored(forget_previous_classes),
        "its previous network knows more classes than it does, or none",
    ),
    "no JSON": (written("model.json", b"model"), "is damaged or not a model"),
    "JSON that is not an object": (written("model.json", b"[1, 2]"), "is damaged or not a model"),
    "no UTF-8": (written("model.json", b"\xff\xfe{}"), "is damaged or not a model"),
    "deep nesting": (written("model.json", b"[" * 10**6), "is damaged or not a model"),
    "a missing tensor": (
        stored(lambda tensors: tensors.pop("network.head.bias")),
        "its weights are not those of the backbone mlp",
    ),
    "a missing tensor of the answer": (
        stored(lambda tensors: tensors.pop("answer.previous.network.head.weight")),
        "is damaged or not a model",
    ),
    "an extra tensor": (
        stored(lambda tensors: tensors.update({"network.extra": torch.zeros(3)})),
        "its weights are not those of the backbone mlp",
    ),
    "a head of another shape": (
        stored(lambda tensors: tensors.update({"network.head.weight": torch.zeros(5, 100)})),
        "its weights are not those of the backbone mlp",
    ),
    "a head that is one number": (
        stored(lambda tensors: tensors.update({"network.head.weight": torch.tensor(1.0)})),
        "is damaged or not a model",
    ),
    "a head without features": (
        stored(lambda tensors: tensors.update({"network.head.weight": torch.zeros(5, 0)})),
        "its weights are not those of the backbone mlp",
    ),
    "a billion outputs": (
        stored(lambda tensors: tensors.update({"network.head.weight": torch.zeros(10**9, 0)})),
        "5 class names for 1000000000 outputs",
    ),
    "a kernel of another shape": (
        stored(lambda tensors: tensors.update({"network.backbone.1.weight": torch.zeros(3, 3)})),
        "its weights are not those of the backbone mlp",
    ),
    "truncated weights": (truncate_weights, "is damaged or not a model"),
    "weights with an absurd header": (
        written("weights.safetensors", HEADER_OF_4_EXABYTES),
        "is damaged or not a model",
    ),
    "empty weights": (written("weights.safetensors", b""), "is damaged or not a model"),
    "a checksum that does not fit": (
        lambda folder: (folder / "model.json").write_text("{}"),
        "model.json is damaged",
    ),
    "checksums of a file outside": (
        write_checksums(json.dumps({"../x": "0" * 64})),
        "is not complete",
    ),
    "checksums that are a list": (write_checksums("[]"), "is not complete"),
    "checksums that are not JSON": (write_checksums("{"), "is not complete"),
    "no weights": (lambda folder: (folder / "weights.safetensors").unlink(), "is not complete"),
}


@pytest.fixture(scope="module", autouse=True)
def _first_model(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The first model that a process loads imports parts of torch, which takes a second."""
    folder = tmp_path_factory.mktemp("first") / "model"
    made_model().save(folder)
    Model.load(folder)


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_model_is_refused_in_one_sentence(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "model"
    made_model("blended twice").save(folder)
    change, reason = DAMAGE[damage]
    change(folder)
    start = time.process_time()
    with memory_limit(MAX_BYTES), pytest.raises(UserError) as caught:
        Model.load(folder)
    assert time.process_time() - start < MAX_SECONDS
    sentence = str(caught.value)
    assert reason in sentence
    assert "memory" not in sentence
    assert len(sentence.splitlines()) == 1
    assert len(sentence) < 500


def test_undamaged_model_loads_within_the_limits(tmp_path: Path) -> None:
    made_model("blended twice").save(tmp_path / "model")
    start = time.process_time()
    with memory_limit(MAX_BYTES):
        Model.load(tmp_path / "model")
    assert time.process_time() - start < MAX_SECONDS


def test_model_of_enormous_images_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights do not depend on the size, but predicting one image would take gigabytes."""
    folder = tmp_path / "model"
    made_model(backbone="small").save(folder)
    change_description(folder, lambda content: content["preprocessing"].update(size=2048))
    Model.load(folder)
    change_description(folder, lambda content: content["preprocessing"].update(size=8192))
    message = (
        "would take 6400 MB of memory, and only .* set the environment variable BIC_UNPACK_MB="
    )
    with memory_limit(MAX_BYTES), pytest.raises(UserError, match=message):
        Model.load(folder)
    monkeypatch.setenv("BIC_UNPACK_MB", "6400")
    assert Model.load(folder).preprocessing.size == 8192


def test_class_means_must_be_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    made_model("nearest mean").save(folder)
    change_tensors(folder, lambda tensors: tensors["answer.means"][0].fill_(float("nan")))
    with pytest.raises(UserError, match=r"answer\.means holds NaN or infinity"):
        Model.load(folder)


@pytest.mark.parametrize(("alpha", "value"), [(1e308, 1.0), (1.0, 3e38)])
def test_answer_that_is_not_a_number_is_refused(tmp_path: Path, alpha: float, value: float) -> None:
    """Every number of these models is finite, and their logits are not."""
    folder = tmp_path / "model"
    made_model("corrected").save(folder)
    correct(alpha=alpha)(folder)
    change_tensors(folder, lambda tensors: tensors["network.head.weight"].fill_(value))
    model = Model.load(folder)
    with pytest.raises(UserError, match="the model's logits are NaN or infinite; check"):
        model.predict_proba(np.zeros((1, 8, 8), np.uint8))


@pytest.mark.parametrize(
    ("kind", "name"), [("nearest mean", "means"), ("retrained", "weight"), ("retrained", "bias")]
)
def test_tensors_of_an_answer_must_fit_the_network(tmp_path: Path, kind: str, name: str) -> None:
    folder = tmp_path / "model"
    made_model(kind).save(folder)
    change_tensors(folder, lambda tensors: tensors.update({f"answer.{name}": torch.zeros(4)}))
    with pytest.raises(UserError, match=r"a tensor has the shape \[4\], not \[5"):
        Model.load(folder)
    change_tensors(folder, lambda tensors: tensors.pop(f"answer.{name}"))
    with pytest.raises(UserError, match="is damaged or not a model"):
        Model.load(folder)


def test_previous_network_must_not_know_more_classes(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    model = made_model("blended")
    model.answer.previous.network.head.grow(4)
    model.save(folder)
    with pytest.raises(UserError, match="its previous network knows more classes than it does"):
        Model.load(folder)
