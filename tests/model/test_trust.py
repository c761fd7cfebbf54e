"""A saved model runs no code of its own, unless the user trusts it."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.foreign_code import ForeignCode
from support.model_folders import CLASSES, change_description, prepared_network

from bic import Learner, Learning, Model, Preprocessing, RunConfig, UserError, run
from bic.model.backbones import build_backbone

IMAGES = np.random.default_rng(0).integers(0, 256, (4, 9, 9), dtype=np.uint8)


@pytest.fixture
def foreign_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ForeignCode:
    return ForeignCode(tmp_path, monkeypatch)


def saved_model(folder: Path, backbone: str) -> Model:
    preprocessing = Preprocessing(channels=1, size=9)
    model = Model(
        prepared_network(backbone, preprocessing, len(CLASSES)),
        backbone,
        preprocessing,
        classes=CLASSES,
        classes_per_step=(2, 3),
    )
    model.save(folder)
    return model


@pytest.mark.parametrize("pattern", ["{}", "fast+{}", "{}+fast"])
def test_backbone_is_imported_only_with_trust(
    tmp_path: Path, foreign_code: ForeignCode, pattern: str
) -> None:
    backbone = pattern.format(foreign_code.backbone)
    model = saved_model(tmp_path / "model", backbone)
    assert foreign_code.was_imported
    expected = model.predict_logits(IMAGES)

    foreign_code.forget()
    with pytest.raises(UserError) as caught:
        Model.load(tmp_path / "model")
    assert not foreign_code.was_imported
    place = tmp_path / "model"
    assert caught.value.problem == f"the model in {place} would import and run {backbone}"
    assert str(caught.value).endswith("; pass trust if you trust where it comes from")

    loaded = Model.load(tmp_path / "model", trust=True)
    assert foreign_code.was_imported
    assert np.array_equal(loaded.predict_logits(IMAGES), expected)
    assert loaded.backbone == backbone


@pytest.mark.parametrize("name", ["os:kill", "os:_exit", "builtins:exec", "posix:abort"])
def test_function_that_is_a_part_of_python_is_never_called(name: str) -> None:
    """os.kill(3, 9) would be a signal that kills process 3."""
    with pytest.raises(UserError, match=r"cannot be built \(it is a part of Python"):
        build_backbone(name, channels=3, image_size=9)


@pytest.mark.parametrize("name", ["os:kill", "small+os:kill", "\x1b[2J:build"])
def test_refusal_of_an_import_is_printable_and_names_it(tmp_path: Path, name: str) -> None:
    saved_model(tmp_path / "model", "small")
    change_description(tmp_path / "model", lambda content: content.update(backbone=name))
    with pytest.raises(UserError) as caught:
        Model.load(tmp_path / "model")
    shown = name.replace("\x1b", "\\x1b")
    assert f"would import and run {shown}; pass trust" in str(caught.value)
    assert str(caught.value).isprintable()


def test_settings_cannot_import_what_the_model_does_not(
    tmp_path: Path, foreign_code: ForeignCode
) -> None:
    """Neither with trust nor without it: learning.json must name the backbone of model.json."""
    learner = Learner(Learning(recipe="demo", memory=20, epochs=1))
    learner.learn(IMAGES[[0, 1, 2, 3] * 5], ["a", "b"] * 10)
    learner.learning = learner.learning.with_recipe(backbone=foreign_code.backbone)
    learner.save(tmp_path / "model")
    for trust in (False, True):
        with pytest.raises(UserError, match="its settings name another backbone than its model"):
            Learner.load(tmp_path / "model", trust=trust)
    assert not foreign_code.was_imported


def test_run_folder_imports_nothing_that_was_not_asked_for(
    tmp_path: Path, foreign_code: ForeignCode
) -> None:
    """Not by config.json, and not by the model or the checkpoint of a run."""
    config = RunConfig(dataset="digits", steps=2, epochs=1, backbone="mlp")
    folder = tmp_path / "run"
    run(config, folder, threads=1)
    (folder / "checkpoint").mkdir()
    shutil.copytree(folder / "model", folder / "checkpoint" / "step-2")
    result = json.loads((folder / "result.json").read_text())
    del result["checksum"]
    (folder / "result.json").write_text(json.dumps({**result, "complete": False}))
    change_description(
        folder / "checkpoint" / "step-2",
        lambda content: content.update(backbone=foreign_code.backbone),
    )
    shutil.rmtree(folder / "model")
    with pytest.raises(UserError, match=r"would import and run foreign_.*:build; pass trust"):
        run(config, folder, threads=1)
    recorded = json.loads((folder / "config.json").read_text())
    recorded["plan"]["recipe"]["backbone"] = foreign_code.backbone
    (folder / "config.json").write_text(json.dumps(recorded))
    with pytest.raises(UserError, match=r"is a run with other settings \(recipe.backbone was for"):
        run(config, folder, threads=1)
    assert not foreign_code.was_imported


def test_network_without_trust_imports_nothing(foreign_code: ForeignCode) -> None:
    with pytest.raises(UserError, match="would be imported and run; pass trust"):
        build_backbone(foreign_code.backbone, channels=1, image_size=9, trust=False)
    assert not foreign_code.was_imported


def test_trusted_model_without_its_module_is_refused(
    tmp_path: Path, foreign_code: ForeignCode
) -> None:
    saved_model(tmp_path / "model", foreign_code.backbone)
    foreign_code.forget()
    (tmp_path / f"{foreign_code.module}.py").unlink()
    with pytest.raises(UserError, match=r"cannot be built .*; fix the function or the spelling"):
        Model.load(tmp_path / "model", trust=True)
