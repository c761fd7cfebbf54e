"""`bic evaluate`: what it prints, writes and refuses."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.command_line import Command, assert_refused
from support.model_folders import CLASSES, made_model

from bic import Model, Progress
from bic.data.labelled_images import open_labelled_images
from bic.model.calibrate import calibrate

KNOWN = CLASSES[:3]


@pytest.fixture
def test_folder(tmp_path: Path) -> Path:
    """Test images of three known classes and of one that the model `shop` does not know."""
    draws = np.random.default_rng(0)
    for name in (*KNOWN, "cow"):
        (tmp_path / "test" / name).mkdir(parents=True)
        for number in range(6):
            pixels = draws.integers(0, 256, (8, 8), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "test" / name / f"{number}.png")
    model = made_model()
    images, classes = open_labelled_images(tmp_path / "test", model.preprocessing)
    known = images.of_classes([classes.index(name) for name in KNOWN])
    model.calibration = calibrate(model, known, Progress("quiet"))
    model.save(tmp_path / "shop")
    return tmp_path / "test"


def test_figures_are_those_of_the_model(bic: Command, tmp_path: Path, test_folder: Path) -> None:
    model = Model.load(tmp_path / "shop")
    files = sorted(test_folder.rglob("*.png"))
    known = [file for file in files if file.parent.name != "cow"]
    num_right = 0
    for file, answer in zip(known, model.predict(known), strict=True):
        num_right += file.parent.name == answer
    outcome = bic("evaluate", "shop", "test", "--quiet")
    assert outcome.code == 0
    assert outcome.out.startswith(f"{100 * num_right / 18:.1f} % of 18 images are right.\n")
    assert "6 images of 1 class that the model does not know" in outcome.out
    assert "2 classes without test images: dog, eel." in outcome.out
    for text in ("Classes, the worst first", "expected calibration error before:", *KNOWN):
        assert text in outcome.out
    command = ["evaluate", "shop", "test", "--reject", "0.5", "--json", "--report", "page.html"]
    content = json.loads(bic(*command, "--quiet").out)
    assert content["accuracy"]["num_right"] == num_right
    assert content["rejection"]["known"]["value"] == 0.5  # these are the held-out images
    unknown = [file for file in files if file.parent.name == "cow"]
    rejected = model.predict(unknown, reject=0.5).count(None)
    assert content["rejection"]["unknown"]["num_right"] == rejected
    page = (tmp_path / "page.html").read_text()
    assert f"{100 * num_right / 18:.1f} % of 18 images are right." in page


@pytest.mark.filterwarnings("always:left out")
def test_mistakes_get_one_sentence(bic: Command, tmp_path: Path, test_folder: Path) -> None:
    assert_refused(bic("evaluate", "shop", "nowhere"), "nowhere does not exist; give a folder")
    assert_refused(
        bic("evaluate", "shop", "test", "--report", "page.txt", "--quiet"), "change --report"
    )
    assert_refused(
        bic("evaluate", "shop", "test", "--reject", "2"), "less than 1, got 2.0; change --reject"
    )
    (test_folder / "ant" / "0.png").write_bytes(b"")
    assert_refused(bic("evaluate", "shop", "test", "--quiet"), "0.png", "--skip-bad")
    skipped = bic("evaluate", "shop", "test", "--skip-bad", "--quiet")
    assert "of 17 images are right." in skipped.out
    assert "1 image could not be read." in skipped.out
    for name in KNOWN:
        (test_folder / name).rename(test_folder / f"new {name}")
    assert_refused(
        bic("evaluate", "shop", "test"),
        "knows none of the 4 classes of the test images (cow, new ant, new bee …)",
        "name them as the model does (ant, bee, cat …)",
    )
