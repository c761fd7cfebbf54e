"""Images that wait in a model folder: one class each, deleted when their class is retired."""

from pathlib import Path

import pytest
from support.taught import learn, toy_model

from bic import UserError
from bic.store.waiting import Box, boxes, remove_waiting

NAMES = ("cup", "..", ".", ".hidden", "é" * 200, "class.txt", "con", "*")


def found(box: Box) -> dict[str, list[bytes]]:
    contents: dict[str, list[bytes]] = {}
    for image in box.images():
        contents.setdefault(image.class_name, []).append(image.path.read_bytes())
    return contents


def test_any_class_name_stays_inside_its_box(tmp_path: Path) -> None:
    box = Box(tmp_path / "m", "pending")
    for number, name in enumerate(NAMES):
        box.add(name, [b"image %d" % number])
    assert found(box) == {name: [b"image %d" % number] for number, name in enumerate(NAMES)}
    inside = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(path.is_relative_to(box.path) for path in inside)
    assert box.num_bytes() == 7 * len(NAMES)


def test_equal_images_are_kept_once_with_their_last_class(tmp_path: Path) -> None:
    box = Box(tmp_path, "pending")
    box.add("cup", [b"1", b"2", b"1"])
    box.add("hat", [b"2", b"3"])
    assert {name: set(images) for name, images in found(box).items()} == {
        "cup": {b"1"},
        "hat": {b"2", b"3"},
    }


def test_moving_and_clearing(tmp_path: Path) -> None:
    first, second = Box(tmp_path, "first"), Box(tmp_path, "second")
    first.add("cup", [b"1"])
    first.add("hat", [b"2"])
    first.move("cup", second)
    first.move("nothing", second)
    assert (found(first), found(second)) == ({"hat": [b"2"]}, {"cup": [b"1"]})
    first.move_all(second)
    assert found(second) == {"cup": [b"1"], "hat": [b"2"]}
    second.remove("cup")
    assert [box.path.name for box in boxes(tmp_path)] == ["second"]
    second.clear()
    assert not list(tmp_path.iterdir())


def test_an_image_that_is_moved_has_one_class_in_its_box(tmp_path: Path) -> None:
    first, second = Box(tmp_path, "first"), Box(tmp_path, "second")
    second.add("cup", [b"1", b"2"])
    first.add("hat", [b"1"])
    first.move("hat", second)
    assert found(second) == {"cup": [b"2"], "hat": [b"1"]}
    first.add("cup", [b"1"])
    first.add("mug", [b"3"])
    first.move_all(second)  # what waits there already is newer
    assert found(second) == {"cup": [b"2"], "hat": [b"1"], "mug": [b"3"]}
    assert found(first) == {}


def test_what_others_put_there_is_left_out(tmp_path: Path) -> None:
    box = Box(tmp_path, "pending")
    box.add("cup", [b"1"])
    (folder,) = box.path.iterdir()
    (box.path / "other").mkdir()
    (box.path / "other" / "class.txt").write_text("cup")
    (box.path / "link").symlink_to(folder)
    (tmp_path / "waiting" / "..strange").mkdir()
    assert found(box) == {"cup": [b"1"]}
    assert len(boxes(tmp_path)) == 1
    (folder / "class.txt").write_text("hat")
    assert found(box) == {}


@pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")
def test_retiring_and_renaming_change_what_waits(tmp_path: Path) -> None:
    model = toy_model(tmp_path / "m")
    box = Box(model.path, "pending")
    box.add("a", [b"1"])
    box.add("z", [b"2"])
    learn(model, "abc")  # images that wait do not stop a first learn
    model.rename("a", "d")
    assert found(box) == {"d": [b"1"], "z": [b"2"]}
    model.retire("d")
    assert found(box) == {"z": [b"2"]}
    remove_waiting(model.path, ["z", "unknown"])
    assert found(box) == {}
    assert model.check().damages == ()


@pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")
def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    model = toy_model(tmp_path / "m")
    learn(model, "ab")
    (tmp_path / "elsewhere").mkdir()
    (model.path / "waiting").symlink_to(tmp_path / "elsewhere")
    assert boxes(model.path) == []
    with pytest.raises(UserError, match="is a link to another place"):
        model.retire("a")
