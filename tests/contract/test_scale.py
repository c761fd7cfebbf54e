"""Ten thousand classes and more: nothing is quadratic in them or holds images × classes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import safetensors
import safetensors.torch
import torch

from bic import (
    Correction,
    HeldOutWarning,
    LostError,
    MemoryBudget,
    Preprocessing,
    Progress,
    UserError,
    fit_correction,
)
from bic.data.batches import plain_batches
from bic.data.class_choice import Wanted
from bic.data.images import array_set
from bic.data.index import Facts, Index
from bic.files import read_folder, write_folder
from bic.lab.steps import check_order
from bic.learn.correction import fit_held_out
from bic.learn.held_out import HeldOutLogits, held_out_logits
from bic.learn.memory import Memory
from bic.learn.teacher import Teacher
from bic.model.network import Network
from bic.model.tensor_files import write_tensors

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def logits_and_labels(
    num_old: int, num_new: int, images_per_class: int = 4
) -> tuple[torch.Tensor, torch.Tensor]:
    """Random logits that favour the right class, and new classes too much."""
    draws = torch.Generator().manual_seed(0)
    labels = torch.arange(num_old + num_new).repeat(images_per_class)
    logits = torch.randn(len(labels), num_old + num_new, generator=draws)
    logits[torch.arange(len(labels)), labels] += 2
    logits[:, num_old:] += 1.5
    return logits, labels


def test_fit_from_batches_is_the_fit_of_all_logits_at_once() -> None:
    logits, labels = logits_and_labels(30, 10)
    before = logits.clone()
    parts = [HeldOutLogits(100, 30, 10) for _ in range(3)]  # of three processes; the last is idle
    batches = zip(logits.split(7), labels.split(7), strict=True)
    for number, (batch, batch_labels) in enumerate(batches):
        parts[number % 2].add(batch, batch_labels)
    parts = [part.trimmed() for part in parts]
    assert [part.count for part in parts] == [83, 77, 0]  # batches of 7 and a last one of 6
    found = fit_held_out(parts, 30, penalty=0.1)
    expected = fit_correction(logits, labels, 30, penalty=0.1)
    assert (found.alpha, found.beta) == pytest.approx((expected.alpha, expected.beta), rel=1e-10)
    assert found.beta < -0.5
    assert torch.equal(logits, before)
    assert torch.equal(parts[1].new[:7], logits[7:14, 30:])


@pytest.mark.parametrize("num_old", [10, 5000])
def test_old_classes_are_reduced_to_three_numbers_per_image(num_old: int) -> None:
    logits, labels = logits_and_labels(num_old, 20, images_per_class=1)
    part = HeldOutLogits(20, num_old, 20)
    part.add(logits[-20:], labels[-20:])
    # The three share one block of memory.
    for tensor in (part.old, part.best_old, part.own):
        assert tensor.untyped_storage().nbytes() == 3 * 20 * 8
    assert torch.allclose(part.old, logits[-20:, :num_old].double().logsumexp(dim=1))
    assert part.best_old.tolist() == logits[-20:, :num_old].amax(dim=1).tolist()
    assert part.own.tolist() == logits[-20:].diagonal(num_old).tolist()
    assert part.new.untyped_storage().nbytes() == 20 * 20 * 4


def test_without_readable_held_out_images_logits_stay_as_they_are() -> None:
    empty = HeldOutLogits(0, 5, 3)
    with pytest.warns(HeldOutWarning, match="0 images of 8 classes"):
        assert fit_held_out([empty], 5) == Correction(1.0, 0.0, 5)


def test_held_out_logits_are_those_of_the_network() -> None:
    draws = np.random.default_rng(0)
    images = array_set(draws.normal(size=(600, 6)).astype(np.float32), draws.integers(0, 9, 600))
    network = Network("mlp", channels=6, image_size=None)
    network.head.grow(9)
    (part,) = held_out_logits(network, images, 5, Progress("quiet"))
    logits = network(images.take(images.everything)).detach()
    assert part.count == 600
    assert torch.allclose(part.new, logits[:, 5:], atol=1e-5)
    assert torch.allclose(part.old, logits[:, :5].logsumexp(1).double(), atol=1e-5)
    assert part.labels.tolist() == images.labels.tolist()


def test_batches_are_smaller_for_many_outputs() -> None:
    images = array_set(np.zeros((1000, 3), np.float32), np.zeros(1000, np.int64))
    sizes = {}
    for num_outputs in (10, 4096, 10_000, 100_000):
        _, indices = next(plain_batches(images, num_outputs=num_outputs))
        sizes[num_outputs] = len(indices)
    assert sizes == {10: 512, 4096: 512, 10_000: 209, 100_000: 32}


def test_teacher_holds_one_head() -> None:
    network = Network("small", channels=1, image_size=8)
    network.head.grow(4)
    teacher = Teacher(network, Correction(0.5, 1.0, 2))
    assert teacher.folded.head is teacher.network.head
    assert teacher.network.head is not network.head
    images = torch.randint(0, 256, (3, 1, 8, 8), dtype=torch.uint8)
    raw = network.eval()(images).detach()
    corrected = torch.cat([raw[:, :2], 0.5 * raw[:, 2:] + 1], dim=1)
    assert torch.allclose(teacher(images), corrected, atol=1e-5)


@pytest.mark.timeout(10)  # a search in a list for every class would take minutes
class TestManyClasses:
    NAMES = tuple(f"class {number}" for number in range(40_000))

    def test_are_chosen_by_name(self) -> None:
        chosen = Wanted("data", self.NAMES[::-2]).of(self.NAMES, "data")
        assert chosen == list(self.NAMES[1::2])
        with pytest.raises(UserError, match="no class 'clazz 7' among its 1,000"):
            Wanted("data", (*self.NAMES[:100], "clazz 7")).of(self.NAMES[:1000], "data")

    def test_are_indexed(self, tmp_path: Path) -> None:
        def facts(names: tuple[str, ...]) -> Facts:
            return Facts.join([Facts.unknown(name, 1, ["a.png"], [10], [1]) for name in names])

        Index(tmp_path, tmp_path).save(facts(self.NAMES))
        Index(tmp_path, tmp_path).save(facts(self.NAMES[::2]))
        known = Index(tmp_path, tmp_path).known(self.NAMES[-1])
        assert known is not None
        assert known.sizes.tolist() == [10]

    def test_are_stored_cut_and_saved(self) -> None:
        memory = Memory(MemoryBudget(images=160_000), 0.2, Preprocessing(channels=1, size=8))
        files = [bytes([rank]) for rank in range(8)]
        for first in (0, 20_000):
            labels = range(first, first + 20_000)
            ranked = {label: iter(files) for label in labels}
            memory.store(ranked, {label: [b"h1", b"h2"] for label in labels})
        assert len(memory) == 160_000
        restored = Memory(memory.budget, 0.2, memory.preprocessing)
        restored.load_table(memory.to_table())
        assert restored.classes == memory.classes
        assert restored.classes[39_999].train == files[:3]
        assert restored.classes[0].held_out == [b"h1"]


def test_empty_memory_is_saved_too() -> None:
    memory = Memory(MemoryBudget(images=10), 0.0, Preprocessing(channels=1, size=8))
    table = memory.to_table()
    assert table.num_rows == 0
    assert table.schema.field("image").type == pa.binary()


def test_errors_do_not_list_ten_thousand_classes() -> None:
    with pytest.raises(UserError, match=r"got 10000: 0, 0, 1, 2, 3, 4, 5, 6, 7, 8 …; fix"):
        check_order([0, *range(9999)], 10_000)


def test_tensors_are_written_with_a_checksum_and_the_modes_of_other_files(tmp_path: Path) -> None:
    tensors = {"head": torch.arange(6.0).view(2, 3).T}
    folder = tmp_path / "folder"
    write_folder(
        folder, {"a.json": b"{}", "w.safetensors": lambda path: write_tensors(tensors, path)}
    )
    file = folder / "w.safetensors"
    loaded = safetensors.torch.load(read_folder(folder)["w.safetensors"])
    assert torch.equal(loaded["head"], tensors["head"])
    assert file.stat().st_mode == (folder / "a.json").stat().st_mode
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"w\.safetensors is damaged"):
        read_folder(folder)


def test_full_disk_is_for_the_user_to_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise safetensors.SafetensorError("I/O error: No space left on device")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(
        LostError, match=r"cannot write .*No space left on device.*run the same command again"
    ):
        write_folder(tmp_path / "folder", {"w": lambda path: write_tensors({}, path)})
    assert list(tmp_path.iterdir()) == []


def benchmark(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_time_per_image_is_that_of_each_epoch(tmp_path: Path) -> None:
    def step(number: int, num_train: int, seconds: float) -> dict[str, Any]:
        return {
            "step": number,
            "seen": 10 * number,
            "num_train": num_train,
            "seconds": {"stage1": seconds},
        }

    recipe = {"epochs": 4, "first_epochs": 10, "backbone": "fast"}
    steps = [step(1, 100, 2.0), step(2, 100, 0.8), step(3, 50, 0.6)]
    result = {"method": "bic", "config": {"recipe": recipe}, "steps": steps}
    (tmp_path / "result.json").write_text(json.dumps(result))
    done = benchmark("scale.py", "--run", tmp_path)
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[1:] == [
        "  step   1       10 classes     2.000 ms per training image",
        "  step   2       20 classes     2.000 ms per training image",
        "  step   3       30 classes     3.000 ms per training image",
        "  last / second: 1.50 (bar: 1.25)",
    ]
    steps[2]["seconds"]["stage1"] = 0.5
    (tmp_path / "result.json").write_text(json.dumps(result))
    assert benchmark("scale.py", "--run", tmp_path).returncode == 0


@pytest.mark.parametrize("part", ["correction", "memory"])
def test_part_of_the_engine_can_be_measured(part: str) -> None:
    done = benchmark("scale.py", "--part", part, "--classes", 20)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert list(figures) == ["seconds", "processor", "working_mb", "peak_mb"]
    assert 0 < figures["seconds"] < 1
    assert figures["peak_mb"] > figures["working_mb"] >= 0


def test_cost_model_counts_what_the_engine_would_do() -> None:
    """Step 2 of ImageNet-1000 has 100 old classes with 200 exemplars each; 20 are held out."""
    done = benchmark("cost_model.py")
    assert done.returncode == 0, done.stderr
    held_out = 20 * 200
    trained = 100 * 180 + 100 * (1281 - 20)
    assert f"| 2 | 100 + 100 | {trained:,} | {held_out:,} |" in done.stdout
    assert "11.2 M parameters" in done.stdout
    assert "ImageNet-1000, 8 GPUs: " in done.stdout
