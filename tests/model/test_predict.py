"""Predictions for image files, and how they are written."""

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from support.digits import write_digits
from support.model_folders import made_model
from support.pictures import plain_png

from bic import Preprocessing, UserError
from bic.model import predict as predict_module
from bic.model.calibration import Calibration
from bic.model.certainty import certainty
from bic.model.predict import Prediction, image_files, predictions, read_image
from bic.model.prediction_text import as_csv, as_json, as_text, printable_names


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
    with pytest.raises(UserError, match="has no images that bic can read; give image files"):
        image_files([tmp_path])


def test_files_of_other_formats_are_named(tmp_path: Path) -> None:
    for name in ("a.heic", "b.heic", "c.mov"):
        (tmp_path / name).touch()
    with pytest.raises(UserError, match=r"bic can read, only files such as \.heic, \.mov; give"):
        image_files([tmp_path])


def test_pipes_and_devices_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    for place in (tmp_path / "pipe.png", Path("/dev/zero")):
        with pytest.raises(UserError, match=r"neither a file nor a folder.*- for standard input"):
            image_files([place])
    with pytest.raises(UserError, match="has no images"):  # a pipe in a folder is left out
        image_files([tmp_path])


def test_one_image_is_read_from_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made_model()
    content = plain_png(7, (8, 8))
    encoded = read_image(io.BytesIO(content), model.preprocessing)
    (row,) = predictions(model, [encoded])
    assert row.file == "-"
    assert row.classes == tuple(model.predict(np.full((1, 8, 8), 7, np.uint8)))
    with pytest.raises(UserError, match=r"can't read the image in standard input \(it is not an"):
        read_image(io.BytesIO(b"no image"), model.preprocessing)
    monkeypatch.setattr(predict_module, "MAX_INPUT_BYTES", len(content) - 1)
    with pytest.raises(UserError, match="standard input has more than"):
        read_image(io.BytesIO(content), model.preprocessing)


def test_unsure_answers_are_rejected(tmp_path: Path) -> None:
    files = [str(path) for path in write_digits(tmp_path / "digits", 6)]
    model = made_model()
    with pytest.raises(UserError, match="this model is not calibrated"):
        list(predictions(model, files, reject=0.5))
    certainties = certainty(torch.from_numpy(model.predict_proba(files))).tolist()
    model.calibration = Calibration(1.0, tuple(sorted(certainties)), 6)
    rows = list(predictions(model, files, reject=0.5))
    threshold = sorted(certainties)[3]
    assert [row.rejected for row in rows] == [value < threshold for value in certainties]
    assert sum(row.rejected for row in rows) == 3
    for row in rows:
        assert row.answer == (None if row.rejected else row.classes[0])


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


ROWS = [
    Prediction("a.png", ("cat", "dog"), (0.75, 0.25)),
    Prediction('b,"c".png', ("x, y", "z"), (0.99999, 0.00001), rejected=True),
]
EVIL = Prediction("e\x1b[2J\n\x9b.png", ("\u202ecat\x07",), (0.5,))


def test_csv_quotes_names_and_rounds_probabilities() -> None:
    assert as_csv(ROWS) == (
        "file,class_1,probability_1,class_2,probability_2\n"
        "a.png,cat,0.7500,dog,0.2500\n"
        '"b,""c"".png","x, y",1.0000,z,0.0000\n'
    )
    assert as_csv([]) == "file,class_1,probability_1\n"
    assert as_csv(ROWS, with_answer=True).splitlines()[1:] == [
        "a.png,cat,cat,0.7500,dog,0.2500",
        '"b,""c"".png",none of these,"x, y",1.0000,z,0.0000',
    ]


def test_text_is_for_people() -> None:
    assert as_text(ROWS) == (
        'a.png: cat 75.0 %, dog 25.0 %\nb,"c".png: none of these (x, y 100.0 %, z 0.0 %)\n'
    )


def test_json_can_be_read_back() -> None:
    first, second, third = json.loads(as_json([*ROWS, EVIL]))
    assert first == {
        "file": "a.png",
        "answer": "cat",
        "classes": [{"class": "cat", "probability": 0.75}, {"class": "dog", "probability": 0.25}],
    }
    assert second["answer"] is None
    assert third["file"] == EVIL.file
    assert third["answer"] == EVIL.classes[0]
    assert json.loads(as_json([])) == []
    assert as_json(ROWS).count("\n") == 4


@pytest.mark.parametrize(
    "written", [as_text([EVIL]), as_json([EVIL]), as_csv(printable_names([EVIL]))]
)
def test_no_control_character_reaches_a_terminal(written: str) -> None:
    for line in written.splitlines():
        assert line.isprintable()
    assert "cat" in written


def test_file_name_that_is_not_text_survives() -> None:
    row = EVIL._replace(file=os.fsdecode(b"\xff.png"))
    assert as_csv([row]).encode(errors="surrogateescape").splitlines()[1].startswith(b"\xff.png,")
    assert json.loads(as_json([row]))[0]["file"] == row.file
    as_text([row]).encode()
