"""Run folders that a stranger made or a disk damaged: one sentence, and nothing is lost."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command_line import Command, assert_refused
from support.fuzzing import odd_bytes, odd_json
from support.memory_limit import memory_limit
from support.model_folders import change_description, renew_checksums
from support.odd_files import NOT_FILES, put

from bic import LostError, Model, RunConfig, UserError, read_result, run
from bic.report import runs
from bic.store.results import checksum_of, read_config
from bic.store.run_folder import RunFolder

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")

SETTINGS = ["--steps", "2", "--epochs", "1", "--backbone", "mlp"]
COMMAND = ["run", "digits", *SETTINGS, "--quiet", "--threads", "1", "--out"]


class Stop(BaseException):
    """Stands for a kill."""


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed in its second step, after the first epoch."""
    folder = tmp_path_factory.mktemp("unfinished") / "run"
    save = RunFolder.save_checkpoint

    def save_and_stop(self: RunFolder, checkpoint: Any) -> None:
        save(self, checkpoint)
        if checkpoint.step == 2:
            raise Stop

    config = RunConfig(dataset="digits", steps=2, epochs=1, backbone="mlp")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "save_checkpoint", save_and_stop)
        with pytest.raises(Stop):
            run(config, folder, threads=1)
    return folder


@pytest.fixture
def folder(unfinished: Path, tmp_path: Path) -> Path:
    shutil.copytree(unfinished, tmp_path / "here")
    return tmp_path / "here"


