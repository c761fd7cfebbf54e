"""Damaged model folders: the file is named, and so is the newest version without damage."""

import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.foreign_code import ForeignCode
from support.memory_limit import memory_limit
from support.odd_files import NOT_FILES, put
from support.taught import images_of, learn, probabilities, toy_model

from bic import Model, ModelFolder, UserError, open_model
from bic.foreign_files import MAX_JSON_BYTES
from bic.model.version_files import read_root, read_version
from bic.model.versions import Version
from bic.store.seen_images import read_ledgers
from bic.store.unfinished import clear_finished

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("taught") / "m"
    model = toy_model(folder)
    learn(model, "ab")
    learn(model, "cd")
    return folder


@pytest.fixture
def model(taught: Path, tmp_path: Path) -> ModelFolder:
    """A model with two versions."""
    shutil.copytree(taught, tmp_path / "m")
    return open_model(tmp_path / "m")


def version(folder: Path, number: int) -> Version:
    manifest = read_root(folder).manifest(number)
    assert manifest is not None
    return read_version(folder, manifest)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def make_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def make_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = [flip, cut, Path.unlink, make_fifo, make_link, make_folder]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_weights(model: ModelFolder, damage: Callable[[Path], Any]) -> None:
    file = version(model.path, 2).files["weights.safetensors"]
    damage(model.path / file.name)
    sentence = (
        rf"{file.sha256}.safetensors is damaged \(.*\); .*bic rollback .*m 1: version 1 is the"
    )
    with pytest.raises(UserError, match=sentence):
        model.predict(images_of("a")[0])
    with pytest.raises(UserError, match=sentence):
        Model.load(model.path)
    with pytest.raises(UserError, match=sentence):
        learn(model, "e")
    found = model.check()
    assert [damaged.file for damaged in found.damages] == [file.name]
    assert found.damages[0].versions == (2,)
    assert found.newest_good == 1
    with pytest.raises(UserError, match="is damaged"):
        model.rollback(2)
    assert model.rollback(1) == 1
    assert len(model.predict(images_of("a")[0])) == 24
    if damage is not make_folder:  # nothing can be written in its place
        assert learn(model, "cd").version == 3
        assert model.check().damages == ()  # the same file was written again


def test_every_file_is_checked(model: ModelFolder) -> None:
    found = model.check()
    assert found.damages == ()
    names = sorted(str(path.relative_to(model.path)) for path in model.path.glob("*/*"))
    assert found.num_files == len(names)
    assert found.num_bytes == sum((model.path / name).stat().st_size for name in names)
    for name in names:
        content = (model.path / name).read_bytes()
        flip(model.path / name)
        found = model.check()
        assert [damage.file for damage in found.damages] == [name]
        numbers = set(found.damages[0].versions)
        good = {1, 2} - numbers
        assert found.newest_good == max(good, default=None)
        (model.path / name).write_bytes(content)


def test_a_damaged_memory_stops_learning_but_not_predicting(model: ModelFolder) -> None:
    answers = probabilities(model)
    memory = version(model.path, 2).classes[3].memory
    assert memory is not None
    flip(model.path / memory.name)
    assert np.array_equal(probabilities(open_model(model.path)), answers)
    with pytest.raises(UserError, match=f"{memory.sha256}.parquet is damaged"):
        learn(model, "e")


@pytest.mark.parametrize("damage", [flip, halve, Path.unlink])
def test_a_lost_live_json_is_made_again_from_the_manifests(
    model: ModelFolder, damage: Callable[[Path], Any]
) -> None:
    answers = probabilities(model)
    damage(model.path / "live.json")
    for action in (model.check, model.classes, model.history, lambda: learn(model, "e")):
        with pytest.raises(
            UserError, match=r"live.json is damaged .* bic rollback .*m 2: version 2"
        ):
            action()
    assert model.rollback(2) == 2
    assert np.array_equal(probabilities(model), answers)
    assert model.versions() == (1, 2)
    assert learn(model, "e").version == 3


