"""Models that predict: the same answer for every form of a picture, without what learns."""

import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.digits import write_digits
from support.model_folders import made_model
from support.pictures import jpeg, picture, png
from support.small_runs import CONFIGS, small_run

from bic import Model, Preprocessing, UserError, open_dataset

# Prints the predicted class names of digits' test images, one line for each run folder.
PREDICT = """
import sys
from bic import Model, open_dataset

test = open_dataset("digits").test
images = test.take(test.everything).permute(0, 2, 3, 1).numpy()
for folder in sys.argv[1:]:
    print(",".join(Model.load(folder).predict(images)))
learning = [name for name in sys.modules if name.startswith(("bic.learn", "bic.lab"))]
assert not learning, learning
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    with pytest.warns(match="the held-out set is too small to trust"):
        return {name: small_run(folder, name) for name in CONFIGS}


def test_loaded_models_predict_as_the_runs_did_and_import_nothing_that_learns(
    runs: dict[str, Path],
) -> None:
    command = [sys.executable, "-c", PREDICT, *map(str, runs.values())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for folder, line in zip(runs.values(), done.stdout.splitlines(), strict=True):
        classes = Model.load(folder).classes
        recorded = np.load(folder / "predictions-3.npz")
        names = line.split(",")
        predicted = [names[index] for index in recorded["index"]]
        assert predicted == [classes[position] for position in recorded["predicted"]]


@pytest.mark.parametrize("name", CONFIGS)
def test_paths_pictures_and_arrays_get_the_same_answer(
    runs: dict[str, Path], tmp_path: Path, name: str
) -> None:
    model = Model.load(runs[name])
    paths = write_digits(tmp_path / "digits", 20)
    pictures = [Image.open(path) for path in paths]
    arrays = np.stack([np.asarray(image) for image in pictures])
    expected = model.predict_proba(arrays)
    assert expected.shape == (20, 10)
    assert expected.sum(axis=1) == pytest.approx(np.ones(20))
    forms = [paths, [str(path) for path in paths], pictures, torch.from_numpy(arrays)]
    forms += [arrays[..., None], list(arrays)]
    for form in forms:
        assert np.array_equal(model.predict_proba(form), expected)
        assert model.predict(form) == [model.classes[best] for best in expected.argmax(axis=1)]


def test_test_set_is_answered_like_its_arrays(runs: dict[str, Path]) -> None:
    model = Model.load(runs["bic"])
    test = open_dataset("digits").test
    arrays = test.take(test.everything).permute(0, 2, 3, 1).numpy()
    assert np.array_equal(model.predict_logits(test), model.predict_logits(arrays))


def test_images_are_brought_to_the_models_size_and_channels(tmp_path: Path) -> None:
    """Grey and colour, any size: the model's preprocessing decides."""
    model = made_model(preprocessing=Preprocessing(channels=3, size=16, resize=20))
    contents = {
        "wide.jpg": jpeg(picture(0, 90, 40)),
        "high.png": png(picture(1, 30, 70)),
        "grey.jpg": jpeg(picture(2, 50, 50).convert("L")),
    }
    paths = []
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        paths.append(tmp_path / name)
    logits = model.predict_logits(paths)
    for number, path in enumerate(paths):
        pixels = model.preprocessing.decode(path.read_bytes())
        assert pixels.shape == (3, 16, 16)
        expected = model.logits(pixels[None])[1].numpy()
        np.testing.assert_allclose(logits[number : number + 1], expected, rtol=1e-5, atol=1e-5)
        in_memory = model.predict_logits([Image.open(path)])
        np.testing.assert_allclose(in_memory, expected, rtol=1e-5, atol=1e-5)


def test_images_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    model = made_model()
    (tmp_path / "bad.png").write_bytes(b"not an image")
    with pytest.raises(UserError, match=r"can't read .*bad\.png"):
        model.predict([tmp_path / "bad.png"])
    with pytest.raises(UserError, match="the model takes images, got vectors of 64 numbers"):
        model.predict(np.zeros((2, 64), dtype=np.float32))
    with pytest.raises(UserError, match="there are no images"):
        model.predict([])
    with pytest.raises(UserError, match="put it in a list"):
        model.predict("one.png")
    vectors = made_model(preprocessing=Preprocessing(channels=5))
    assert len(vectors.predict(np.zeros((2, 5), dtype=np.float32))) == 2
    with pytest.raises(UserError, match="the model takes vectors of 5 numbers, got vectors of 6"):
        vectors.predict(np.zeros((2, 6), dtype=np.float32))


def test_model_moves_with_its_answer_to_a_device() -> None:
    model = made_model("nearest mean")
    assert model.to("cpu") is model
    devices = {tensor.device.type for tensor in model.answer.buffers()}
    assert devices == {"cpu"}
    assert model.to("meta").network.device.type == "meta"
    assert {tensor.device.type for tensor in model.answer.buffers()} == {"meta"}


def test_predicting_stores_no_number_for_each_image_and_class() -> None:
    model = Model.fresh("mlp", Preprocessing(channels=5))
    model.network.prepare(torch.rand(20, 5))
    model.network.head.grow(2000)
    model.classes = tuple(map(str, range(2000)))
    images = np.random.default_rng(0).normal(size=(5000, 5)).astype(np.float32)
    tracemalloc.start()  # it counts what numpy takes; a float for each pair takes 40 MB
    predicted = model.predict(images)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6
    assert predicted == [str(best) for best in model.predict_logits(images).argmax(axis=1)]