def state(folder: Path) -> dict[str, bytes]:
    """Every file of a run, except for its lock."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_undamaged_run_is_continued(bic: Command, folder: Path) -> None:
    assert bic(*COMMAND, folder).code == 0
    assert read_result(folder).complete
    assert not read_result(folder).is_unchecked


def test_damaged_predictions_are_not_carried_on(bic: Command, folder: Path) -> None:
    file = folder / "predictions-1.npz"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    before = state(folder)
    assert_refused(
        bic(*COMMAND, folder),
        "predictions-1.npz is missing or damaged (its checksum differs); restore it from a copy, "
        "or delete it to continue without it",
    )
    assert state(folder) == before
    file.unlink()
    assert bic(*COMMAND, folder).code == 0


def test_damaged_predictions_of_an_earlier_version_are_noticed(bic: Command, folder: Path) -> None:
    """They have no checksum of ours, but the format has one."""
    result = json.loads((folder / "result.json").read_text())
    del result["checksum"]
    del result["steps"][0]["predictions_checksum"]
    (folder / "result.json").write_text(json.dumps(result))
    content = bytearray((folder / "predictions-1.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "predictions-1.npz").write_bytes(content)
    assert_refused(bic(*COMMAND, folder), "predictions-1.npz is missing or damaged")


def test_result_that_was_edited_is_refused(bic: Command, folder: Path) -> None:
    file = folder / "result.json"
    text = file.read_text()
    result = json.loads(text)
    result["steps"][0]["top1"] = 99.9
    file.write_text(json.dumps(result))
    before = state(folder)
    for command in (["show", folder], ["run", "digits", *SETTINGS, "--quiet", "--out", folder]):
        assert_refused(
            bic(*command), "result.json was changed after bic wrote it; restore it, or run it again"
        )
    assert state(folder) == before
    file.write_text(json.dumps(json.loads(text)))  # other spaces are no change
    assert bic("show", folder).code == 0
    del result["checksum"]  # as in earlier versions
    file.write_text(json.dumps(result))
    shown = bic("show", folder)
    assert "recorded without a checksum, by an earlier version" in " ".join(shown.out.split())


def read_everything(folder: Path) -> None:
    """What show, report and run read of a folder."""
    read_config(folder)
    read_result(folder)
    loaded = runs.load(folder)
    loaded.predictions()
    RunFolder(folder).load_result()


def sentence_about(folder: Path, title: str) -> str:
    """Why a folder is refused; empty if it is not."""
    try:
        read_everything(folder)
    except UserError as error:
        return str(error)
    except Exception as error:
        raise AssertionError(title) from error
    return ""


@pytest.mark.parametrize("name", ["config.json", "result.json"])
def test_odd_records_are_refused_or_harmless(folder: Path, name: str) -> None:
    content = json.loads((folder / name).read_bytes())
    content.pop("checksum", None)
    changes = [
        *odd_json(content, seed=3, count=150),
        *odd_bytes(json.dumps(content).encode(), seed=4, count=50),
    ]
    sentences = []
    with memory_limit(2**28):
        for title, damaged in changes:
            (folder / name).write_bytes(damaged)
            sentences.append(sentence_about(folder, title))
    assert all(sentence.isprintable() for sentence in sentences)
    assert sum(map(bool, sentences)) > len(changes) / 10


def test_odd_settings_do_not_start_a_run(bic: Command, folder: Path) -> None:
    content = json.loads((folder / "config.json").read_bytes())
    before = state(folder)
    draws = np.random.default_rng(0)
    changes = list(odd_json(content, seed=5, count=40))
    for number in draws.permutation(len(changes))[:12]:
        title, damaged = changes[number]
        (folder / "config.json").write_bytes(damaged)
        outcome = bic(*COMMAND, folder, "--set", "seed=3")
        assert outcome.code == 2, (title, outcome.err)
        assert outcome.err.count("\n") == 1, title
        (folder / "config.json").write_bytes(before["config.json"])
        assert state(folder) == before


CHECKPOINTS = {
    "position.json": b'{"step": 2, "phase": "stage 1", "epoch": -1, "seconds": {}}',
    "training.safetensors": b"\xff" * 100,
}


@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.parametrize("fits", [False, True])
def test_damaged_checkpoint_is_named(bic: Command, folder: Path, name: str, fits: bool) -> None:
    (checkpoint,) = folder.glob("checkpoint/step-2-*")
    (checkpoint / name).write_bytes(CHECKPOINTS[name])
    if fits:
        renew_checksums(checkpoint)
    before = state(folder)
    assert_refused(bic(*COMMAND, folder), str(checkpoint), "is damaged")
    assert state(folder) == before


def test_checkpoint_of_another_network_is_refused(bic: Command, folder: Path) -> None:
    (checkpoint,) = folder.glob("checkpoint/step-2-*")
    shutil.copy(
        folder / "checkpoint/step-1/weights.safetensors", checkpoint / "training.safetensors"
    )
    renew_checksums(checkpoint)
    assert_refused(bic(*COMMAND, folder), "the checkpoint of this step does not fit its network (")


def test_state_of_another_run_is_refused(bic: Command, folder: Path) -> None:
    change_description(folder / "checkpoint/step-1", lambda content: content["classes"].reverse())
    assert_refused(bic(*COMMAND, folder), "the saved state in ", "is that of another run")


@pytest.mark.parametrize("name", ["checkpoint", "model"])
def test_link_in_a_run_is_not_followed(
    bic: Command, folder: Path, tmp_path: Path, name: str
) -> None:
    if name == "checkpoint":
        (folder / name).rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "step-9").mkdir(parents=True)
    (folder / name).symlink_to(tmp_path / "elsewhere")
    assert_refused(bic(*COMMAND, folder), f"{name} is a symbolic link; choose another --out")
    assert (tmp_path / "elsewhere" / "step-9").is_dir()


@pytest.mark.parametrize("kind", NOT_FILES)
@pytest.mark.parametrize("name", ["config.json", "result.json", "predictions-1.npz", ".lock"])
def test_file_that_is_none_is_refused(bic: Command, folder: Path, kind: str, name: str) -> None:
    if name == ".lock" and kind == "hole":
        return
    put(kind, folder / name)
    with memory_limit(2**29):
        assert_refused(bic(*COMMAND, folder))


def test_failing_rename_at_the_end_loses_nothing(
    bic: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(old: Path, new: Path) -> None:
        raise LostError(f"cannot rename {old} to {new.name} (Input/output error)", "fix this")

    with monkeypatch.context() as patch:
        patch.setattr("bic.files.rename", fail)
        outcome = bic(*COMMAND, folder)
    assert outcome.code == 1
    assert outcome.err.count("\n") == 1
    assert "(Input/output error); fix this" in outcome.err
    assert bic(*COMMAND, folder).code == 0
    assert read_result(folder).complete
    assert Model.load(folder).classes == tuple(read_result(folder).classes)


def test_checksum_is_that_of_the_content(folder: Path) -> None:
    content = json.loads((folder / "result.json").read_bytes())
    checksum = content.pop("checksum")
    assert checksum == checksum_of(content)
    assert len(checksum) == 64
