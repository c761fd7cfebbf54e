"""A saved model runs no code of its own, unless the user trusts it."""

from pathlib import Path

import numpy as np
import pytest
from support.foreign_code import ForeignCode
from support.model_folders import CLASSES, prepared_network

from bic import Model, Preprocessing, UserError
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
