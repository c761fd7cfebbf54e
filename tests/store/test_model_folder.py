"""A model folder: it learns, answers alike after a reload, and shares files between versions."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from support.taught import MEMORY, contents, images_of, learn, probabilities, test_images, toy_model

import bic.learn.step
from bic import Learner, Learning, Model, RunConfig, UserError, open_model, run
from bic.data.images import join
from bic.learn.lesson import Lesson
from bic.learn.memory import Memory
from bic.model.version_files import read_root, read_version
from bic.model.versions import Version
from bic.store import learner_files

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")


def live(folder: Path) -> Version:
    root = read_root(folder)
    manifest = root.manifest(root.live)
    assert manifest is not None
    return read_version(folder, manifest)


def test_classes_are_learned_one_after_another(tmp_path: Path) -> None:
    model = toy_model(tmp_path / "m")
    assert learn(model, "fb").new_classes == ("b", "f")  # in the order of their names
    report = learn(model, "a")
    assert (report.version, report.is_live, report.num_images) == (2, True, 24)
    mixed = np.concatenate([images_of("c")[0], images_of("b")[0][:0], 255 - images_of("b")[0][:5]])
    report = model.learn(mixed, ["c"] * 24 + ["b"] * 5)
    assert (report.new_classes, report.known_classes) == (("c",), ("b",))
    assert model.model.classes == ("b", "f", "a", "c")
    counts = {summary.name: (summary.added, summary.seen) for summary in model.classes()}
    assert counts == {"b": (1, 29), "f": (1, 24), "a": (2, 24), "c": (3, 24)}
    assert sum(summary.kept for summary in model.classes()) <= MEMORY
    images, names = test_images()
    chosen = [index for index, name in enumerate(names) if name in "bfac"]
    answers = np.array(model.predict(images[chosen]))
    assert np.mean(answers == np.array(names)[chosen]) > 0.8


def test_a_reloaded_model_answers_alike_to_the_last_bit(tmp_path: Path) -> None:
    model = toy_model(tmp_path / "m")
    learn(model, "ab")
    learn(model, "cd")
    answers = probabilities(model)
    shutil.copytree(tmp_path / "m", tmp_path / "copy")
    shutil.rmtree(tmp_path / "m")
    copied = open_model(tmp_path / "copy")
    assert np.array_equal(probabilities(copied), answers)
    assert np.array_equal(Model.load(tmp_path / "copy").predict_proba(test_images()[0]), answers)


def test_learning_in_steps_is_what_a_learner_does(tmp_path: Path) -> None:
    """Saving and loading between the steps changes nothing."""
    model = toy_model(tmp_path / "m")
    learner = Learner(
        Learning(
            method="bic", recipe={"name": "demo", "image_size": 8}, memory=MEMORY, held_out=0.3
        )
    )
    for classes in ("ab", "c", "de"):
        learn(model, classes)
        learner.learn(*images_of(classes))
    expected = learner.model.network.state_dict()
    for name, tensor in model.model.network.state_dict().items():
        assert torch.equal(tensor, expected[name])
    assert model.model.correction == learner.model.correction


def test_versions_share_files_that_did_not_change(tmp_path: Path) -> None:
    model = toy_model(tmp_path / "m", memory=1000)
    learn(model, "ab")
    before = live(tmp_path / "m")
    learn(model, "cd")
    after = live(tmp_path / "m")
    for position in (0, 1):
        assert before.classes[position].memory == after.classes[position].memory
    assert before.files["learning.json"] == after.files["learning.json"]
    assert before.files["weights.safetensors"] != after.files["weights.safetensors"]
    named = {file.name for version in (before, after) for file in version.stored()}
    assert {f"files/{path.name}" for path in (tmp_path / "m" / "files").iterdir()} == named


def test_classes_that_keep_their_exemplars_are_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = toy_model(tmp_path / "m", memory=1000)
    learn(model, "abcd")
    written = []
    encoded_class = learner_files._encoded_class

    def counted(memory: Memory, label: int) -> bytes:
        written.append(label)
        return encoded_class(memory, label)

    monkeypatch.setattr(learner_files, "_encoded_class", counted)
    images, names = images_of("e")
    more = 255 - images_of("b")[0][:5]
    model.learn(np.concatenate([images, more]), [*names, *"bbbbb"])
    assert written == [1, 4]  # b has more images, e is new
    assert model.check().damages == ()


def test_a_version_that_could_not_be_read_again_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = toy_model(tmp_path / "m")
    learn(model, "ab")
    size = read_root(tmp_path / "m").versions[0].size
    with monkeypatch.context() as patch:
        patch.setattr("bic.store.version_writer.MAX_BYTES", size)
        with pytest.raises(UserError, match="a model cannot have 3 classes with such names"):
            learn(model, "c")
    assert model.version == 1
    assert learn(model, "c").version == 2


def test_only_the_last_versions_are_kept(tmp_path: Path) -> None:
    model = toy_model(tmp_path / "m")
    for number, classes in enumerate("abcdef", start=1):
        images, names = images_of(classes)
        model.learn(images[:4], names[:4], keep=2 if number == 5 else None)
        expected = {5: (4, 5), 6: (5, 6)}.get(number, tuple(range(1, number + 1)))
        assert model.versions() == expected
    assert len(list((tmp_path / "m" / "versions").iterdir())) == 2
    report = model.learn(images[:4], names[:4], keep=1)  # there is nothing to learn
    assert (report.is_changed, model.versions()) == (False, (6,))
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == sorted(
        [".lock", "README.md", "files", "live.json", "versions"]
    )
    assert model.check().damages == ()


def test_rolling_back_keeps_later_versions(tmp_path: Path) -> None:
    model = toy_model(tmp_path / "m")
    learn(model, "ab")
    first = probabilities(model)
    learn(model, "c")
    second = probabilities(model)
    assert model.rollback() == 1
    assert np.array_equal(probabilities(model), first)
    with pytest.raises(UserError, match="no kept version before version 1; name a version"):
        model.rollback()
    assert model.rollback(2) == 2
    assert np.array_equal(probabilities(model), second)
    with pytest.raises(UserError, match="version 7 is not kept; choose one of 1, 2"):
        model.rollback(7)
    model.rollback(1)
    assert learn(model, "c").version == 3  # what the live version has not seen can be learned
    assert np.array_equal(probabilities(model), second)
    actions = [(event.action, event.version) for event in model.history()]
    rollbacks = [("roll back", 1), ("roll back", 2), ("roll back", 1)]
    assert actions == [("learn", 1), ("learn", 2), *rollbacks, ("learn", 3)]


def test_the_same_images_are_learned_once(tmp_path: Path) -> None:
    model = toy_model(tmp_path / "m")
    learn(model, "ab")
    before = contents(tmp_path / "m")
    report = learn(model, "ab")
    assert not report.is_changed
    assert report.note == "all 48 images were learned before"
    assert contents(tmp_path / "m") == before
    images, names = images_of("bc")
    report = model.learn(images, names)  # a folder to which a class was added
    assert (report.new_classes, report.known_classes) == (("c",), ())
    assert (report.num_images, report.num_left_out) == (24, 24)
    num_held_out = sum(summary.held_out for summary in model.classes() if summary.name in "ab")
    report = learn(model, "ab", again=True)
    assert report.num_images == 48 - num_held_out  # held-out images are never trained on


def test_images_that_are_learned_again_are_not_held_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were trained on, so they cannot judge. The memory keeps each image once."""
    trained_on: set[bytes] = set()
    held_out: set[bytes] = set()
    remember = bic.learn.step.remember

    def watched(lesson: Lesson, model: Model, memory: Memory, *, new: Any, held_out: Any) -> None:
        trained = join([new, memory.train_images()])
        trained_on.update(trained.encoded(index) for index in range(len(trained)))
        remember(lesson, model, memory, new=new, held_out=held_out)

    monkeypatch.setattr(bic.learn.step, "remember", watched)
    model = toy_model(tmp_path / "m", memory=1000, epochs=1)
    a, b = (images_of(name)[0] for name in "ab")
    model.learn(np.concatenate([a, b[:12]]), ["a"] * 24 + ["b"] * 12)
    model.learn(*images_of("ab"), again=True)
    version = live(tmp_path / "m")
    # 7 of 24 images of a, 3 of the first 12 of b, and 3 of its other 12.
    assert [(record.kept, record.held_out) for record in version.classes] == [(17, 7), (18, 6)]
    for record in version.classes:
        assert record.memory is not None
        table = pq.read_table(tmp_path / "m" / record.memory.name)
        assert len(set(table["image"].to_pylist())) == len(table) == 24
        held_out.update(table.filter(pc.equal(table["part"], "held out"))["image"].to_pylist())
    assert len(held_out) == 13
    assert not held_out & trained_on
    report = model.learn(*images_of("ab"), again=True)  # nothing new is among them
    assert report.is_live
    assert [record.held_out for record in live(tmp_path / "m").classes] == [7, 6]


