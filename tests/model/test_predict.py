"""Predictions for image files, and their CSV."""

from pathlib import Path

import pytest
from support.digits import write_digits
from support.model_folders import made_model
from support.pictures import plain_png

from bic import Preprocessing, UserError
from bic.model.predict import Prediction, as_csv, image_files, predictions


def test_files_are_kept_in_order_and_folders_are_searched_by_name(tmp_path: Path) -> None:
    for name in ("b/2.png", "b/10.JPG", "a/x/1.webp", "a/notes.txt", "z.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = image_files([tmp_path / "z.png", tmp_path / "b", tmp_path / "a"])
    names = ["z.png", "b/10.JPG", "b/2.png", "a/x/1.webp"]
    assert found == [str(tmp_path / name) for name in names]


def test_places_without_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing does not exist; give image files"):
        image_files([tmp_path / "nothing"])
    with pytest.raises(UserError, match="has no images; give image files, or folders of them"):
        image_files([tmp_path])


def test_best_classes_come_first_with_their_probabilities(tmp_path: Path) -> None:
    model = made_model("corrected")
    files = [str(path) for path in write_digits(tmp_path / "digits", 6)]
    rows = list(predictions(model, files, top=3))
    assert [row.file for row in rows] == files
    probabilities = model.predict_proba(files)
    for row, expected in zip(rows, probabilities, strict=True):
        best = expected.argsort()[::-1][:3]
        assert row.classes == tuple(model.classes[position] for position in best)
        assert row.probabilities == pytest.approx(expected[best])


@pytest.mark.parametrize("top", [0, -1, 6])
def test_top_is_at_most_the_number_of_classes(tmp_path: Path, top: int) -> None:
    files = [str(path) for path in write_digits(tmp_path / "digits", 1)]
    with pytest.raises(UserError) as caught:
        list(predictions(made_model(), files, top=top))
    assert caught.value.problem == f"top must be between 1 and the number of classes, 5, got {top}"
    assert caught.value.remedy == "change {top}"


def test_model_of_vectors_has_no_files_to_predict() -> None:
    model = made_model(preprocessing=Preprocessing(channels=4))
    with pytest.raises(UserError, match=r"classifies vectors.*; use Model\.predict in Python"):
        list(predictions(model, ["a.png"]))


@pytest.mark.filterwarnings("ignore:left out")
def test_broken_files_stop_or_are_left_out(tmp_path: Path) -> None:
    good = tmp_path / "good.png"
    good.write_bytes(plain_png(7))
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"")
    files = [str(bad), str(good)]
    with pytest.raises(UserError, match=r"can't read .*bad\.png"):
        list(predictions(made_model(), files))
    assert [row.file for row in predictions(made_model(), files, skip_bad=True)] == [str(good)]


def test_csv_quotes_names_and_rounds_probabilities() -> None:
    rows = [
        Prediction("a.png", ("cat", "dog"), (0.75, 0.25)),
        Prediction('b,"c".png', ("x, y", "z"), (0.99999, 0.00001)),
    ]
    assert as_csv(rows) == (
        "file,class_1,probability_1,class_2,probability_2\n"
        "a.png,cat,0.7500,dog,0.2500\n"
        '"b,""c"".png","x, y",1.0000,z,0.0000\n'
    )
    assert as_csv([]) == "file,class_1,probability_1\n"
