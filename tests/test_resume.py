"""A run killed at any instant goes on, and ends bit for bit as if it had never been killed."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")

COMMAND = [sys.executable, "-m", "bic", "run", "digits", "--epochs", "6", "--threads", "1", "--quiet"]


def start(out: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*COMMAND, "--out", str(out), *arguments], stdout=subprocess.DEVNULL)


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


@pytest.mark.parametrize("method", ["bic", "eeil", "fc-retrain"])
def test_killed_at_random_instants_it_ends_as_the_unbroken_run(tmp_path: Path, method: str) -> None:
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    started = time.monotonic()
    assert start(unbroken, "--method", method).wait() == 0
    whole = time.monotonic() - started

    instants = random.Random(method)
    kills = 0
    for _ in range(3):
        process = start(broken, "--method", method)
        try:
            process.wait(timeout=instants.uniform(0.3, 1.0) * whole)
            break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
    assert start(broken, "--method", method).wait() == 0
    assert kills >= 1
    assert outcome(broken) == outcome(unbroken)


def test_killed_while_it_writes_a_checkpoint_the_one_before_stays_good(tmp_path: Path, monkeypatch) -> None:
    """Every call that makes a change durable is, in turn, the last one the process makes."""
    from bic import RunConfig, run

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
    from bic import RunConfig, UserError, run
    from bic.learner import Learner

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
    with pytest.raises(UserError, match=r"weights\.safetensors is damaged; delete"):
        run(config, tmp_path / "run")
