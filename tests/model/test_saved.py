"""Saved models: every kind of answer survives saving, and older formats can still be read."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from support.model_folders import ANSWERS, CLASSES, made_model

from bic import Correction, LostError, Model, Preprocessing, UserError, open_dataset
from bic.files import read_folder
from bic.model.answers import BlendedHead, CorrectedHead, NearestMean, RetrainedHead
from bic.model.saved import description, tensors

OLD_RUNS = Path(__file__).parents[1] / "support" / "old_runs"
OLD_ANSWERS = {
    "bic": CorrectedHead,
    "icarl": NearestMean,
    "fc-retrain": RetrainedHead,
    "blended": BlendedHead,
}
IMAGES = np.random.default_rng(0).integers(0, 256, (9, 8, 8), dtype=np.uint8)


def assert_same_model(loaded: Model, model: Model) -> None:
    assert description(loaded) == description(model)
    expected = tensors(model)
    found = tensors(loaded)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name
        assert found[name].dtype == tensor.dtype


@pytest.mark.parametrize("backbone", ["mlp", "mlp+mlp", "small"])
@pytest.mark.parametrize("kind", ANSWERS)
def test_loaded_model_is_the_saved_model(tmp_path: Path, kind: str, backbone: str) -> None:
    model = made_model(kind, backbone)
    model.save(tmp_path / "model")
    loaded = Model.load(tmp_path / "model")
    assert_same_model(loaded, model)
    assert np.array_equal(loaded.predict_logits(IMAGES), model.predict_logits(IMAGES))
    assert loaded.correction == model.correction
    assert loaded.answer.teacher_correction == model.answer.teacher_correction


@pytest.mark.parametrize("backbone", ["mlp", "small", "mlp+mlp"])
def test_loading_draws_nothing_at_random(tmp_path: Path, backbone: str) -> None:
    """Torch has one random state for all threads, and a training may run in another one."""
    model = made_model("head", backbone)
    model.save(tmp_path / "model")
    before = torch.get_rng_state()
    loaded = Model.load(tmp_path / "model")
    assert torch.equal(torch.get_rng_state(), before)
    for name, tensor in tensors(loaded).items():
        assert tensor.stride() == tensors(model)[name].stride(), name


@pytest.mark.parametrize(
    "preprocessing",
    [
        Preprocessing(channels=7),
        Preprocessing(channels=3, size=8),
        Preprocessing(channels=1, size=8, resize=12),
    ],
)
def test_preprocessing_is_saved(tmp_path: Path, preprocessing: Preprocessing) -> None:
    made_model(preprocessing=preprocessing).save(str(tmp_path / "model"))
    assert Model.load(str(tmp_path / "model")).preprocessing == preprocessing


def test_model_folder_holds_three_readable_files(tmp_path: Path) -> None:
    model = made_model("blended twice")
    model.save(tmp_path / "model")
    assert set(read_folder(tmp_path / "model")) == {"model.json", "weights.safetensors"}
    names = sorted(file.name for file in (tmp_path / "model").iterdir())
    assert names == ["checksums.json", "model.json", "weights.safetensors"]
    described = json.loads((tmp_path / "model" / "model.json").read_text())
    assert described == {
        "format": 3,
        "classes": list(CLASSES),
        "classes_per_step": [2, 3],
        "backbone": "mlp",
        "preprocessing": {"channels": 1, "size": 8, "resize": None, "bicubic": False},
        "answer": {
            "kind": "blended head",
            "correction": {"alpha": 0.7, "beta": -0.3, "num_old": 2},
            "teacher_correction": {"alpha": 0.8, "beta": -0.4, "num_old": 2},
            "share": 0.25,
            "previous_correction": {"alpha": 1.1, "beta": 0.2, "num_old": 1},
        },
    }


def test_existing_folder_is_not_overwritten(tmp_path: Path) -> None:
    made_model().save(tmp_path / "model")
    before = (tmp_path / "model" / "weights.safetensors").read_bytes()
    with pytest.raises(UserError, match="model exists already; choose another folder"):
        made_model(seed=1).save(tmp_path / "model")
    assert (tmp_path / "model" / "weights.safetensors").read_bytes() == before


def test_saving_leaves_nothing_if_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("bic.model.saved.write_tensors", full)
    with pytest.raises(LostError, match=r"cannot write .*model \(No space left on device\)"):
        made_model().save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere does not exist; give a folder that bic has"):
        Model.load(tmp_path / "nowhere")
    with pytest.raises(UserError, match="holds no model; give a folder that bic learn, a complete"):
        Model.load(tmp_path)


@pytest.mark.parametrize("name", OLD_ANSWERS)
def test_model_of_an_earlier_version_gives_its_recorded_predictions(name: str) -> None:
    folder = OLD_RUNS / name
    model = Model.load(folder)
    assert isinstance(model.answer, OLD_ANSWERS[name])
    last = len(model.classes_per_step)
    recorded = np.load(folder / f"predictions-{last}.npz")
    test = open_dataset("digits").test
    raw, final = model.logits(test.take(recorded["index"]))
    for logits, suffix in ((final, ""), (raw, "_uncorrected")):
        confidence, predicted = logits.softmax(dim=1).max(dim=1)
        assert predicted.tolist() == recorded[f"predicted{suffix}"].tolist()
        expected = torch.from_numpy(recorded[f"confidence{suffix}"])
        torch.testing.assert_close(confidence, expected, rtol=1e-5, atol=1e-6)


def test_corrections_of_an_earlier_version_find_their_place() -> None:
    answer = Model.load(OLD_RUNS / "blended").answer
    old = json.loads((OLD_RUNS / "blended" / "model" / "model.json").read_text())
    assert isinstance(answer, BlendedHead)
    assert answer.correction == Correction(**old["correction"])
    assert answer.teacher_correction == Correction(**old["own_correction"])
    assert answer.previous.correction == Correction(**old["previous"]["correction"])
    assert answer.previous.share == old["previous"]["share"] == 0.5
    assert answer.previous.network.num_classes == 7


@pytest.mark.parametrize("name", OLD_ANSWERS)
def test_model_of_an_earlier_version_can_be_saved_in_the_present_format(
    tmp_path: Path, name: str
) -> None:
    model = Model.load(OLD_RUNS / name)
    model.save(tmp_path / "model")
    assert_same_model(Model.load(tmp_path / "model"), model)


def test_loading_imports_nothing_that_takes_seconds(tmp_path: Path) -> None:
    """Such as torch's compiler and sympy, which some operations on the meta device import."""
    made_model("ridge").save(tmp_path / "m")
    slow = "{'torch._dynamo', 'sympy'} & set(sys.modules)"
    code = f"import sys, bic; bic.Model.load(sys.argv[1]); print(bool({slow}))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "m")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False\n"