def change_root(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change live.json, with a checksum that fits."""
    content = json.loads((folder / "live.json").read_text())
    del content["checksum"]
    change(content)
    text = json.dumps(content, sort_keys=True)
    content["checksum"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / "live.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda root: root.update(format=2), "was written by a newer version of bic; upgrade bic"),
        (lambda root: root.update(live=9), "it names no manifest of the live version"),
        (lambda root: root.update(live="two"), "its content is not valid"),
        (lambda root: root["versions"][0].update(sha256="../../etc"), "its content is not valid"),
        (lambda root: root["history"][0].update(text="\x1b[2J"), "its content is not valid"),
        (lambda root: root["history"][0].update(seconds=float("inf")), "live.json is damaged"),
        (lambda root: root.clear(), "its content is not valid"),
    ],
)
def test_a_live_json_made_by_a_stranger(
    model: ModelFolder, change: Callable[[dict[str, Any]], Any], text: str
) -> None:
    change_root(model.path, change)
    with pytest.raises(UserError) as caught:
        model.predict(images_of("a")[0])
    assert text in str(caught.value)


def test_a_class_can_be_retired_beside_a_damaged_old_version(model: ModelFolder) -> None:
    manifest = read_root(model.path).manifest(1)
    assert manifest is not None
    flip(model.path / manifest.name)
    model.retire("a")
    assert model.versions() == (2,)
    assert model.check().damages == ()


@pytest.mark.parametrize(
    ("sha256", "suffix"), [("../" * 21 + "x", ".json"), ("0" * 64, "/../../x"), ("0" * 64, ".json")]
)
def test_no_name_in_a_manifest_leads_out_of_the_folder(
    model: ModelFolder, sha256: str, suffix: str
) -> None:
    change_version(
        model.path,
        lambda version: version["files"]["model.json"].update(sha256=sha256, suffix=suffix),
    )
    with pytest.raises(UserError, match="damaged"):
        model.predict(images_of("a")[0])


@pytest.mark.parametrize("name", ["files", "versions", "unfinished"])
def test_nothing_is_removed_behind_a_link(model: ModelFolder, tmp_path: Path, name: str) -> None:
    """A model made by a stranger, in which a folder is a link to the user's own files."""
    place = model.path / name
    if place.exists():
        place.rename(tmp_path / "mine")
    else:
        (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    place.symlink_to(tmp_path / "mine")
    before = sorted((tmp_path / "mine").iterdir())
    assert model.check().damages == ()
    for action in (lambda: learn(model, "e"), lambda: model.rollback(1), lambda: model.retire("a")):
        with pytest.raises(UserError, match=f"m/{name} is a link to another place; put a copy"):
            action()
    assert sorted((tmp_path / "mine").iterdir()) == before


def change_version(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the manifest of version 2, with checksums that fit."""
    manifest = read_root(folder).manifest(2)
    assert manifest is not None
    content = json.loads((folder / manifest.name).read_text())
    del content["checksum"]
    change(content)
    text = json.dumps(content, sort_keys=True)
    content["checksum"] = hashlib.sha256(text.encode()).hexdigest()
    written = json.dumps(content).encode()
    sha256 = hashlib.sha256(written).hexdigest()
    (folder / "versions" / f"0002-{sha256[:12]}.json").write_bytes(written)
    new = {"sha256": sha256, "size": len(written)}
    change_root(folder, lambda root: root["versions"][1].update(new))


def store(folder: Path, content: bytes, suffix: str) -> dict[str, Any]:
    """Write a file as versions name it."""
    sha256 = hashlib.sha256(content).hexdigest()
    (folder / "files" / f"{sha256}{suffix}").write_bytes(content)
    return {"sha256": sha256, "size": len(content), "suffix": suffix}


@pytest.mark.parametrize(
    "change",
    [
        lambda version: version["classes"][0].update(name="\x1b[2J"),
        lambda version: version["classes"][0].update(name="a/b"),
        lambda version: version["classes"][0].update(name=""),
        lambda version: version["classes"][0].update(accuracy={"correct": 3, "total": 0}),
        lambda version: version["verdict"]["drop"].update(lost=99),
        lambda version: version.update(number=7),
        lambda version: version.update(parent=2),
        lambda version: version.update(parent=3),
        lambda version: version.pop("files"),
        lambda version: version["files"].clear(),
        lambda version: version.update(format=99),
    ],
)
def test_a_manifest_made_by_a_stranger(
    model: ModelFolder, change: Callable[[dict[str, Any]], Any]
) -> None:
    change_version(model.path, change)
    with pytest.raises(UserError, match=r"damaged|newer version"):
        model.predict(images_of("a")[0])
    with pytest.raises(UserError, match=r"damaged|newer version"):
        learn(model, "e")


def test_settings_that_name_foreign_code_are_not_used(
    model: ModelFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign_code = ForeignCode(tmp_path, monkeypatch, num_features=128)
    file = version(model.path, 2).files["learning.json"]
    settings = json.loads((model.path / file.name).read_text())
    settings["recipe"]["backbone"] = foreign_code.backbone
    changed = store(model.path, json.dumps(settings).encode(), ".json")
    change_version(model.path, lambda version: version["files"].update({"learning.json": changed}))
    with pytest.raises(UserError, match="its settings name another backbone than its model"):
        learn(model, "e", announce=print)
    assert not foreign_code.was_imported


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"image": [b"x"]}, "is damaged"),
        ({"class": [0], "part": ["train"], "rank": [0], "image": [3]}, "is damaged"),
        ({"class": [1], "part": ["train"], "rank": [0], "image": [b"x"]}, "does not have"),
        ({"class": [0], "part": ["spare"], "rank": [0], "image": [b"x"]}, "neither trained on nor"),
        ({"class": [0], "part": ["train"], "rank": [0], "image": [None]}, "it has empty cells"),
        (
            {"class": [0], "part": ["train"], "rank": [0], "image": [b"x"]},
            "another number of images",
        ),
    ],
)
def test_a_memory_made_by_a_stranger(
    model: ModelFolder, columns: dict[str, list[Any]], text: str
) -> None:
    table = pa.table(columns)
    if columns.get("image") == [None]:
        table = table.set_column(3, "image", pa.array([None], pa.binary()))
    out = io.BytesIO()
    pq.write_table(table, out)
    changed = store(model.path, out.getvalue(), ".parquet")
    change_version(model.path, lambda version: version["classes"][0].update(memory=changed))
    with pytest.raises(UserError, match=text):
        learn(model, "e")


def test_class_names_in_model_and_manifest_must_agree(model: ModelFolder) -> None:
    change_version(model.path, lambda version: version["classes"][0].update(name="x"))
    with pytest.raises(UserError, match="it has other classes than its version"):
        learn(model, "e")


@pytest.mark.parametrize(
    "columns",
    [
        {"class": [0]},
        {"class": [0], "digest": [b"too short"]},
        {"class": ["a"], "digest": [b"0123456789abcdef"]},
    ],
)
def test_a_list_of_learned_images_made_by_a_stranger(
    model: ModelFolder, columns: dict[str, list[Any]]
) -> None:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    changed = store(model.path, out.getvalue(), ".parquet")
    change_version(model.path, lambda version: version.update(learned=[changed]))
    for action in (lambda: learn(model, "e"), lambda: model.retire("a")):
        with pytest.raises(UserError, match="it is not a list of learned images"):
            action()


def test_a_list_of_learned_images_that_unpacks_to_gigabytes_is_refused(model: ModelFolder) -> None:
    num_rows = 10_000_000
    labels = pa.array(np.zeros(num_rows, dtype=np.int64))
    images = pa.repeat(pa.scalar(b"0123456789abcdef", pa.binary(16)), num_rows)
    out = io.BytesIO()
    pq.write_table(pa.table({"class": labels, "digest": images}), out, compression="zstd")
    assert len(out.getvalue()) < 200_000
    changed = store(model.path, out.getvalue(), ".parquet")
    del labels, images, out
    change_version(model.path, lambda version: version.update(learned=[changed]))
    with pytest.raises(UserError, match=r"would take .* MB of memory, and only .*BIC_UNPACK_MB="):
        read_ledgers(model.path, version(model.path, 2).learned)


@pytest.mark.parametrize("name", ["weights.safetensors", "learning.json"])
def test_a_file_with_holes_takes_no_memory(model: ModelFolder, name: str) -> None:
    """The size in a stranger's manifest is the stranger's."""
    size = 20 * 10**9
    changed = {**store(model.path, b"", ".holes"), "size": size}
    os.truncate(model.path / "files" / f"{changed['sha256']}.holes", size)
    change_version(model.path, lambda version: version["files"].update({name: changed}))
    with memory_limit(2**30):
        found = model.check()
        assert "claims 20,000,000,000 bytes and stores hardly any" in found.damages[0].reason
        with pytest.raises(UserError, match="stores hardly any"):
            learn(model, "e")


@pytest.mark.parametrize("kind", [*NOT_FILES, "link"])
def test_a_plan_that_is_no_file_is_given_up(model: ModelFolder, kind: str) -> None:
    """In the folder of a model made by a stranger. Nothing waits, and nothing is read elsewhere."""
    (model.path / "unfinished").mkdir()
    plan = model.path / "unfinished" / "plan.json"
    if kind == "link":
        (model.path.parent / "elsewhere").write_text(json.dumps({"plan": {"version": 3}}))
        plan.symlink_to(model.path.parent / "elsewhere")
    else:
        put(kind, plan)
    with memory_limit(2**28):
        clear_finished(model.path, next_version=3)
    assert not plan.parent.exists()


@pytest.mark.parametrize("name", ["learning.json", "model.json"])
def test_json_that_is_too_large_is_damage(model: ModelFolder, name: str) -> None:
    content = b'{"text": "' + b"a" * MAX_JSON_BYTES + b'"}'
    changed = store(model.path, content, ".json")
    change_version(model.path, lambda version: version["files"].update({name: changed}))
    action = model.diff if name == "learning.json" else lambda: model.rename("a", "ant")
    with pytest.raises(UserError, match=r"it has no settings|it does not describe a model"):
        action()
