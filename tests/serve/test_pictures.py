"""Small pictures of the classes of a model."""

from pathlib import Path

import pytest
from support.taught import learn, toy_model

from bic import open_model
from bic.serve.pictures import Pictures


def test_a_model_that_keeps_only_held_out_images_has_pictures(tmp_path: Path) -> None:
    model = toy_model(tmp_path / "shop", method="ridge", memory=0)
    learn(model, "ab")
    first, _ = model.classes()
    assert (first.kept, first.held_out) == (7, 7)
    assert first.memory is not None
    pictures = Pictures(model.path).of_class(first.memory.sha256[:16])
    assert [picture[8:12] for picture in pictures] == [b"WEBP"] * 4


def test_images_that_cannot_be_shown_are_left_out(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bic.data.small_pictures.decode_image", lambda *_, **__: 1 / 0)
    first, *_ = open_model(model).classes()
    assert first.memory is not None
    assert Pictures(model).of_class(first.memory.sha256[:16]) == []