def test_an_image_that_is_there_twice_is_learned_once(tmp_path: Path) -> None:
    model = toy_model(tmp_path / "m")
    images, names = images_of("ab")
    report = model.learn(np.concatenate([images, images[:3]]), names + names[:3])
    assert (report.num_images, report.num_left_out) == (48, 3)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["a", "a", "b"], "class 'b' has only one image, and a new class needs 2 different ones"),
        (["a", "b", "c"], "3 classes have only one image (a, b, c), and"),
        (["x/y"] * 3, "the class name 'x/y' cannot be used"),
        (["x" * 201] * 3, "cannot be used; rename it: 1 to 200 printable characters"),
        (["cat"] * 2 + ["Cat"], "the class names 'Cat' and 'cat' differ only by case;"),
        (["cat (retired)"] * 3, "reserved for a retired class"),
    ],
)
def test_classes_that_cannot_be_learned(tmp_path: Path, names: list[str], text: str) -> None:
    model = toy_model(tmp_path / "m")
    with pytest.raises(UserError) as caught:
        model.learn(images_of("a")[0][:3], names)
    assert text in str(caught.value)
    assert not (tmp_path / "m").exists()


def test_a_known_class_cannot_come_back_in_other_case(tmp_path: Path) -> None:
    model = toy_model(tmp_path / "m")
    learn(model, "ab")
    with pytest.raises(UserError, match="'a' and 'A' differ only by case"):
        model.learn(images_of("c")[0], ["A"] * 24)
    model.learn(images_of("c")[0], ["Éé 🦊"] * 24)
    assert model.model.classes[-1] == "Éé 🦊"
    report = model.learn(images_of("d")[0], ["E\u0301e\u0301 🦊"] * 24)  # as macOS writes it
    assert report.known_classes == ("Éé 🦊",)


