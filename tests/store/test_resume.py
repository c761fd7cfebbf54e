"""A run killed at any instant goes on, and ends bit for bit as if it had never been killed."""

import hashlib
import json
import multiprocessing
import os
import random
import shutil
import time
from pathlib import Path

import pytest

from bic import Learner, RunConfig, UserError, run

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")

# Children are forked from a server that has imported bic, so that a kill seldom falls into the import.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["bic"])


def start(config: RunConfig, out: Path) -> multiprocessing.process.BaseProcess:
    process = processes.Process(target=run, args=(config, out), kwargs={"threads": 1})
    process.start()
    return process


def outcome(run: Path) -> dict[str, str]:
    """A checksum of every file but the times in it."""
    found = {}
    for path in sorted(run.rglob("*")):
        if path.is_file() and path.name != ".lock":
            content = path.read_bytes()
            if path.name == "result.json":
                result = json.loads(content)
                for step in result["steps"]:
                    del step["seconds"]
                content = json.dumps(result).encode()
            found[str(path.relative_to(run))] = hashlib.sha256(content).hexdigest()
    return found


EVERYTHING = {
    "previous_share": 0.5,
    "backbone": "mlp+mlp",
    "precision": "bfloat16",
}  # that there is to save


@pytest.mark.parametrize(("method", "wanted"), [("bic", 20), ("eeil", 6), ("fc-retrain", 6)])
def test_killed_at_random_instants_it_ends_as_the_unbroken_run(
    tmp_path: Path, method: str, wanted: int
) -> None:
    config = RunConfig(dataset="digits", method=method, epochs=8, recipe=EVERYTHING)
    for _ in range(2):  # the second is timed, with everything loaded
        shutil.rmtree(tmp_path / "unbroken", ignore_errors=True)
        started = time.monotonic()
        process = start(config, tmp_path / "unbroken")
        process.join()
        whole = time.monotonic() - started
        assert process.exitcode == 0
    expected = outcome(tmp_path / "unbroken")

    instants, kills, runs = random.Random(method), 0, 0
    while kills < wanted:
        process = start(config, tmp_path / f"broken-{runs}")
        process.join(instants.uniform(0.0, 0.5) * whole)
        if process.exitcode is None:
            process.kill()  # SIGKILL
            process.join()
            kills += 1
        else:  # it came to its end: so much for this one
            assert process.exitcode == 0
            assert outcome(tmp_path / f"broken-{runs}") == expected
            runs += 1
    process = start(config, tmp_path / f"broken-{runs}")
    process.join()
    assert outcome(tmp_path / f"broken-{runs}") == expected


def test_killed_while_it_writes_a_checkpoint_the_one_before_stays_good(
    tmp_path: Path, monkeypatch
) -> None:
    """Every call that makes a change durable is, in turn, the last one the process makes."""
    config = RunConfig(dataset="digits", epochs=1, steps=2)
    run(config, tmp_path / "unbroken")
    expected = outcome(tmp_path / "unbroken")
    broken = tmp_path / "broken"
    real = os.replace
    for allowed in range(40):
        left = allowed

        def replace(source, target) -> None:
            nonlocal left
            if left == 0:
                raise KeyboardInterrupt  # as sudden as Python allows within one process
            left -= 1
            real(source, target)

        monkeypatch.setattr(os, "replace", replace)
        try:
            run(config, broken / str(allowed))
        except KeyboardInterrupt:
            monkeypatch.setattr(os, "replace", real)
            run(config, broken / str(allowed))
            assert outcome(broken / str(allowed)) == expected
        else:
            break
    else:
        pytest.fail("the run never finished undisturbed")
    assert allowed > 10


def test_a_damaged_checkpoint_is_named_and_not_used(tmp_path: Path) -> None:
    config = RunConfig(dataset="digits", epochs=1)
    real, calls = Learner.learn, []

    def learn(self, step, **rest):
        calls.append(step)
        if step.number == 3:
            raise KeyboardInterrupt
        return real(self, step, **rest)

    Learner.learn = learn
    try:
        with pytest.raises(KeyboardInterrupt):
            run(config, tmp_path / "run")
    finally:
        Learner.learn = real
    weights = tmp_path / "run" / "checkpoint" / "step-2" / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(UserError, match=r"weights\.safetensors is damaged; run again"):
        run(config, tmp_path / "run")
