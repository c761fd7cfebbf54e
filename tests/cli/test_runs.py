"""`bic run` and `bic demo`: what they print, write, and do the second time."""

import errno
import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.command_line import Command, assert_refused, write_arrays

from bic import METHODS, Model, UserError
from bic.learn import stage1

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")

QUICK = ["--epochs", "1", "--quiet"]


def times(folder: Path) -> dict[Path, int]:
    """When each file of a run was written."""
    files = [path for path in folder.rglob("*") if path.name != ".lock"]
    return {path: path.stat().st_mtime_ns for path in files}


def result_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "result.json").read_text()))


def test_run_writes_its_folder_and_does_nothing_the_second_time(
    bic: Command, tmp_path: Path
) -> None:
    outcome = bic("run", "digits", *QUICK)
    assert outcome.code == 0
    folder = tmp_path / "runs" / "digits-5steps-bic-means-demo-seed0"
    predictions = [f"predictions-{step}.npz" for step in range(1, 6)]
    expected = ["README.txt", "config.json", "model", *predictions, "result.json"]
    assert sorted(path.name for path in folder.iterdir() if path.name != ".lock") == expected
    assert not (folder / "checkpoint").exists()
    described = {line.split()[0] for line in (folder / "README.txt").read_text().splitlines()}
    assert described == {"config.json", "result.json", "predictions-N.npz", "model/", "checkpoint/"}
    result = result_of(folder)
    assert result["complete"]
    assert f"{result['final_top1']:.2f}" in outcome.out
    before = times(folder)
    second = bic("run", "digits", *QUICK)
    assert (second.code, second.out) == (0, outcome.out)
    assert times(folder) == before


def test_second_run_says_that_there_is_nothing_to_do(bic: Command) -> None:
    command = ("run", "digits", "--epochs", "1", "--out", "here")
    bic(*command)
    assert "here is complete; nothing to do" in bic(*command).err


def test_memory_without_effect_is_mentioned(bic: Command) -> None:
    command = ("run", "digits", "--epochs", "1", "--memory", "90", "--method")
    assert "memory has no effect: lwf keeps no exemplars" in bic(*command, "lwf").err
    assert "no effect" not in bic(*command, "distill").err


def test_without_a_terminal_there_are_plain_lines(bic: Command) -> None:
    outcome = bic("run", "digits", "--epochs", "1")
    assert outcome.code == 0
    assert "step 5/5: 10 classes, top-1 " in outcome.err
    assert "\x1b" not in outcome.err


def test_of_several_processes_only_the_first_prints(
    bic: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("run", "digits", *QUICK, "--out", "here")
    bic(*command)
    monkeypatch.setenv("RANK", "1")
    assert bic(*command) == (0, "", "")
    failed = bic("run", "digts")
    assert failed.err.startswith(
        "bic (process 1): 'digts' is neither a data set that bic knows nor an existing path"
    )


def test_folder_in_use_is_refused(bic: Command, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    with (tmp_path / "here" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert_refused(
            bic("run", "digits", *QUICK, "--out", "here"),
            "here is in use by another process; wait for it, stop it, or choose another --out",
        )


def test_full_disk_leaves_the_previous_checkpoint_intact(
    bic: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync
    num_calls = 0

    def full(handle: int) -> None:
        nonlocal num_calls
        num_calls += 1
        if num_calls == 60:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", full)
    assert_refused(
        bic("run", "digits", *QUICK, "--out", "here"),
        "No space left on device",
        "run the same command again",
        code=1,
    )
    assert not list((tmp_path / "here").rglob(".writing-*"))
    monkeypatch.setattr(os, "fsync", fsync)
    assert bic("run", "digits", *QUICK, "--out", "here").code == 0
    assert bic("run", "digits", *QUICK, "--out", "there").code == 0
    results = [result_of(tmp_path / name) for name in ("here", "there")]
    assert results[0]["final_top1"] == results[1]["final_top1"]


def test_unwritable_place_is_refused(bic: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert_refused(
        bic("run", "digits", *QUICK, "--out", "file/run"),
        "cannot write to file/run (Not a directory); choose another --out",
    )


def test_flag_overrides_set_which_overrides_the_file(bic: Command, tmp_path: Path) -> None:
    lines = ["seed = 1", "memory = 40", "epochs = 3", "[recipe]", 'name = "demo"']
    lines += ["learning_rate = 0.3"]
    (tmp_path / "mine.toml").write_text("\n".join(lines))
    command = ["run", "digits", "--config", "mine.toml", "--set", "seed=2", "--set", "epochs=2"]
    assert bic(*command, *QUICK, "--out", "here").code == 0
    plan = json.loads((tmp_path / "here" / "config.json").read_text())["plan"]
    assert plan["seed"] == 2
    assert plan["memory"]["images"] == 40
    assert plan["recipe"]["epochs"] == 1
    assert plan["recipe"]["learning_rate"] == 0.3


def test_memory_in_bytes_is_not_exceeded(bic: Command, tmp_path: Path) -> None:
    assert bic("run", "digits", *QUICK, "--memory", "12KB", "--out", "here").code == 0
    table = pq.ParquetFile(tmp_path / "here" / "model" / "memory.parquet").read()
    num_bytes = sum(map(len, table.column("image").to_pylist()))
    assert 6_000 < num_bytes <= 12_000


def test_batches_never_hold_a_single_image(bic: Command) -> None:
    command = ["run", "digits", *QUICK, "--set", "recipe.batch_size=1", "--steps", "2"]
    assert bic(*command).code == 0


def test_interrupted_command_says_how_to_continue(
    bic: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(stage1, "fit", interrupt)
    outcome = bic("run", "digits", *QUICK, "--out", "here")
    assert outcome.code == 130
    assert outcome.err == "bic: stopped; run the same command again to continue\n"
    with pytest.raises(
        UserError, match=r"here holds no model; give a folder that bic learn, a complete bic run"
    ):
        Model.load("here")


def test_names_are_printed_as_they_are(bic: Command, tmp_path: Path) -> None:
    write_arrays(tmp_path / "mine.npz")
    command = ["run", "[/x]", "--data", "mine.npz", "--steps", "2", "--backbone", "small"]
    outcome = bic(*command, *QUICK, "--out", "here")
    assert outcome.code == 0
    assert "[/x]" in outcome.out
    assert "a:smile:.npz" in bic("run", "a:smile:.npz").err


def test_demo_ends_with_tables_picture_and_paths(bic: Command, tmp_path: Path) -> None:
    outcome = bic("demo", "--quiet")
    assert outcome.code == 0
    shown = [name for name, method in METHODS.items() if method.in_demo]
    assert {"finetune", "lwf", "icarl", "eeil", "distill", "bic"} < set(shown)
    folder = tmp_path / "runs" / "demo"
    assert {path.name for path in folder.iterdir() if path.is_dir()} == set(shown)
    for name in shown:
        assert name in outcome.out
    assert "true share" in outcome.out
    assert "runs/demo/demo.png" in outcome.out
    with Image.open(folder / "demo.png") as picture:
        assert picture.width > 1000
    final = {name: result_of(folder / name)["final_top1"] for name in shown}
    assert final["bic"] > final["distill"] + 5
    assert final["joint"] > final["fc-retrain"] > final["bic"]


def test_run_of_a_user_can_be_read_by_the_group(bic: Command, tmp_path: Path) -> None:
    """All files have the modes that the user's umask gives."""
    mask = os.umask(0o027)
    try:
        bic("run", "digits", *QUICK, "--out", "here")
    finally:
        os.umask(mask)
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "here").rglob("*.*")}
    assert modes == {0o640}
