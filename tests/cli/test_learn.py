"""`bic learn` and the commands about the model that it makes."""

import errno
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.command_line import Command, assert_refused, write_arrays, write_photos

from bic.learn import step
from bic.learn.stage1 import train_network
from bic.store.overview import live_settings

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")

SMALL = ["--backbone", "mlp", "--image-size", "8", "--epochs", "1", "--memory", "40"]


def write_class(folder: Path, name: str, count: int = 6, seed: int = 0) -> Path:
    """A class of grey PNG files around one brightness."""
    draws = np.random.default_rng([seed, *name.encode()])
    (folder / name).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        noise = draws.integers(0, 90, (10, 12))
        pixels = (noise + 25 * (ord(name[0]) % 7)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / name / f"{seed}-{number}.png")
    return folder


@pytest.fixture
def shop(bic: Command, tmp_path: Path) -> Path:
    """A model of three classes in two versions."""
    for name in "ab":
        write_class(tmp_path / "first", name)
    write_class(tmp_path / "second", "c")
    assert bic("learn", "shop", "first", *SMALL, "--quiet").code == 0
    assert bic("learn", "shop", "second", "--quiet").code == 0
    return tmp_path / "shop"


def test_a_model_is_created_and_taught(bic: Command, tmp_path: Path) -> None:
    for name in "ab":
        write_class(tmp_path / "first", name)
    outcome = bic("learn", "shop", "first", *SMALL)
    assert outcome.code == 0
    assert "version 1: 2 new classes (a, b), 12 images" in outcome.err
    assert re.search("expected: .* of training, up to ", outcome.err)
    lines = outcome.out.splitlines()
    assert lines[0] == "version 1 is live: 2 new classes (a, b), 12 images"
    assert lines[1].startswith("new classes: ")
    assert lines[1].endswith(", on 2 held-out images")
    assert lines[-2].startswith("memory: 12 images, ")
    assert lines[-1] == "next: bic predict shop IMAGE, or bic classes shop"
    assert "gate" not in outcome.out  # there are no old classes to judge

    write_class(tmp_path / "second", "c")
    write_class(tmp_path / "second", "a", count=2, seed=1)
    outcome = bic("learn", "shop", "second")
    assert outcome.out.startswith(
        "version 2 is live: 1 new class (c) and 1 known class (a), 8 images\nold classes: "
    )
    assert "change on old classes: " in outcome.out
    assert "if only old classes can be answered, as the gate judges, " in outcome.out
    assert "correction: α " in outcome.out
    again = bic("learn", "shop", "second", "--quiet")
    assert again.code == 0
    assert again.out == (
        "nothing to learn: all 8 images were learned before; --again learns them again\n"
    )
    assert bic("learn", "shop", "second", "--again", "--quiet").out.startswith("version 3 is live")


def test_other_settings_are_chosen_when_the_model_is_created(bic: Command, tmp_path: Path) -> None:
    for name in "ab":
        write_class(tmp_path / "first", name)
    write_class(tmp_path / "second", "c")
    rate = ["--set", "recipe.learning_rate=0.03", "--set", "recipe.optimiser.momentum=0.7"]
    command = ["learn", "shop", "first", *SMALL, "--quiet"]
    assert_refused(
        bic(*command, "--set", "recipe.learning_rate=1e25"),
        "training diverged in epoch ",
        "lower recipe.learning_rate (--set recipe.learning_rate=VALUE)",
    )
    assert bic(*command, *rate).code == 0  # the remedy can be followed
    recorded = live_settings(tmp_path / "shop")
    assert recorded["recipe.learning_rate"] == 0.03
    assert recorded["recipe.optimiser.momentum"] == 0.7
    assert recorded["recipe.name"] == "fast"
    assert recorded["recipe.backbone"] == "mlp"  # flags and --set are combined
    assert_refused(
        bic("learn", "shop", "second", "--set", "recipe.learning_rate=0.05"),
        "shop was created with recipe.learning_rate 0.03, got 0.05; leave out "
        "recipe.learning_rate (--set recipe.learning_rate=VALUE), or create another model",
    )
    assert_refused(
        bic("learn", "shop", "second", "--recipe", "best"),
        "shop was created with recipe fast, got best; leave out --recipe",
    )
    assert bic("learn", "shop", "second", *rate, "--quiet").code == 0
    for setting, sentence in (
        ("recipe.learning_rat=1", "did you mean 'recipe.learning_rate'?"),
        ("sed=1", "unknown setting of a model 'sed'; did you mean 'seed'?"),
        ("recipe", "a setting must be given as NAME=VALUE, got 'recipe'"),
    ):
        assert_refused(bic("learn", "other", "second", "--set", setting), sentence)
    assert not (tmp_path / "other").exists()


