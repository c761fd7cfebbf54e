"""`bic export`: from a model folder or a run to a file that onnxruntime runs."""

import json
import re
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image
from support.command_line import Command, assert_refused, write_photos
from support.model_folders import made_model

from bic import open_model

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")

LEARN = ["--backbone", "small", "--epochs", "1", "--quiet", "--threads", "1", "--image-size", "8"]

CHANGE = r"(no change|a (drop|gain) of [\d.]+ points) \(-?[\d.]+ to -?[\d.]+\)"


@pytest.fixture
def shop(bic: Command, tmp_path: Path) -> Path:
    """A model folder of four classes, with photos/test beside it."""
    write_photos(tmp_path / "photos")
    assert bic("learn", "shop", "photos/train", *LEARN).code == 0
    return tmp_path / "shop"


def test_exported_file_answers_as_bic_predict(bic: Command, shop: Path, tmp_path: Path) -> None:
    outcome = bic("export", "shop", "shop.onnx")
    assert outcome.code == 0
    assert outcome.out.startswith("shop.onnx: 4 classes, 0.")
    session = onnxruntime.InferenceSession("shop.onnx")
    labels = json.loads(session.get_modelmeta().custom_metadata_map["labels"])
    rows = json.loads(bic("predict", "shop", "photos/test", "--top", "4", "--json", "--quiet").out)
    assert len(rows) == 8
    for row in rows:
        image = np.asarray(Image.open(tmp_path / row["file"]))
        (probabilities,) = session.run(["probabilities"], {"images": image[None]})[0]
        expected = {answer["class"]: answer["probability"] for answer in row["classes"]}
        for label, probability in zip(labels, probabilities, strict=True):
            assert probability == pytest.approx(expected[label], abs=5e-3)
    exported = open_model(shop).model.export(tmp_path / "live.onnx")
    assert exported.path.read_bytes() == (tmp_path / "shop.onnx").read_bytes()


def test_int8_uses_the_held_out_images_or_others(bic: Command, shop: Path, tmp_path: Path) -> None:
    own = bic("export", "shop", "int8.onnx", "--int8")
    given = bic("export", "shop", "given.onnx", "--int8", "--images", "photos/test")
    for outcome, count in ((own, 4), (given, 8)):
        if outcome.code == 2:  # random photos: one image may change its class
            assert_refused(outcome, f"accuracy on {count} held-out images by", "leave out --int8")
        else:
            first, second = outcome.out.splitlines()
            assert "before int8, its logits differ" in first
            assert re.fullmatch(rf"int8: [\d.]+ % of {count} images are right, {CHANGE}", second)


def test_a_frozen_model_as_int8_and_as_weights(bic: Command, tmp_path: Path) -> None:
    write_photos(tmp_path / "photos")
    settings = ["--backbone", "lite0", "--image-size", "32", "--random-features", "20", "--quiet"]
    assert bic("learn", "frozen", "photos/train", *settings).code == 0
    outcome = bic("export", "frozen", "int8.onnx", "--int8")
    if outcome.code == 2:  # random photos: one image may change its class
        assert_refused(outcome, "accuracy on 4 held-out images by", "leave out --int8")
    else:
        assert "% of 4 images are right" in outcome.out
    outcome = bic("export", "frozen", "weights", "--safetensors")
    assert outcome.out.startswith("weights: 4 classes")
    name = min(path.name for path in (tmp_path / "photos/train").iterdir())
    assert bic("retire", "frozen", name).out == f"retired {name}: 1 kept image deleted\n"


def test_safetensors(bic: Command, tmp_path: Path) -> None:
    made_model().save(tmp_path / "plain")
    outcome = bic("export", "plain", "weights", "--safetensors")
    assert outcome.out.startswith("weights: 5 classes, 0.2 MB; its logits differ")
    names = {path.name for path in (tmp_path / "weights").iterdir()}
    assert names == {"config.json", "weights.safetensors", "checksums.json"}


def test_mistakes_are_refused(bic: Command, tmp_path: Path) -> None:
    made_model().save(tmp_path / "plain")
    write_photos(tmp_path / "photos")
    assert_refused(bic("export", "plain", "a.tflite"), "does not end in .onnx", "--safetensors")
    assert_refused(bic("export", "nowhere", "a.onnx"), "nowhere does not exist")
    assert_refused(bic("export", "plain", "a.onnx", "--images", "photos/test"), "add --int8")
    refused = bic("export", "plain", "a.onnx", "--int8")
    assert_refused(refused, "there are no held-out images", "--images")
    refused = bic("export", "plain", "a.onnx", "--int8", "--images", "photos/test")
    assert_refused(refused, "photos/test has no images of the model's classes")
    assert not (tmp_path / "a.onnx").exists()
