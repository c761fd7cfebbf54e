"""`bic predict`: answers for image files, how they are written, and what it refuses."""

import csv
import io
import json
import re
from pathlib import Path

import pytest
from support.command_line import Command, Outcome, assert_refused, write_photos
from support.digits import write_digits
from support.foreign_code import ForeignCode

from bic import Model
from bic.data import decode_pool

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")

QUICK = ["--epochs", "1", "--quiet"]


@pytest.fixture
def photos(bic: Command, tmp_path: Path) -> list[str]:
    """The test images of a run in the folder `here`, by name."""
    folder = write_photos(tmp_path / "photos")
    command = ["run", "photos", "--steps", "2", "--memory", "8", "--backbone", "small"]
    assert bic(*command, *QUICK, "--out", "here").code == 0
    return sorted(str(path.relative_to(tmp_path)) for path in (folder / "test").rglob("*.png"))


def test_answers_are_those_of_the_model(
    bic: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, photos: list[str]
) -> None:
    outcome = bic("predict", "here", "photos/test", "--top", "2", "--csv", "--quiet")
    assert outcome.code == 0
    header, *rows = csv.reader(outcome.out.splitlines())
    assert header == ["file", "class_1", "probability_1", "class_2", "probability_2"]
    assert [row[0] for row in rows] == photos
    model = Model.load(tmp_path / "here")
    for file, *pairs in rows:
        pixels = model.preprocessing.decode((tmp_path / file).read_bytes())
        probabilities = model.probabilities(model.logits(pixels[None])[1])[0]
        best = probabilities.argsort(descending=True)[:2]
        assert pairs[::2] == [model.classes[position] for position in best]
        expected = probabilities[best].tolist()
        assert list(map(float, pairs[1::2])) == pytest.approx(expected, abs=1e-4)
    monkeypatch.setattr(decode_pool, "MIN_PIXELS", 0)  # decoded by processes
    again = bic("predict", "here", "photos/test", "--top", "2", "--csv", "--quiet")
    assert again.out == outcome.out


def test_answers_can_be_written_to_a_file(bic: Command, tmp_path: Path, photos: list[str]) -> None:
    outcome = bic("predict", "here/model", photos[0], "--out", "answers.csv", "--quiet")
    assert outcome.out == "answers: answers.csv\n"
    text = (tmp_path / "answers.csv").read_text()
    assert text.startswith(f"file,class_1,probability_1\n{photos[0]},kind")


def test_formats_and_standard_input(
    bic: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, photos: list[str]
) -> None:
    image = photos[0]
    text = bic("predict", "here", image, "--top", "2", "--quiet").out
    assert re.fullmatch(rf"{image}: kind\d \d+\.\d %, kind\d \d+\.\d %\n", text)
    (by_name,) = json.loads(bic("predict", "here", image, "--json", "--quiet").out)
    two = bic("predict", "here", "--json", image, "--quiet", photos[1])
    assert [row["file"] for row in json.loads(two.out)] == photos[:2]
    with (tmp_path / image).open("rb") as file:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(file))
        (piped,) = json.loads(bic("predict", "here", "-", "--json", "--quiet").out)
    assert piped == {**by_name, "file": "-"}
    assert bic("predict", "here", image, "--out", "a.json").out == "answers: a.json\n"
    assert json.loads((tmp_path / "a.json").read_text()) == [by_name]


def test_complete_run_is_calibrated_and_can_reject(bic: Command, photos: list[str]) -> None:
    model = Model.load("here")
    assert model.calibration is not None
    outcome = bic("predict", "here", "photos/test", "--reject", "0.9", "--csv", "--quiet")
    rows = list(csv.DictReader(outcome.out.splitlines()))
    answers = model.predict(photos, reject=0.9)
    assert [row["file"] for row in rows] == photos
    for row, answer in zip(rows, answers, strict=True):
        assert row["answer"] == ("none of these" if answer is None else answer)
        assert answer in (None, row["class_1"])
    assert None in answers
    assert_refused(
        bic("predict", "here", "photos/test", "--reject", "5"),
        "at least 0 and less than 1, got 5.0; change --reject",
    )


@pytest.mark.filterwarnings("always:left out")
def test_mistakes_get_one_sentence(bic: Command, tmp_path: Path, photos: list[str]) -> None:
    assert_refused(
        bic("predict", "here", "nothing.png"), "nothing.png does not exist; give image files"
    )
    assert_refused(bic("predict", "here"), "no image was given; give image files, folders, or -")
    assert_refused(
        bic("predict", "here", photos[0], "--json", "--csv"),
        "answers cannot be JSON and CSV; leave out --json or --csv",
    )
    assert_refused(
        bic("predict", "here", photos[0], "--topp", "3"),
        "unknown option --topp; see bic predict --help",
    )
    assert_refused(
        bic("predict", "here", photos[0], "--device", "abacus"), "the device abacus is unknown"
    )
    assert_refused(
        bic("predict", "here", "here"), "here has no images that bic can read, only files such as"
    )
    assert_refused(
        bic("predict", "nowhere", "photos"),
        "nowhere does not exist; give a folder that bic has written",
    )
    assert_refused(
        bic("predict", "here", "photos", "--top", "9"),
        "top must be between 1 and the number of classes, 4, got 9; change --top",
    )
    (tmp_path / "photos" / "test" / "bad.png").write_bytes(b"")
    assert_refused(
        bic("predict", "here", "photos/test"),
        "can't read photos/test/bad.png (it is not an image)",
        "--skip-bad",
    )
    skipped = bic("predict", "here", "photos/test", "--skip-bad", "--quiet")
    assert len(skipped.out.splitlines()) == len(photos)


@pytest.mark.parametrize("pattern", ["{}", "mlp+{}"])
def test_backbone_of_a_model_is_imported_only_with_trust(
    bic: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    foreign_code = ForeignCode(tmp_path, monkeypatch, num_features=128)
    backbone = pattern.format(foreign_code.backbone)
    command = ["run", "digits", "--backbone", backbone, "--steps", "2", *QUICK, "--out", "here"]
    assert bic(*command).code == 0
    write_digits(tmp_path / "digits", 2)

    def predict(*flags: str) -> Outcome:
        foreign_code.forget()
        return bic("predict", "here", "digits", "--quiet", *flags)

    assert_refused(
        predict(),
        f"the model in here/model would import and run {backbone}; "
        "pass --trust if you trust where it comes from",
    )
    assert not foreign_code.was_imported
    trusted = predict("--trust")
    assert trusted.code == 0
    assert foreign_code.was_imported
    assert len(trusted.out.splitlines()) == 2