def test_predicting_uses_the_live_version(bic: Command, shop: Path, tmp_path: Path) -> None:
    def classes() -> set[str]:
        outcome = bic("predict", "shop", "first", "--top", "2", "--csv", "--quiet")
        assert outcome.code == 0
        rows = [line.split(",") for line in outcome.out.splitlines()[1:]]
        return {row[1] for row in rows} | {row[3] for row in rows}

    assert bic("predict", "shop", "first", "--top", "4").code == 2
    assert bic("predict", "shop", "first", "--top", "3", "--quiet").code == 0
    assert bic("rollback", "shop").out == "version 1 of shop is live\n"
    assert classes() == {"a", "b"}
    assert bic("rollback", "shop", "2").out == "version 2 of shop is live\n"
    assert bic("retire", "shop", "a").out == "retired a: 6 kept images deleted\n"
    assert classes() == {"b", "c"}
    assert_refused(
        bic("predict", "shop", "first", "--top", "3"), "between 1 and the number of classes, 2"
    )


def test_tables(bic: Command, shop: Path) -> None:
    text = bic("classes", "shop").out
    assert "shop, version 2: 3 classes" in text
    rows = [line.split() for line in text.splitlines() if line.startswith("  ")]
    assert [row[:5] for row in rows[2:5]] == [
        ["a", "1", "6", "6", "1"],
        ["b", "1", "6", "6", "1"],
        ["c", "2", "6", "6", "1"],
    ]
    assert "→" in text
    text = bic("history", "shop").out
    assert "shop, version 2 is live" in text
    assert "1 new class (c), 6 images; old classes " in text
    assert "settings: method bic-means, recipe fast, backbone mlp, epochs 1, image_size 8" in text
    assert "memory.images 40, held_out 0.1, exemplars herding, seed 0\n" in text
    assert text.endswith("versions kept: 1, 2\n")
    text = bic("diff", "shop").out
    assert text.startswith(
        "from version 1 to version 2\nadded: c\nheld-out accuracy, each version on its own images: "
    )
    assert bic("diff", "shop", "2", "1").out.splitlines()[1] == "no longer there: c"
    assert bic("check", "shop").out.startswith("shop is intact: 2 versions, 12 files, ")
    assert bic("rename", "shop", "a", "[red]ant").out == "a is now called [red]ant\n"
    assert "  [red]ant " in bic("classes", "shop").out
    assert "a is now [red]ant" in bic("history", "shop").out


