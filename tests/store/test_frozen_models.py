"""Model folders with a frozen backbone."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.frozen import counted_images, frozen_settings, squares
from support.taught import contents

from bic import ModelFolder, open_model
from bic.errors import UserError
from bic.store import teaching

# Colours are so easy that no held-out image is near the border between classes.
pytestmark = pytest.mark.filterwarnings("ignore::bic.errors.HeldOutWarning")


def model_in(folder: Path, **settings: Any) -> ModelFolder:
    return open_model(folder, **frozen_settings(**settings))


def learn(model: ModelFolder, names: str, **options: Any) -> None:
    model.learn(*squares(names, 12), **options)


def test_all_versions_share_the_backbone(tmp_path: Path) -> None:
    model = model_in(tmp_path / "m")
    learn(model, "red green", force=True)
    learn(model, "blue", force=True)
    sizes = sorted(path.stat().st_size for path in (tmp_path / "m" / "files").iterdir())
    assert sizes[-1] > 10_000_000
    assert sizes[-2] < 200_000
    assert model.check().damages == ()
    assert len(model.predict(squares("red green blue", 1)[0])) == 3


def test_features_of_exemplars_are_stored_and_retired_with_their_class(tmp_path: Path) -> None:
    model = model_in(tmp_path / "m")
    learn(model, "red green")
    tables = [pq.read_table(path) for path in (tmp_path / "m" / "files").glob("*.parquet")]
    memories = [table for table in tables if "image" in table.column_names]
    assert len(memories) == 2
    for table in memories:
        assert {len(row) for row in table["features"].to_pylist()} == {1 + 2 * 2 * 1280}
    model.retire("red")
    left = [pq.read_table(path) for path in (tmp_path / "m" / "files").glob("*.parquet")]
    assert sum("features" in table.column_names for table in left) == 1


def test_a_killed_learn_continues_without_computing_features_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = model_in(tmp_path / "reference")
    learn(reference, "red green")

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    model = model_in(tmp_path / "m")
    with monkeypatch.context() as patch:
        patch.setattr("bic.learn.learner.learn_step", killed)
        with pytest.raises(KeyboardInterrupt):
            learn(model, "red green")
    assert list((tmp_path / "m" / "unfinished" / "features").glob("*/*.safetensors"))
    with counted_images(monkeypatch) as counts:
        learn(model, "red green")
        assert counts == []
    assert not (tmp_path / "m" / "unfinished").exists()
    assert contents(tmp_path / "m") == contents(tmp_path / "reference")


def test_broken_images_can_be_left_out(tmp_path: Path) -> None:
    from PIL import Image

    images, names = squares("red green", 6)
    for number, (pixels, name) in enumerate(zip(images, names, strict=True)):
        (tmp_path / "photos" / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    whole = (tmp_path / "photos" / "red" / "0.png").read_bytes()
    (tmp_path / "photos" / "red" / "0.png").write_bytes(whole[:60])
    with pytest.raises(UserError, match=r"can't read .*0\.png"):
        model_in(tmp_path / "m").learn(tmp_path / "photos")
    assert not (tmp_path / "m" / "live.json").exists()
    with pytest.warns(UserWarning, match="left out"):
        report = model_in(tmp_path / "m").learn(tmp_path / "photos", skip_bad=True)
    assert report.num_images == 11
    (tmp_path / "photos" / "red" / "also.png").write_bytes(whole[:50])
    with (
        pytest.warns(UserWarning, match="left out"),
        pytest.raises(UserError, match="none of the 2 images can be read; fix some"),
    ):
        open_model(tmp_path / "m").learn(tmp_path / "photos", skip_bad=True)


def test_a_frozen_model_cannot_be_tuned_later(tmp_path: Path) -> None:
    learn(model_in(tmp_path / "m"), "red green")
    with pytest.raises(UserError, match="was created with tune False, got True"):
        learn(open_model(tmp_path / "m", tune=True), "blue")


def test_the_expected_time_is_that_of_the_features(tmp_path: Path) -> None:
    heard: list[teaching.Expectation] = []
    model = model_in(tmp_path / "m")
    learn(model, "red green", announce=heard.append)
    assert heard[0].seconds is not None
    assert 0 < heard[0].seconds < 20
