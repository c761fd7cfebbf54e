"""Two processes that train one model, started by torchrun as a user would."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support.pictures import jpeg, picture, truncated

from bic import Recipe, UserError
from bic.compute.distributed import World
from bic.data.batches import Batches
from bic.data.images import array_set

PLAIN = """
from torch import nn

def plain(channels, image_size):
    '''No batch-norm: its statistics are each process's own.'''
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * image_size**2, 32), nn.Tanh(), nn.Linear(32, 16), nn.Tanh())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data of six classes, which two processes find in different amounts, and a backbone."""
    folder = tmp_path_factory.mktemp("distributed")
    draws = np.random.default_rng(0)
    patterns = draws.integers(0, 256, (6, 8, 8))

    def part(per_class: int) -> tuple[Any, Any]:
        labels = np.tile(np.arange(6), per_class)
        noise = draws.integers(0, 256, (len(labels), 8, 8))
        return (0.5 * patterns[labels] + 0.5 * noise).astype(np.uint8), labels

    (x_train, y_train), (x_test, y_test) = part(31), part(9)
    np.savez(folder / "data.npz", x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    for rank in (0, 1):
        few = slice(0, 180 if rank else None)
        np.savez(
            folder / f"data{rank}.npz",
            x_train=x_train[few],
            y_train=y_train[few],
            x_test=x_test,
            y_test=y_test,
        )
    (folder / "backbones.py").write_text(PLAIN)
    return folder


def command(processes: int, *arguments: str, data: str = "data.npz") -> list[str]:
    start = [sys.executable]
    if processes > 1:
        start += [
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            str(processes),
            "--no-python",
        ]
        start += [sys.executable]
    common = ["--steps", "3", "--memory", "36", "--held-out", "0.25", "--threads", "1"]
    return [*start, "-m", "bic", "run", data, *common, *arguments]


def start(folder: Path, line: list[str]) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        line, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def finish(process: subprocess.Popen[str], code: int | None = 0) -> str:
    out, errors = process.communicate(timeout=120)
    assert code is None or process.returncode == code, errors
    return out + errors


def weights(folder: Path, name: str) -> dict[str, torch.Tensor]:
    return load_file(folder / name / "model" / "weights.safetensors")


def result(folder: Path, name: str) -> dict[str, Any]:
    return dict(json.loads((folder / name / "result.json").read_text()))


def test_two_processes_make_the_updates_of_one(folder: Path) -> None:
    # A batch of 21 is not divided by 2: shares of 11 and 10 must count by their images.
    same = [
        "--recipe",
        "demo",
        "--backbone",
        "backbones:plain",
        "--epochs",
        "2",
        "--set",
        "recipe.batch_size=21",
    ]
    both = [start(folder, command(count, *same, "--out", f"plain{count}")) for count in (1, 2)]
    for process in both:
        finish(process)
    one, two = weights(folder, "plain1"), weights(folder, "plain2")
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=1e-5, atol=1e-5, msg=name)
    first, second = result(folder, "plain1"), result(folder, "plain2")
    assert [step["top1"] for step in first["steps"]] == [step["top1"] for step in second["steps"]]
    assert first["steps"][2]["score_histograms"]["old"] is not None
    assert first["steps"][2]["num_exemplars"] == second["steps"][2]["num_exemplars"]


def test_a_lost_process_ends_the_run_and_the_same_command_goes_on(folder: Path) -> None:
    line = command(2, "--recipe", "demo", "--epochs", "60", "--out", "lost")
    process = start(folder, line)
    checkpoints = folder / "lost" / "checkpoint"
    until = time.monotonic() + 60
    while not list(checkpoints.glob("step-2-*")) and time.monotonic() < until:
        time.sleep(0.05)
    children = subprocess.run(
        ["pgrep", "-f", "bic run data.npz.*--out lost"], capture_output=True, text=True, check=True
    )
    workers = [int(pid) for pid in children.stdout.split() if int(pid) != process.pid]
    os.kill(max(workers), signal.SIGKILL)
    said = finish(process, code=None)
    assert process.returncode != 0, said
    lost = r"^bic \(process \d\): another process of this run was lost.*; run the same command again and it goes on"
    assert re.search(lost, said, flags=re.MULTILINE), said
    assert "bic/cli.py" not in said  # no traceback of ours
    assert not result(folder, "lost")["complete"]
    finish(start(folder, line))
    done = result(folder, "lost")
    assert done["complete"]
    assert done["final_top1"] > 50


def test_processes_that_see_different_data_are_refused(folder: Path) -> None:
    script = "import os, sys; sys.argv[2] = f\"data{os.environ['RANK']}.npz\"; from bic.cli import main; main()"
    line = command(2, "--recipe", "demo", "--epochs", "1", "--out", "different")
    place = line.index("--no-python")
    line = [*line[: place + 1], sys.executable, "-c", script, *line[line.index("run") :]]
    said = finish(start(folder, line), code=None)
    assert "process 1 has another data than process 0" in said
    assert not (folder / "different").exists()


def test_broken_images_and_few_test_images_leave_the_processes_in_step(folder: Path) -> None:
    """Shares of two images, of which in some batches one process can read none; one test image for two processes."""
    for part, count in (("train", 8), ("test", 1)):
        for label, name in enumerate(("cat", "dog")):
            place = folder / "photos" / part / name
            place.mkdir(parents=True)
            for number in range(count):
                encoded = jpeg(picture(100 * label + number, 24, 20))
                broken = part == "train" and number % 3 == 0
                (place / f"{number}.jpg").write_bytes(truncated(encoded) if broken else encoded)
    sizes = [
        "recipe.batch_size=4",
        "recipe.image_size=8",
        "recipe.resize=8",
        "recipe.random_resize=[8, 12]",
    ]
    line = command(2, *(word for size in sizes for word in ("--set", size)), data="photos")
    line[line.index("--steps") + 1] = "2"
    line += [
        "--recipe",
        "demo",
        "--method",
        "finetune",
        "--epochs",
        "8",
        "--skip-bad",
        "--out",
        "broken",
    ]
    said = finish(start(folder, line))
    assert re.search(r"left out .*\.jpg", said), said
    done = result(folder, "broken")
    assert [step["true_share_of_new"] for step in done["steps"]] == [1.0, 0.5]
    assert done["steps"][1]["num_exemplars"] == 10  # of 16, those that are whole


def test_a_batch_is_shared_by_any_number_of_processes_that_gets_two_images_each(
    monkeypatch,
) -> None:
    """Shares that differ by one image, weighted so that their mean is the whole batch's; else refused by name."""
    images = array_set(np.zeros((60, 2), np.float32), np.arange(60))
    recipe = Recipe(name="vectors", backbone="mlp", epochs=1, learning_rate=0.1, batch_size=20)
    seen, weights_of = [], []
    for rank in range(3):
        monkeypatch.setattr("bic.data.batches.world", lambda rank=rank: World(rank, 3))
        batches = Batches(images, recipe, (0,))
        labels = [labels for _, labels in batches.epoch(0)]
        seen.append(torch.cat(labels).tolist())
        weights_of.append(
            [batches.weight_of(number, len(own)) for number, own in enumerate(labels)]
        )
    assert sorted(label for own in seen for label in own) == list(range(60))
    assert [len(own) for own in seen] == [21, 21, 18]  # three batches of 7 + 7 + 6
    assert np.mean(weights_of, axis=0) == pytest.approx([1, 1, 1])
    assert weights_of[2] == pytest.approx([6 * 3 / 20] * 3)
    monkeypatch.setattr("bic.data.batches.world", lambda: World(0, 11))
    with pytest.raises(
        UserError, match="batches come to 20 images, too few for 11 processes of two each"
    ):
        Batches(images, recipe, (0,))