def test_settings_stay_as_they_were_chosen(tmp_path: Path) -> None:
    toy_model(tmp_path / "m").learn(*images_of("ab"))
    for settings, text in [
        ({"memory": 20}, "created with memory 48 images, got 20 images; leave out memory"),
        ({"memory": "1MB"}, "memory 48 images, got 1,000,000 bytes"),
        ({"method": "icarl"}, "created with method bic, got icarl"),
        ({"recipe": "fast"}, "created with recipe demo, got fast"),
        ({"recipe": {"learning_rate": 1.0}}, "recipe"),
        ({"image_size": 16}, "created with image_size 8, got 16"),
        ({"seed": 3}, "created with seed 0, got 3"),
        ({"sed": 3}, "unknown setting of a model 'sed'; did you mean 'seed'?"),
    ]:
        with pytest.raises(UserError) as caught:
            open_model(tmp_path / "m", **settings).learn(*images_of("c"))
        assert text in str(caught.value)
    same = open_model(tmp_path / "m", memory=48, recipe="demo", held_out=0.3, backbone="mlp")
    assert same.learn(*images_of("c")).version == 2


def test_settings_suit_the_images(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 12, 12, 3), dtype=np.uint8)
    names = ["a", "b"] * 20
    cases = {"small": images[:, :8, :8], "fast": images, "mlp": images[:, 0, :, 0] / 255}
    for backbone, values in cases.items():
        model = open_model(tmp_path / backbone, epochs=1)
        model.learn(values, names)
        assert model.model.backbone == backbone
    with pytest.raises(UserError, match="images must be square; set image_size=32 to resize them"):
        open_model(tmp_path / "flat").learn(images[:, :8], names)
    flat = open_model(tmp_path / "flat", image_size=9, epochs=1)
    flat.learn(images[:, :8], names)
    assert flat.model.preprocessing.size == 9


