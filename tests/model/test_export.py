"""Exported models answer as the model does: every kind of answer, in onnxruntime."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from support.model_folders import ANSWERS, CLASSES, GREY, answer_for, made_model
from torch import Tensor, nn

import bic.model.export_checks
from bic import Calibration, LostError, Model, Preprocessing, UserError
from bic.data.images import array_set
from bic.model import export, onnx_int8
from bic.model.answers import Answer, Outputs
from bic.model.onnx_graph import preprocessing_graph
from bic.model.onnx_int8 import inner_layers

RGB = Preprocessing(channels=3, size=8, resize=10)
VECTORS = Preprocessing(channels=6)


def runner(path: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def pictures(count: int, height: int, width: int, channels: int) -> np.ndarray:
    draws = np.random.default_rng(height)
    return draws.integers(0, 256, (count, height, width, channels), dtype=np.uint8)


def squares(images: np.ndarray, preprocessing: Preprocessing) -> Tensor:
    return torch.stack([preprocessing.scale(image) for image in images])


def assert_answers(path: Path, model: Model, given: np.ndarray, pixels: Tensor) -> None:
    """The file's outputs for `given` are the model's for the prepared `pixels`."""
    session = runner(path)
    (source,) = session.get_inputs()
    logits, probabilities = session.run(["logits", "probabilities"], {source.name: given})
    expected = model.logits(pixels)[1]
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(probabilities, model.probabilities(expected), atol=1e-5)


@pytest.mark.parametrize("kind", ANSWERS)
def test_every_kind_of_answer_in_onnxruntime(kind: str, tmp_path: Path) -> None:
    model = made_model(kind, "small")
    exported = model.export(tmp_path / "model.onnx")
    assert exported.path.stat().st_size == exported.num_bytes
    assert exported.difference <= 1e-5
    images = pictures(40, 8, 8, 1)  # more than 25: torch computes distances in another way
    for count in (1, 3, 40):
        assert_answers(exported.path, model, images[:count], squares(images[:count], GREY))


def test_every_kind_of_answer_is_tested() -> None:
    made = {type(answer_for(kind, "mlp", GREY)) for kind in ANSWERS}
    known = {kind for kind in Answer.__subclasses__() if kind.__module__.startswith("bic.")}
    assert made == known


class Doubled(Answer):
    """An answer that the exporter has never heard of, with a tensor of its own."""

    kind = "doubled"
    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(len(CLASSES)).float())

    def forward(self, outputs: Outputs) -> Tensor:
        return outputs.logits.relu() * self.table + outputs.features.mean(dim=1, keepdim=True)


def test_new_answer_ensemble_calibration_and_retired_classes(tmp_path: Path) -> None:
    model = made_model("head", "mlp+mlp")
    model.answer = Doubled()
    model.calibration = Calibration(2.5, (0.5,), 1)
    model.retired = (1, 4)
    model.export(tmp_path / "model.onnx")
    images = pictures(9, 8, 8, 1)
    assert_answers(tmp_path / "model.onnx", model, images, squares(images, GREY))
    session = runner(tmp_path / "model.onnx")
    logits, probabilities = session.run(None, {"images": images})
    assert np.isneginf(logits[:, [1, 4]]).all()
    assert (probabilities[:, [1, 4]] == 0).all()
    told = session.get_modelmeta().custom_metadata_map
    assert json.loads(told["labels"]) == list(CLASSES)
    assert json.loads(told["retired"]) == ["bee", "eel"]
    assert json.loads(told["temperature"]) == 2.5
    assert json.loads(told["calibrated"]) is True


def test_images_of_any_size_are_prepared_as_in_prediction(tmp_path: Path) -> None:
    model = made_model("corrected", "small", RGB)
    path = model.export(tmp_path / "model.onnx").path
    front = preprocessing_graph(RGB, onnx.load(path)).SerializeToString()
    resize = onnxruntime.InferenceSession(front)
    for height, width in ((10, 10), (31, 57), (64, 20), (7, 9), (1, 5), (240, 321)):
        images = pictures(2, height, width, 3)
        expected = squares(images, RGB)
        (pixels,) = resize.run(None, {"images": images})
        differences = np.abs(pixels.astype(int) - expected.numpy().astype(int))
        assert differences.max() <= 1
        assert differences.mean() / 255 <= 1e-3
        assert_answers(path, model, images, torch.from_numpy(pixels))


def test_vectors(tmp_path: Path) -> None:
    model = made_model("corrected", "mlp", VECTORS)
    path = model.export(str(tmp_path / "model.onnx")).path
    vectors = np.random.default_rng(0).normal(100, 60, (5, 6)).astype(np.float32)
    assert runner(path).get_inputs()[0].name == "vectors"
    assert_answers(path, model, vectors, torch.from_numpy(vectors))


def test_no_path_of_this_machine_is_in_the_file(tmp_path: Path) -> None:
    content = made_model().export(tmp_path / "model.onnx").path.read_bytes()
    assert b".py" not in content
    assert str(Path(torch.__file__).parent).encode() not in content


def test_model_that_differs_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = made_model("corrected")
    real = bic.model.export_checks.outputs

    def slightly_wrong(graph: onnx.ModelProto, inputs: np.ndarray) -> tuple[Tensor, Tensor]:
        logits, probabilities = real(graph, inputs)
        return logits * 1.0003, probabilities

    monkeypatch.setattr(bic.model.export_checks, "outputs", slightly_wrong)
    with pytest.raises(LostError, match=r"differs from the model by 3\.0e-04 of its largest logit"):
        model.export(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_other_preprocessing_is_refused() -> None:
    graph = onnx.helper.make_model(
        onnx.helper.make_graph([], "empty", [], []), ir_version=10, opset_imports=[]
    )
    graph.opset_import.append(onnx.helper.make_opsetid("", 20))

    class Shifted(Preprocessing):
        def scale(self, pixels: np.ndarray, cut: object = None) -> Tensor:
            return super().scale(pixels).roll(1, dims=2)

    bic.model.export_checks.check_preprocessing(RGB, graph)
    with pytest.raises(LostError, match="resizes images differently"):
        bic.model.export_checks.check_preprocessing(Shifted(channels=3, size=8, resize=10), graph)


def test_missing_packages_name_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "PACKAGES", ("onnx", "no_such_runtime"))
    with pytest.raises(UserError, match=r"needs no_such_runtime; install the extra onnx"):
        made_model().export(tmp_path / "model.onnx")


def test_bad_paths_and_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = made_model()
    with pytest.raises(UserError, match=r"does not end in \.onnx"):
        model.export(tmp_path / "model")
    with pytest.raises(UserError, match="int8 is for ONNX files only"):
        model.export(tmp_path / "model", safetensors=True, int8=True)
    with pytest.raises(UserError, match="there are no held-out images"):
        model.export(tmp_path / "model.onnx", int8=True)
    with pytest.raises(UserError, match="exists already"):
        model.export(tmp_path, safetensors=True)
    monkeypatch.setattr(export, "MAX_BYTES", 1000)
    with pytest.raises(UserError, match="which an ONNX file cannot hold; set safetensors"):
        model.export(tmp_path / "model.onnx")


class Undecided(nn.Module):
    """A backbone that torch cannot trace."""

    def forward(self, images: Tensor) -> Tensor:
        flat = images.flatten(1)
        return flat if flat.mean() > 0 else -flat


def test_network_that_cannot_be_traced(tmp_path: Path) -> None:
    model = made_model()
    model.network.backbone = Undecided()
    with pytest.raises(UserError, match="torch cannot trace the network mlp"):
        model.export(tmp_path / "model.onnx")


def test_int8_is_written_if_it_costs_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = made_model("corrected", "small")
    images = pictures(60, 8, 8, 1)
    held_out = array_set(images, np.zeros(60, dtype=np.int64))
    own = model.predict_logits(held_out).argmax(axis=1).astype(np.int64)
    held_out = replace(held_out, labels=own)  # all answers are right in float
    monkeypatch.setattr(onnx_int8, "MAX_DROP", 0.1)
    before = model.export(tmp_path / "float.onnx")
    exported = model.export(tmp_path / "int8.onnx", int8=True, held_out=held_out)
    assert exported.num_bytes < before.num_bytes / 2
    assert exported.accuracy is not None
    assert exported.drop is not None
    assert exported.accuracy.value == pytest.approx(1 - exported.drop.value)
    (logits,) = runner(exported.path).run(["logits"], {"images": images})
    assert (logits.argmax(axis=1) == own).mean() == exported.accuracy.value
    monkeypatch.setattr(onnx_int8, "MAX_DROP", exported.drop.value)
    with pytest.raises(UserError, match=r"int8 would lower the accuracy on 60 held-out images"):
        model.export(tmp_path / "refused.onnx", int8=True, held_out=held_out)
    assert not (tmp_path / "refused.onnx").exists()


def test_first_and_last_layers_are_not_quantised() -> None:
    def layer(kind: str, source: str, name: str) -> onnx.NodeProto:
        return onnx.helper.make_node(kind, [source], [f"{name}_out"], name=name)

    nodes = [
        layer("Cast", "images", "cast"),
        layer("Conv", "cast_out", "first"),
        layer("Relu", "first_out", "relu"),
        layer("Conv", "relu_out", "second"),
        layer("MatMul", "second_out", "third"),
        layer("Gemm", "third_out", "last"),
        layer("Gemm", "second_out", "other_last"),
    ]
    graph = onnx.helper.make_graph(nodes, "layers", [], [])
    assert inner_layers(onnx.helper.make_model(graph)) == ["second", "third"]
