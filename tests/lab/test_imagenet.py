"""The whole way from a folder of JPEGs of ImageNet's kind to a trained model, by the paper's recipe."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
import safetensors.torch
import torch
from support.pictures import jpeg, picture, truncated, write_folder

from bic import RunConfig, run
from bic.cli import main
from bic.data import workers as workers_module
from bic.files import read_folder

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")

CLASSES = ("n01440764", "n01443537")
CHOICES = [
    "--recipe",
    "paper-imagenet",
    "--epochs",
    "1",
    "--steps",
    "2",
    "--memory",
    "4",
    "--quiet",
]
CHOICES += ["--set", "recipe.batch_size=3", "--threads", "1"]


@pytest.fixture
def photos(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("BIC_DATA", str(tmp_path / "home"))
    return write_folder(tmp_path / "photos", CLASSES, train=4, test=1, size=120)


def command(photos: Path, out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "bic", "run", str(photos), *CHOICES, "--out", str(out), *more]


def weights(out: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load(read_folder(out / "model")["weights.safetensors"])


def test_a_run_that_was_killed_ends_as_the_unbroken_one(
    photos: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(
        workers_module, "WORTH_IT", 1
    )  # so that this run's images come from processes
    choices = {
        "recipe": {"name": "paper-imagenet", "batch_size": 3},
        "epochs": 1,
        "steps": 2,
        "memory": 4,
    }
    config = RunConfig(dataset=str(photos), **choices)
    whole = run(config, tmp_path / "whole", threads=1, workers=2)
    assert whole["config"]["recipe"]["image_size"] == 224
    assert [step["num_train"] for step in whole["steps"]] == [3, 6]

    broken = tmp_path / "broken"
    process = subprocess.Popen(command(photos, broken, "--workers", "0"))
    while not list(broken.glob("checkpoint/step-1*")) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (broken / "model").exists()
    resumed = run(config, broken, threads=1, workers=0)
    assert [step["top1"] for step in resumed["steps"]] == [step["top1"] for step in whole["steps"]]
    one, two = weights(tmp_path / "whole"), weights(broken)
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.filterwarnings("always:left out")
def test_a_body_that_is_cut_off_is_named_or_left_out(
    photos: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    """Its header is whole, so that it is only found in mid-run; --skip-bad then goes on with the same run."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # main() replaces it
    bad = photos / "train" / CLASSES[1] / f"{CLASSES[1]}_1.JPEG"
    bad.write_bytes(truncated(jpeg(picture(1, 300, 200))))
    monkeypatch.setattr(sys, "argv", command(photos, tmp_path / "run")[2:])
    with pytest.raises(SystemExit, match="2"):
        main()
    (message,) = capsys.readouterr().err.splitlines()
    assert message.startswith(f"bic: can't read {bad} (image file is truncated")
    assert message.endswith("; mend it, or leave it out with --skip-bad")
    monkeypatch.setattr(sys, "argv", command(photos, tmp_path / "run", "--skip-bad")[2:])
    with pytest.raises(SystemExit, match="0"):
        main()
    assert f"warning: left out {bad} (image file is truncated" in capsys.readouterr().err
    assert (tmp_path / "run/model").exists()