@pytest.mark.parametrize("place", [".", "model"])
def test_a_plain_learner_is_taken_over(tmp_path: Path, place: str) -> None:
    """The folder of Learner.save, and the `model` folder of a finished run."""
    folder = tmp_path / "m"
    if place == ".":
        learner = Learner(Learning(recipe="demo", memory=MEMORY, held_out=0.3))
        learner.learn(*images_of("ab"))
        learner.learn(*images_of("cd"))
        learner.save(folder)
        new = images_of("ef")
    else:
        run(RunConfig(dataset="digits", epochs=1), folder, threads=1)
        with pytest.raises(UserError, match=r"m is a run; give its model, .*m/model, or a copy"):
            open_model(folder).learn(*images_of("a"))
        new = images_of("ab")
    plain = Model.load(folder).predict_proba(images_of("a")[0])
    model = open_model(folder / place)
    assert np.array_equal(model.predict_proba(images_of("a")[0]), plain)
    report = model.learn(*new)
    assert report.version == 2
    assert report.verdict is not None
    assert report.verdict.is_judged
    assert model.rollback() == 1
    assert np.array_equal(model.predict_proba(images_of("a")[0]), plain)
    assert np.array_equal(Model.load(folder).predict_proba(images_of("a")[0]), plain)
    assert not (folder / place / "model.json").exists()


def test_folders_that_are_no_models_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear")
    with pytest.raises(UserError, match=r"other holds other files \(letter.txt\); give another"):
        open_model(tmp_path / "other").learn(*images_of("ab"))
    with pytest.raises(UserError, match="is a file and not a folder"):
        open_model(tmp_path / "other" / "letter.txt")
    missing = open_model(tmp_path / "missing")
    for action in (missing.classes, missing.history, missing.rollback, missing.check, missing.diff):
        with pytest.raises(UserError, match="missing is missing; give a folder that bic learn"):
            action()
    with pytest.raises(UserError, match="does not exist"):
        missing.predict(images_of("a")[0])
    assert not (tmp_path / "missing").exists()


def test_diff_and_history(tmp_path: Path) -> None:
    model = toy_model(tmp_path / "m")
    learn(model, "ab")
    with pytest.raises(UserError, match="no version before version 1"):
        model.diff()
    learn(model, "cd")
    learn(model, "e")
    difference = model.diff(1, 3)
    assert (difference.first, difference.second) == (1, 3)
    assert (difference.added, difference.removed) == (("c", "d", "e"), ())
    assert difference.counts == {"a": (24, 24, 24, 9), "b": (24, 24, 24, 9)}
    assert difference.settings == {}
    assert model.diff(3, 1).removed == ("c", "d", "e")
    texts = [event.text for event in model.history()]
    assert texts[1].startswith("2 new classes (c, d), 48 images; old classes ")


def test_a_readme_says_what_each_file_is(tmp_path: Path) -> None:
    model = toy_model(tmp_path / "m")
    learn(model, "ab")
    text = (tmp_path / "m" / "README.md").read_text()
    suffixes = {path.suffix for path in (tmp_path / "m" / "files").iterdir()}
    assert suffixes == {".json", ".safetensors", ".parquet"}
    described = [f"CHECKSUM{suffix}" for suffix in suffixes]
    for word in ("live.json", "versions/", "unfinished/", *described):
        assert word in text
    assert json.loads((tmp_path / "m" / "live.json").read_text())["live"] == 1


def test_evaluating_is_that_of_the_live_model(tmp_path: Path) -> None:
    model = toy_model(tmp_path / "m")
    learn(model, "abc")
    images, names = test_images()
    evaluation = model.evaluate(images, names, reject=0.05)
    known = [number for number, name in enumerate(names) if name in "abc"]
    answers = model.predict(images[known])
    right = sum(answer == names[number] for answer, number in zip(answers, known, strict=True))
    assert (evaluation.accuracy.correct, evaluation.accuracy.total) == (right, len(known))
    assert dict(evaluation.unknown) == {"d": 10, "e": 10, "f": 10}
    rejected = model.predict(images[known], reject=0.05).count(None)
    assert evaluation.rejection is not None
    assert evaluation.rejection.known.correct == rejected
    np.savez(tmp_path / "test.npz", x=images, y=np.array(names))
    from_file = model.evaluate(tmp_path / "test.npz", reject=0.05)
    assert from_file.as_dict() == evaluation.as_dict()
    with pytest.raises(UserError, match="a path and labels cannot both be given"):
        model.evaluate(tmp_path / "test.npz", names)


def test_a_new_version_is_calibrated(tmp_path: Path) -> None:
    model = toy_model(tmp_path / "m")
    learn(model, "abc")
    calibration = model.model.calibration
    assert calibration is not None
    learn(model, "d")
    assert model.model.calibration != calibration
    model.rename("a", "alpha")
    model.retire("d")
    assert model.model.calibration is not None
    model.rollback(1)
    assert model.model.calibration == calibration
