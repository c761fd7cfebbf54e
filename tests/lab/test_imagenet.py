"""From a folder of JPEGs like ImageNet's to a trained model, by the paper's recipe."""

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
from bic.data import decode_pool
from bic.files import read_folder

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")

CLASSES = ("n01440764", "n01443537")
ARGUMENTS = [
    *("--recipe", "paper-imagenet", "--epochs", "1", "--steps", "2", "--memory", "4"),
    *("--set", "recipe.batch_size=3", "--threads", "1", "--quiet"),
]


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BIC_DATA", str(tmp_path / "home"))
    return write_folder(tmp_path / "photos", CLASSES, train=4, test=1, size=120)


def bic_run(photos: Path, out: Path, *more: str) -> list[str]:
    return ["bic", "run", str(photos), *ARGUMENTS, "--out", str(out), *more]


def weights(out: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load(read_folder(out / "model")["weights.safetensors"])


def test_killed_run_ends_like_an_undisturbed_one(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode_pool, "MIN_PIXELS", 1)  # so that processes decode the images
    config = RunConfig(
        dataset=str(photos),
        recipe={"name": "paper-imagenet", "batch_size": 3},
        epochs=1,
        steps=2,
        memory=4,
    )
    whole = run(config, tmp_path / "whole", threads=1, workers=2)
    assert whole.config["recipe"]["image_size"] == 224
    assert [step.num_train for step in whole.steps] == [3, 6]

    killed = tmp_path / "killed"
    command = [sys.executable, "-m", *bic_run(photos, killed, "--workers", "0")]
    process = subprocess.Popen(command)
    while not list(killed.glob("checkpoint/step-1*")) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (killed / "model").exists()
    resumed = run(config, killed, threads=1, workers=0)
    assert resumed.top1 == whole.top1
    expected = weights(tmp_path / "whole")
    found = weights(killed)
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


@pytest.mark.filterwarnings("always:left out")
def test_truncated_image_is_named_or_left_out(
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its header can be read, so the run finds it late. --skip-bad then continues the same run."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # main() replaces it
    bad = photos / "train" / CLASSES[1] / f"{CLASSES[1]}_1.JPEG"
    bad.write_bytes(truncated(jpeg(picture(1, 300, 200))))
    monkeypatch.setattr(sys, "argv", bic_run(photos, tmp_path / "run"))
    with pytest.raises(SystemExit, match="2"):
        main()
    (message,) = capsys.readouterr().err.splitlines()
    assert message.startswith(f"bic: can't read {bad} (image file is truncated")
    assert message.endswith("; fix it, or set --skip-bad to leave it out")
    monkeypatch.setattr(sys, "argv", bic_run(photos, tmp_path / "run", "--skip-bad"))
    main()
    assert f"warning: left out {bad} (image file is truncated" in capsys.readouterr().err
    assert (tmp_path / "run" / "model").exists()
