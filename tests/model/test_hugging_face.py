"""Models of transformers as backbones."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from support.frozen import squares
from support.vision_models import SIZE, saved_model
from transformers import AutoModel

from bic import Learner, Learning, Model
from bic.errors import UserError
from bic.model.backbones import build_backbone, is_imported
from bic.model.hugging_face import hugging_face_input, safe_config
from bic.model.network import Network
from bic.model.pretrained import Pretrained
from bic.model.pretrained_backbones import preprocessing_for

pytestmark = pytest.mark.filterwarnings("ignore::bic.errors.HeldOutWarning")


def reference(folder: Path, images: torch.Tensor) -> Any:
    """What transformers itself computes."""
    model = AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        return model(pixel_values=images)


@pytest.mark.parametrize("kind", ["vit", "dinov2", "convnext", "resnet", "swin"])
def test_features_are_those_of_transformers(tmp_path: Path, kind: str) -> None:
    name = saved_model(tmp_path / "model", kind)
    size = 28 if kind == "dinov2" else SIZE
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))
    outputs = reference(tmp_path / "model", images)
    expected = {
        "vit": lambda: outputs.last_hidden_state[:, 0],
        "dinov2": lambda: outputs.pooler_output,
        "convnext": lambda: outputs.pooler_output,
        "resnet": lambda: outputs.pooler_output[:, :, 0, 0],
        "swin": lambda: outputs.pooler_output,
    }[kind]()
    backbone = build_backbone(name, channels=3, image_size=size).eval()
    with torch.no_grad():
        features = backbone(images)
    assert features.ndim == 2
    assert expected.std() > 1e-3
    torch.testing.assert_close(features, expected, atol=1e-5, rtol=1e-5)


def test_preprocessing_comes_from_the_config(tmp_path: Path) -> None:
    name = saved_model(tmp_path / "model")
    assert hugging_face_input(name) == Pretrained(
        mean=(127.5, 127.5, 127.5), std=(63.75, 127.5, 127.5), size=SIZE, bicubic=False
    )
    settings = {
        "size": {"shortest_edge": 40},
        "crop_size": {"height": 36, "width": 36},
        "do_center_crop": True,
        "resample": 3,
        "rescale_factor": 1 / 127.5,
        "image_mean": [1, 1, 1],
        "image_std": [1, 1, 1],
    }
    processor = tmp_path / "model" / "preprocessor_config.json"
    processor.write_text(json.dumps(settings))
    found = preprocessing_for(name, None, None)
    assert found is not None
    assert (found.size, found.resize, found.bicubic, found.channels) == (36, 40, True, 3)
    assert hugging_face_input(name).mean == (127.5,) * 3
    processor.unlink()
    plain = hugging_face_input(name)
    assert plain.size == SIZE
    assert plain.mean == pytest.approx((123.675, 116.28, 103.53))
    network = Network(name, channels=3, image_size=SIZE)
    network.prepare(torch.zeros(1))
    assert network.mean.tolist() == pytest.approx([123.675, 116.28, 103.53])


def test_a_vision_transformer_takes_images_of_another_size(tmp_path: Path) -> None:
    name = saved_model(tmp_path / "model")
    assert Network(name, channels=3, image_size=48).num_features == 16


def test_a_model_on_such_a_backbone_needs_nothing_outside_its_folder(tmp_path: Path) -> None:
    name = saved_model(tmp_path / "source")
    learning = Learning(backbone=name, method="bic", memory=20, precision="float32", epochs=2)
    learner = Learner(learning)
    learner.learn(*squares("red green", 8))
    assert learner.model.network.frozen
    images, _ = squares("red green", 3, seed=1)
    expected = learner.model.predict_logits(images)
    learner.save(tmp_path / "learner")
    shutil.rmtree(tmp_path / "source")
    shutil.move(tmp_path / "learner", tmp_path / "copy")
    model = Model.load(tmp_path / "copy")
    torch.testing.assert_close(
        torch.from_numpy(model.predict_logits(images)), torch.from_numpy(expected)
    )
    again = Learner.load(tmp_path / "copy")
    again.learn(*squares("blue", 8))
    assert again.model.classes == ("green", "red", "blue")


def test_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = saved_model(tmp_path / "source")
    learner = Learner(Learning(backbone=name, method="distill", memory=20, precision="float32"))
    learner.learn(*squares("red green", 4))
    learner.save(tmp_path / "learner")
    monkeypatch.setitem(sys.modules, "transformers", None)
    for attempt in (
        lambda: build_backbone(name, channels=3, image_size=SIZE),
        lambda: Model.load(tmp_path / "learner"),
    ):
        with pytest.raises(UserError, match="transformers is not installed") as caught:
            attempt()
        assert caught.value.remedy == "run pip install 'bic[hf]'"


def changed_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def drop_weights(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def spoil_processor(folder: Path) -> None:
    (folder / "preprocessor_config.json").write_text('{"image_std": [0, 0, 0]}')


FAULTS = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "has no config.json"),
    "a config that is no JSON": (
        lambda folder: (folder / "config.json").write_text("hello"),
        "config.json cannot be used",
    ),
    "a list": (
        lambda folder: (folder / "config.json").write_text("[]"),
        "it is not a table of settings",
    ),
    "another kind of model": (
        lambda folder: changed_config(folder, model_type="mine"),
        "transformers knows no model type 'mine'",
    ),
    "a text model": (
        lambda folder: changed_config(folder, model_type="bert"),
        "cannot be used|does not map images",
    ),
    "weights of another size": (
        lambda folder: changed_config(folder, hidden_size=24),
        "weights in safetensors that fit",
    ),
    "missing weights": (
        lambda folder: changed_config(folder, num_hidden_layers=3),
        "tensors are missing, such as",
    ),
    "weights in a pickle": (drop_weights, "weights in safetensors that fit"),
    "a std of zero": (spoil_processor, "preprocessor_config.json cannot be used"),
    "a billion layers": (
        lambda folder: changed_config(folder, num_hidden_layers=10**9),
        "num_hidden_layers is 1000000000",
    ),
    "a huge width": (
        lambda folder: changed_config(folder, hidden_size=10**9),
        "hidden_size is 1000000000",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_folder_that_cannot_be_used_is_refused_in_one_sentence(
    tmp_path: Path, fault: str
) -> None:
    name = saved_model(tmp_path / "model")
    damage, message = FAULTS[fault]
    damage(tmp_path / "model")
    with pytest.raises(UserError, match=message):
        Network(name, channels=3, image_size=SIZE)


def test_a_folder_that_does_not_exist_is_not_searched_on_the_hub(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"missing does not exist; give a folder"):
        build_backbone(f"hf:{tmp_path}/missing", channels=3, image_size=SIZE)


def test_code_is_never_run(tmp_path: Path) -> None:
    name = saved_model(tmp_path / "model")
    (tmp_path / "model" / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    changed_config(
        tmp_path / "model",
        auto_map={"AutoConfig": "evil.Config", "AutoModel": "evil.Model"},
        attn_implementation="someone/kernel",
        _attn_implementation="someone/kernel",
    )
    build_backbone(name, channels=3, image_size=SIZE)
    assert not (tmp_path / "ran").exists()
    assert not is_imported(name)
    assert is_imported(f"{name}+module:function")
    kept = safe_config({"auto_map": {}, "inner": {"_x": 1, "attn_implementation": "k", "a": 2}})
    assert kept == {"inner": {"a": 2}}


def test_the_configuration_of_a_stranger_is_checked(tmp_path: Path) -> None:
    name = saved_model(tmp_path / "source")
    learner = Learner(Learning(backbone=name, method="distill", memory=20, precision="float32"))
    learner.learn(*squares("red green", 4))
    model = learner.model
    from bic.model.saved import description

    described = description(model)
    config = described["backbone_configs"][name]
    assert "auto_map" not in config
    for key, value, reason in (
        ("hidden_size", 24, "its weights are not those of the backbone"),
        ("num_hidden_layers", 100_000, "num_hidden_layers is 100000"),
        ("model_type", "mine", "knows no model type"),
    ):
        folder = tmp_path / key
        model.network.backbone.config = {**config, key: value}
        model.save(folder)
        with pytest.raises(UserError, match=reason):
            Model.load(folder)
