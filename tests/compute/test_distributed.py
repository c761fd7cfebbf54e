"""Two processes that train one model, started by torchrun as a user would start them."""

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
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file
from support.pictures import jpeg, picture, truncated

from bic import Augmentation, UserError
from bic.compute.distributed import World
from bic.data.batches import Batches
from bic.data.images import array_set

PLAIN = """
from torch import nn

def plain(channels, image_size):
    '''No batch-norm: every process has its own statistics.'''
    layers = [nn.Linear(channels * image_size**2, 32), nn.Tanh(), nn.Linear(32, 16), nn.Tanh()]
    return nn.Sequential(nn.Flatten(), *layers)
"""
COMMON = ["--recipe", "demo", "--held-out", "0.25", "--memory", "36", "--threads", "1"]

# Process 0 reads data0.npz, process 1 data1.npz.
OTHER_DATA = """
import os, sys
from bic.cli import main
sys.argv[2] = f"data{os.environ['RANK']}.npz"
main()
"""

# Trains a network with batch norm and gradient noise in shards of 8 and 7 images, and prints the
# tensors that differ between the processes.
DIFFERENCES = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from bic.compute.distributed import gathered_objects, joined, world
from support.training import (
    classification_loss, copied, noisy_images, plain_recipe, small_network, train
)
with joined("cpu"):
    module = small_network()
    images = noisy_images(30)
    recipe = plain_recipe(batch_size=15)
    train(module, recipe, images, classification_loss, gradient_noise=0.3)
    one, other = gathered_objects(copied(module))
    if world().is_first:
        assert any("running_var" in name for name in one)
        print("different:", [name for name in one if not torch.equal(one[name], other[name])])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a backbone and data of six classes. data1.npz lacks some of the images."""
    folder = tmp_path_factory.mktemp("distributed")
    draws = np.random.default_rng(0)
    patterns = draws.integers(0, 256, (6, 8, 8))

    def part(images_per_class: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        labels = np.tile(np.arange(6), images_per_class)
        noise = draws.integers(0, 256, (len(labels), 8, 8))
        return (0.5 * patterns[labels] + 0.5 * noise).astype(np.uint8), labels

    x_train, y_train = part(31)
    x_test, y_test = part(9)
    for name, count in (("data", 186), ("data0", 186), ("data1", 180)):
        np.savez(
            folder / f"{name}.npz",
            x_train=x_train[:count],
            y_train=y_train[:count],
            x_test=x_test,
            y_test=y_test,
        )
    (folder / "backbones.py").write_text(PLAIN)
    return folder


def torchrun(num_processes: int) -> list[str]:
    if num_processes == 1:
        return [sys.executable]
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    return [sys.executable, *start, str(num_processes), "--no-python", sys.executable]


def bic_run(num_processes: int, *arguments: str, data: str = "data.npz") -> list[str]:
    """The command line of a run in a number of processes."""
    return [*torchrun(num_processes), "-m", "bic", "run", data, *COMMON, *arguments]


def start(folder: Path, command: list[str]) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def output(process: subprocess.Popen[str]) -> str:
    """All that a process and its children print until they end."""
    out, errors = process.communicate(timeout=120)
    return out + errors


def finish(process: subprocess.Popen[str]) -> str:
    said = output(process)
    assert process.returncode == 0, said
    return said


def weights(folder: Path, name: str) -> dict[str, torch.Tensor]:
    return load_file(folder / name / "model" / "weights.safetensors")


def result(folder: Path, name: str) -> dict[str, Any]:
    return dict(json.loads((folder / name / "result.json").read_text()))


def test_two_processes_make_the_updates_of_one(folder: Path) -> None:
    # 2 does not divide a batch of 21: shards of 11 and 10 are weighted by size.
    settings = ["--backbone", "backbones:plain", "--epochs", "2", "--steps", "3"]
    settings += ["--set", "recipe.batch_size=21"]
    processes = []
    for count in (1, 2):
        processes.append(start(folder, bic_run(count, *settings, "--out", f"plain{count}")))
    for process in processes:
        finish(process)
    expected = weights(folder, "plain1")
    found = weights(folder, "plain2")
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-5, msg=name)
    of_one = result(folder, "plain1")
    of_two = result(folder, "plain2")
    assert [step["top1"] for step in of_one["steps"]] == [step["top1"] for step in of_two["steps"]]
    assert of_one["steps"][2]["score_histograms"]["old"] is not None
    assert of_one["steps"][2]["num_exemplars"] == of_two["steps"][2]["num_exemplars"]
    assert of_two["made_with"]["processes"] == 2


def test_processes_end_with_the_same_weights_and_statistics(folder: Path) -> None:
    tests = str(Path(__file__).parents[1])
    said = finish(start(folder, [*torchrun(2), "-c", DIFFERENCES, tests]))
    assert "different: []" in said


def test_lost_process_ends_the_run_and_the_same_command_continues(folder: Path) -> None:
    command = bic_run(2, "--epochs", "30", "--steps", "2", "--out", "lost")
    process = start(folder, command)
    checkpoints = folder / "lost" / "checkpoint"
    deadline = time.monotonic() + 60
    while not list(checkpoints.glob("step-2-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 2
    os.kill(int(children[-1]), signal.SIGKILL)
    said = output(process)
    assert process.returncode != 0, said
    lost = r"^bic \(process \d\): another process of this run was lost.*; "
    remedy = "run the same command again to continue from the last epoch"
    assert re.search(lost + remedy, said, flags=re.MULTILINE), said
    assert "bic/cli/" not in said  # no traceback of ours
    assert not result(folder, "lost")["complete"]
    finish(start(folder, command))
    done = result(folder, "lost")
    assert done["complete"]
    assert done["final_top1"] > 50


def test_processes_with_different_data_are_refused(folder: Path) -> None:
    arguments = ["run", "data.npz", *COMMON, "--epochs", "1", "--steps", "3", "--out", "different"]
    said = output(start(folder, [*torchrun(2), "-c", OTHER_DATA, *arguments]))
    assert "the data of process 1 differs from process 0" in said
    assert not (folder / "different").exists()


def test_broken_images_and_few_test_images_leave_no_process_behind(folder: Path) -> None:
    """A process may be unable to read any of its two images; two processes share a test image."""
    for part, count in (("train", 8), ("test", 1)):
        for label, name in enumerate(("cat", "dog")):
            place = folder / "photos" / part / name
            place.mkdir(parents=True)
            for number in range(count):
                encoded = jpeg(picture(100 * label + number, 24, 20))
                is_broken = part == "train" and number % 3 == 0
                content = truncated(encoded) if is_broken else encoded
                (place / f"{number}.jpg").write_bytes(content)
    settings = ["recipe.batch_size=4", "recipe.image_size=8", "recipe.resize=8"]
    settings += ["recipe.augmentation.random_resize=[8, 12]"]
    arguments = ["--steps", "2", "--method", "finetune", "--epochs", "8", "--skip-bad"]
    for setting in settings:
        arguments += ["--set", setting]
    said = finish(start(folder, bic_run(2, *arguments, "--out", "broken", data="photos")))
    assert re.search(r"left out .*\.jpg", said), said
    done = result(folder, "broken")
    assert [step["true_share_of_new"] for step in done["steps"]] == [1.0, 0.5]
    assert done["steps"][1]["num_exemplars"] == 10  # the readable ones of 16


def test_batch_is_split_into_weighted_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weighted mean over the processes is the mean over the batch."""
    images = array_set(np.zeros((60, 2), np.float32), np.arange(60))

    def batches_of(rank: int, world_size: int) -> Batches:
        monkeypatch.setattr("bic.data.batches.world", lambda: World(rank, world_size))
        return Batches(images, (0,), batch_size=20, augmentation=Augmentation())

    labels_of_ranks: list[list[int]] = []
    weights_of_ranks: list[list[float]] = []
    for rank in range(3):
        batches = batches_of(rank, 3)
        labels = [labels for _, labels in batches.epoch(0)]
        labels_of_ranks.append(torch.cat(labels).tolist())
        weights_of_ranks.append(
            [batches.weight_of(number, len(shard)) for number, shard in enumerate(labels)]
        )
    assert sorted(np.concatenate(labels_of_ranks)) == list(range(60))
    # Three batches of 7 + 7 + 6.
    assert [len(labels) for labels in labels_of_ranks] == [21, 21, 18]
    assert np.mean(weights_of_ranks, axis=0) == pytest.approx([1, 1, 1])
    assert weights_of_ranks[2] == pytest.approx([6 * 3 / 20] * 3)
    with pytest.raises(UserError) as caught:
        batches_of(0, 11)
    assert caught.value.problem == (
        "each of 11 processes needs two images of every batch, but there are batches of 20"
    )
    assert caught.value.remedy == "raise {recipe.batch_size} or start fewer processes"