def test_a_refused_version(bic: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1: the command did its work, but the version is not in use."""

    def spoilt(lesson: Any, model: Any, *arguments: Any, **options: Any) -> None:
        train_network(lesson, model, *arguments, **options)
        with torch.no_grad():
            model.network.head.weight.neg_()

    for name in "ab":
        write_class(tmp_path / "first", name, count=40)
    write_class(tmp_path / "second", "d")
    settings = ["--method", "bic", "--recipe", "demo", "--image-size", "8", "--held-out", "0.3"]
    assert bic("learn", "shop", "first", *settings, "--quiet").code == 0
    with monkeypatch.context() as patch:
        patch.setattr(step, "train_network", spoilt)
        outcome = bic("learn", "shop", "second", "--quiet")
    assert outcome.code == 1
    assert outcome.out.startswith("version 2 is a candidate and not live: 1 new class (d)")
    assert outcome.err.startswith("bic: version 2 was refused: the accuracy on old classes fell by")
    assert outcome.err.endswith("with --force to let it go live all the same\n")
    assert "version 2 is a candidate that was refused: the accuracy" in bic("history", "shop").out
    assert_refused(bic("rollback", "shop", "2"), "version 2 was refused by the gate", "--force")
    promoted = bic("learn", "shop", "second", "--force", "--quiet")
    assert promoted.out.startswith("version 2 is live")


def test_sources(bic: Command, tmp_path: Path) -> None:
    write_photos(tmp_path / "photos")
    outcome = bic("learn", "photo-model", "photos", *SMALL)
    assert "learning from photos/train; images outside it are not used" in outcome.err
    assert "4 new classes (kind0, kind1, kind2, kind3), 24 images" in outcome.out
    write_arrays(tmp_path / "arrays.npz")
    assert "48 images" in bic("learn", "array-model", "arrays.npz", *SMALL, "--quiet").out


def test_mistakes_get_one_sentence_and_leave_nothing(
    bic: Command, tmp_path: Path, shop: Path
) -> None:
    write_class(tmp_path / "single", "x", count=1)
    (tmp_path / "empty" / "y").mkdir(parents=True)
    (tmp_path / "flat").mkdir()
    (tmp_path / "letter.txt").write_text("dear")
    write_class(tmp_path / "broken", "z")
    (tmp_path / "broken" / "z" / "bad.png").write_bytes(b"not an image")
    before = sorted(path.name for path in tmp_path.iterdir())
    for arguments, text in [
        ("new nowhere", "nowhere does not exist; check the path"),
        ("new single", "class 'x' has only one image, and a new class needs 2 different ones;"),
        ("new empty", "class 'y' has no images; put .png"),
        ("new flat", "flat has no class folders; put the images of each class into flat/CLASS/"),
        ("new letter.txt", "letter.txt is not in a format that bic can learn from; give a folder"),
        ("new broken", "broken/z/bad.png (it is not an image); fix it, or set --skip-bad"),
        ("new first --label x", "first has no label columns; leave out --label x"),
        ("new first --recipe fats", "unknown recipe 'fats'; did you mean 'fast'?"),
        ("new first --method joint", "joint is an upper bound"),
        ("new first --memory 1", "got 1; raise --memory"),
        ("new first --image-size 0", "image_size must be greater than or equal to 1"),
        ("new first --max-drop 101", "max_drop must be from 0 to 100 points, got 101.0"),
        ("new first --keep 0", "keep must be 1 or more, got 0; change --keep"),
        ("new first --device banana", "the device banana is unknown"),
        ("shop first --seed 4", "shop was created with seed 0, got 4; leave out --seed, or create"),
        ("letter.txt first", "letter.txt is a file and not a folder; give a folder"),
    ]:
        assert_refused(bic("learn", *arguments.split(), "--quiet"), text)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    for command in ("classes", "history", "diff", "check", "rollback"):
        assert_refused(bic(command, "nowhere"), "nowhere is missing; give a folder that bic learn")
        assert_refused(bic(command, "first"), "first is not a model folder; give a folder")
    assert_refused(bic("retire", "shop", "x"), "unknown class 'x'; known: a, b, c")
    assert_refused(bic("rename", "shop", "a", "b"), "'b' is a class of version 1; choose another")
    assert_refused(bic("rollback", "shop", "9"), "version 9 is not kept; choose one of 1, 2")
    assert_refused(bic("diff", "shop", "9", "2"), "version 9 is not kept; choose among 1, 2")
    assert_refused(bic("diff", "shop", "2"), "version 2 would be compared with itself")


@pytest.mark.filterwarnings("always:left out")
def test_broken_images_can_be_left_out(bic: Command, tmp_path: Path) -> None:
    for name in "ab":
        write_class(tmp_path / "first", name)
    (tmp_path / "first" / "a" / "bad.png").write_bytes(b"not an image")
    outcome = bic("learn", "shop", "first", *SMALL, "--skip-bad", "--quiet")
    assert outcome.err == "warning: left out first/a/bad.png (it is not an image)\n"
    assert outcome.out.startswith("version 1 is live: 2 new classes (a, b), 12 images")


def test_check_names_the_damaged_file_and_the_newest_good_version(bic: Command, shop: Path) -> None:
    root = json.loads((shop / "live.json").read_text())
    manifest = root["versions"][1]
    path = shop / "versions" / f"0002-{manifest['sha256'][:12]}.json"
    version = json.loads(path.read_text())
    weights = shop / "files" / f"{version['files']['weights.safetensors']['sha256']}.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    outcome = bic("check", "shop")
    assert outcome.code == 2
    assert outcome.out.startswith(f"shop/files/{weights.name}: it has ")
    assert outcome.out.endswith("; needed by version 2\n")
    assert f"shop has 1 damaged file, such as files/{weights.name}; restore them" in outcome.err
    assert "run bic rollback shop 1, the newest good version" in outcome.err
    assert_refused(
        bic("predict", "shop", "first", "--quiet"), f"{weights.name} is damaged", "rollback shop 1"
    )


def test_folders_of_classes_in_a_folder(bic: Command, tmp_path: Path) -> None:
    write_class(tmp_path / "year" / "january", "a")
    outcome = bic("learn", "shop", "year", *SMALL)
    sentence = "class 'january' has no images, only folders; give year/january if these are the"
    assert_refused(outcome, sentence)


def test_a_name_that_a_class_has_already(bic: Command, shop: Path) -> None:
    assert_refused(bic("rename", "shop", "a", "a"), "the class is called 'a' already")
    assert "rename" not in bic("history", "shop").out
    assert_refused(bic("rename", "shop", "a", "a\\b"), "no slash or backslash")


def test_a_model_without_live_json_names_it(bic: Command, shop: Path) -> None:
    (shop / "live.json").unlink()
    for command in (["predict", "shop", "first"], ["evaluate", "shop", "first"]):
        outcome = bic(*command)
        assert_refused(outcome, "shop/live.json is damaged (it is missing)", "bic rollback shop 2")
    assert bic("rollback", "shop", "2").code == 0
    assert bic("predict", "shop", "first", "--quiet").code == 0
    assert_refused(bic("predict", "first", "second"), "give a folder that bic learn, a complete")


def test_a_folder_that_cannot_be_written_to(
    bic: Command, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path) -> int:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr("bic.files._open_lock", refused)
    outcome = bic("rollback", "shop")
    assert_refused(outcome, "cannot write to shop (Read-only file system); make it writable, or")


def test_tables_fit_into_80_columns(
    bic: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("sunflower-a", "sunflower-b"):
        write_class(tmp_path / "first", name, count=30)
    assert bic("learn", "shop", "first", *SMALL, "--held-out", "0.3", "--quiet").code == 0
    for seed in range(1, 5):
        write_class(tmp_path / f"more{seed}", "sunflower-a", count=3, seed=seed)
        assert bic("learn", "shop", f"more{seed}", "--force", "--quiet").code == 0
    rows = [line for line in bic("classes", "shop").out.splitlines() if "sunflower" in line]
    assert [row.count("→") for row in rows] == [4, 4]  # each class has one line
