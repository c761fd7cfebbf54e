"""Retired classes are never predicted, and nothing of their images stays. Names can change."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from support.taught import images_of, learn, probabilities, toy_model

from bic import ModelFolder, UserError, open_model
from bic.data.images import array_set, encode
from bic.store.seen_images import digest

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")


def encoded_images(classes: str) -> list[bytes]:
    """The images as the memory stores them."""
    images, _ = images_of(classes)
    pixels = array_set(images, np.zeros(len(images), np.int64)).pixels
    assert pixels is not None
    return [encode(image) for image in pixels]


def num_found(folder: Path, texts: list[bytes]) -> int:
    """How many of the texts are somewhere in the files of a folder."""
    everything = b"\0".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    return sum(text in everything for text in texts)


def taught(folder: Path, method: str = "bic") -> ModelFolder:
    model = toy_model(folder, method=method)
    for classes in ("ab", "cd", "e"):
        learn(model, classes)
    return model


def test_not_one_byte_of_a_retired_class_stays(tmp_path: Path) -> None:
    model = taught(tmp_path / "m")
    images = encoded_images("a")
    parts = [image[-60:] for image in images]  # their pixels, compressed
    assert num_found(tmp_path / "m", images) > 9  # more than one version has
    assert num_found(tmp_path / "m", [digest(image) for image in images]) == 24
    (tmp_path / "m" / "files" / ".writing-x").write_bytes(images[0])  # of a killed writer
    assert model.retire("a") == 24  # version 1 had kept all of them
    assert num_found(tmp_path / "m", images + parts) == 0
    assert num_found(tmp_path / "m", [digest(image) for image in images]) == 0
    assert num_found(tmp_path / "m", encoded_images("b")) > 9
    assert model.check().damages == ()


def test_a_foreign_folder_inside_does_not_keep_images(tmp_path: Path) -> None:
    model = taught(tmp_path / "m")
    for place in ("files", "versions"):
        (tmp_path / "m" / place / "@eaDir").mkdir()
    assert model.retire("a") == 24
    assert num_found(tmp_path / "m", encoded_images("a")) == 0
    assert (tmp_path / "m" / "files" / "@eaDir").is_dir()


def test_a_file_that_cannot_be_removed_is_named_and_the_others_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = taught(tmp_path / "m")
    kept: list[Path] = []
    unlink = Path.unlink

    def unlink_all_but_one(path: Path, missing_ok: bool = False) -> None:
        if not missing_ok and (not kept or path in kept):  # a file that no version names
            kept.append(path)
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink_all_but_one)
    with pytest.raises(UserError) as caught:
        model.retire("a")
    assert f"({kept[0]}: Operation not permitted)" in caught.value.problem
    kept[0].write_bytes(b"")
    assert num_found(tmp_path / "m", encoded_images("a")) == 0


@pytest.mark.parametrize("method", ["bic", "icarl", "eeil", "ridge"])
def test_a_retired_class_is_never_predicted_in_any_version(tmp_path: Path, method: str) -> None:
    model = taught(tmp_path / "m", method)
    model.retire("a", "e")
    for number, num_classes in ((3, 5), (2, 4), (1, 2)):
        assert model.rollback(number) == number
        answers = probabilities(model)
        assert answers.shape[1] == num_classes
        names = [name for name in model.model.classes if "retired" in name]
        assert names == ["a (retired)", "e (retired)"][: 2 if number == 3 else 1]
        for name in names:
            assert np.all(answers[:, model.model.classes.index(name)] == 0)
        assert answers.sum(axis=1) == pytest.approx(np.ones(len(answers)), abs=1e-5)
        assert not {"a", "e"} & set(model.predict(images_of("abcde")[0]))
    assert [summary.name for summary in model.classes()] == ["b"]
    model.rollback(3)
    report = learn(model, "f")
    assert report.is_live
    assert np.all(probabilities(model)[:, [0, 4]] == 0)


def test_a_class_of_another_version_can_be_retired(tmp_path: Path) -> None:
    """Its images must be deleted, also while a version without the class is live."""
    model = taught(tmp_path / "m")
    model.rollback(1)
    model.retire("c")
    assert num_found(tmp_path / "m", encoded_images("c")) == 0
    model.rollback(3)
    assert "c" not in model.predict(images_of("c")[0])


def test_a_retired_name_can_be_learned_again(tmp_path: Path) -> None:
    model = taught(tmp_path / "m")
    model.retire("a")
    report = learn(model, "a")
    assert (report.new_classes, report.num_left_out) == (("a",), 0)
    assert model.model.classes == ("a (retired)", "b", "c", "d", "e", "a")
    model.retire("a")
    assert model.model.classes[-1] == "a (retired 2)"
    assert set(model.predict(images_of("abcde")[0])) <= set("bcde")


def test_retiring_frees_memory_for_the_others(tmp_path: Path) -> None:
    model = taught(tmp_path / "m")
    assert {summary.kept for summary in model.classes()} == {48 // 5}
    model.retire("a", "b")
    learn(model, "f")
    kept = {summary.name: summary.kept for summary in model.classes()}
    assert kept["f"] == 48 // 4  # c, d, e and f
    assert kept["c"] == 48 // 5  # what is gone does not come back


def test_what_cannot_be_retired(tmp_path: Path) -> None:
    model = taught(tmp_path / "m")
    with pytest.raises(UserError, match="unknown class 'x'; known: a, b, c, d, e"):
        model.retire("x")
    with pytest.raises(UserError, match="no class would be left; keep one class, or delete"):
        model.retire(*"abcde")
    with pytest.raises(UserError, match="no class was named"):
        model.retire()
    model.retire("a", "b")
    assert model.versions() == (2, 3)  # version 1 had no other class
    with pytest.raises(UserError, match="the class 'a' is already retired; name another class"):
        model.retire("a")
    with pytest.raises(UserError, match="the class 'a' is already retired"):
        model.rename("a", "z")
    with pytest.raises(UserError, match=r"the class name 'a \(retired\)' is reserved"):
        model.learn(images_of("a")[0], ["a (retired)"] * 24)


def test_a_name_changes_in_every_version(tmp_path: Path) -> None:
    model = taught(tmp_path / "m")
    answers = probabilities(model)
    model.rename("a", "ant")
    assert model.model.classes == ("ant", "b", "c", "d", "e")
    assert np.array_equal(probabilities(model), answers)
    model.rollback(1)
    assert model.model.classes == ("ant", "b")
    assert learn(model, "ab").num_left_out == 24  # b is known; a is a new class now
    assert model.model.classes == ("ant", "b", "a")
    with pytest.raises(UserError, match="'c' is a class of version 2; choose another name"):
        model.rename("ant", "c")
    with pytest.raises(UserError, match="unknown class 'x'"):
        model.rename("x", "y")
    with pytest.raises(UserError, match="cannot be used"):
        model.rename("ant", " ")
    model.rename("ant", "Ant")
    assert open_model(tmp_path / "m").model.classes[0] == "Ant"
