"""A run that is killed at any instant continues, and ends bit for bit like an undisturbed run."""

import hashlib
import io
import json
import multiprocessing
import os
import random
import runpy
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import load_digits
from support.toy import toy_dataset

from bic import Learner, RunConfig, UserError, run
from bic.learn.lesson import Checkpoint
from bic.store.run_folder import RunFolder

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "carry_run.py"

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")

# Children are forked from a server that has imported all that a run needs, so that few kills hit
# an import. The optimisers of torch import torch._dynamo.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["bic.lab.run", "sklearn.datasets", "torch._dynamo"])

# With these there is more to save: two networks with two corrections each, and rounded weights.
ENSEMBLE = {"backbone": "mlp+mlp", "precision": "bfloat16"}
METHOD_SETTINGS: dict[str, dict[str, Any]] = {"bic": {"previous_share": 0.5}}


def start(config: RunConfig, out: Path) -> multiprocessing.process.BaseProcess:
    process = processes.Process(target=run, args=(config, out), kwargs={"threads": 1})
    process.start()
    return process


def outcome(folder: Path) -> dict[str, str]:
    """A checksum of every file, without the times in it."""
    checksums = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != ".lock":
            content = path.read_bytes()
            if path.name == "result.json":
                result = json.loads(content)
                del result["checksum"]  # of the times, too
                for step in result["steps"]:
                    del step["seconds"]
                content = json.dumps(result).encode()
            checksums[str(path.relative_to(folder))] = hashlib.sha256(content).hexdigest()
    return checksums


@pytest.mark.parametrize(("method", "num_kills"), [("bic", 20), ("eeil", 6), ("fc-retrain", 6)])
def test_run_killed_at_random_instants_ends_like_an_undisturbed_one(
    tmp_path: Path, method: str, num_kills: int
) -> None:
    config = RunConfig(
        dataset="digits",
        method=method,
        epochs=5,
        recipe=ENSEMBLE,
        method_settings=METHOD_SETTINGS.get(method, {}),
    )
    for _ in range(2):  # the second is timed, with everything loaded
        shutil.rmtree(tmp_path / "undisturbed", ignore_errors=True)
        started = time.monotonic()
        process = start(config, tmp_path / "undisturbed")
        process.join()
        seconds = time.monotonic() - started
        assert process.exitcode == 0
    expected = outcome(tmp_path / "undisturbed")

    instants = random.Random(method)
    killed = 0
    finished = 0
    while killed < num_kills:
        process = start(config, tmp_path / f"killed-{finished}")
        process.join(instants.uniform(0.0, 0.5) * seconds)
        if process.exitcode is None:
            process.kill()  # SIGKILL
            process.join()
            killed += 1
        else:  # this run has come to its end; the next kills hit another one
            assert process.exitcode == 0
            assert outcome(tmp_path / f"killed-{finished}") == expected
            finished += 1
    process = start(config, tmp_path / f"killed-{finished}")
    process.join()
    assert outcome(tmp_path / f"killed-{finished}") == expected


def test_checkpoint_survives_a_kill_during_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call that makes a change durable is, in turn, the last one that a process makes."""
    config = RunConfig(dataset="digits", epochs=1, steps=2)
    run(config, tmp_path / "undisturbed")
    expected = outcome(tmp_path / "undisturbed")
    replace = os.replace
    for num_allowed in range(40):
        folder = tmp_path / "killed" / str(num_allowed)
        num_left = num_allowed

        def limited(source: Path, target: Path) -> None:
            nonlocal num_left
            if num_left == 0:
                raise KeyboardInterrupt  # as sudden as Python allows within one process
            num_left -= 1
            replace(source, target)

        monkeypatch.setattr(os, "replace", limited)
        try:
            run(config, folder)
        except KeyboardInterrupt:
            monkeypatch.setattr(os, "replace", replace)
            run(config, folder)
            assert outcome(folder) == expected
        else:
            break
    else:
        pytest.fail("the run never finished undisturbed")
    assert num_allowed > 10


def test_damaged_checkpoint_is_named_and_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = RunConfig(dataset="digits", epochs=1)
    learn = Learner.learn
    num_steps = 0

    def interrupted(learner: Learner, *arguments: Any, **options: Any) -> Any:
        nonlocal num_steps
        num_steps += 1
        if num_steps == 3:
            raise KeyboardInterrupt
        return learn(learner, *arguments, **options)

    monkeypatch.setattr(Learner, "learn", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(config, tmp_path / "run")
    monkeypatch.setattr(Learner, "learn", learn)
    weights = tmp_path / "run" / "checkpoint" / "step-2" / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(UserError, match=r"weights\.safetensors is damaged; restore it from a copy"):
        run(config, tmp_path / "run")


def test_run_is_carried_to_another_machine_without_its_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, labels = load_digits(return_X_y=True)
    pixels = (images * 15).astype(np.uint8).reshape(-1, 8, 8)
    arrays = {"x_train": pixels[:1500], "y_train": labels[:1500]}
    np.savez(tmp_path / "data.npz", x_test=pixels[1500:], y_test=labels[1500:], **arrays)
    data = str(tmp_path / "data.npz")
    config = RunConfig(dataset=data, steps=5, epochs=2, memory=100, backbone="small")
    run(config, tmp_path / "undisturbed")

    save = RunFolder.save_checkpoint

    def interrupted(folder: RunFolder, checkpoint: Checkpoint) -> None:
        save(folder, checkpoint)
        if checkpoint.step == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(RunFolder, "save_checkpoint", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(config, tmp_path / "run")
    monkeypatch.setattr(RunFolder, "save_checkpoint", save)
    for action, source, target in (("pack", "run", "packed"), ("unpack", "packed", "carried")):
        command = [sys.executable, SCRIPT, action, source, "data.npz", target]
        subprocess.run(command, cwd=tmp_path, check=True)
    packed = (tmp_path / "packed").rglob("*")
    assert {path.suffix for path in packed if path.is_file()} >= {".json", ".safetensors"}
    assert not list((tmp_path / "packed").rglob("memory.parquet"))
    for path in (tmp_path / "packed").rglob("*.parquet"):
        assert b"PNG" not in path.read_bytes()
    order = np.arange(1500)[::-1]
    turned = {"x_train": pixels[:1500][order], "y_train": labels[:1500][order]}
    np.savez(tmp_path / "turned.npz", x_test=pixels[1500:], y_test=labels[1500:], **turned)
    command = [sys.executable, SCRIPT, "unpack", "packed", "turned.npz", "wrong"]
    refused = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert refused.returncode == 1
    assert refused.stderr.startswith("packed is a run on other data; give the data")
    assert not (tmp_path / "wrong").exists()

    run(config, tmp_path / "carried")
    assert outcome(tmp_path / "carried") == outcome(tmp_path / "undisturbed")


@pytest.mark.parametrize("row", [-1, 144, None])
def test_a_carried_memory_with_rows_that_the_data_lacks_is_refused(row: int | None) -> None:
    carry_run = runpy.run_path(str(SCRIPT))
    dataset = toy_dataset(0.8)
    assert len(dataset.train) == 144
    out = io.BytesIO()
    table = {"class": [0], "part": ["train"], "rank": [0], "row": pa.array([row], pa.int64())}
    pq.write_table(pa.table(table), out)
    with pytest.raises(UserError, match="rows that the data does not have"):
        carry_run["with_images"](out.getvalue(), dataset)
