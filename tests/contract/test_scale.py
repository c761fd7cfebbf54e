"""What 10,000 classes and more need: nothing quadratic in them, nothing that holds images × classes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import safetensors.torch
import torch

from bic import Correction, UserError, fit_correction
from bic.data.batches import plain_batches
from bic.data.class_choice import Wanted
from bic.data.decode import Preprocessing
from bic.data.images import array_set
from bic.data.index import Facts, Index
from bic.files import read_folder, write_folder, write_tensors
from bic.lab.steps import check_order
from bic.learn.config import MemoryBudget
from bic.learn.correction import HeldOutLogits, fit_held_out
from bic.learn.memory import Memory
from bic.learn.train import Teacher
from bic.model.model import held_out_logits
from bic.model.network import Network
from bic.progress import Progress

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import cost_model
import scale


def scores_and_labels(
    num_old: int, num_new: int, per_class: int = 4
) -> tuple[torch.Tensor, torch.Tensor]:
    draws = torch.Generator().manual_seed(0)
    labels = torch.arange(num_old + num_new).repeat(per_class)
    logits = torch.randn(len(labels), num_old + num_new, generator=draws)
    logits[torch.arange(len(labels)), labels] += 2
    logits[:, num_old:] += 1.5
    return logits, labels


def test_a_batch_at_a_time_gives_the_pair_of_all_at_once() -> None:
    logits, labels = scores_and_labels(30, 10)
    parts = [
        HeldOutLogits(100, 30, 10),
        HeldOutLogits(100, 30, 10),
        HeldOutLogits(100, 30, 10),
    ]  # of three processes, the last idle
    for number, (some, own) in enumerate(zip(logits.split(7), labels.split(7), strict=True)):
        parts[number % 2].add(some, own)
    parts, kept = [part.cut() for part in parts], logits.clone()
    assert [part.count for part in parts] == [83, 77, 0]  # of batches of 7 and a last one of 6
    found, expected = (
        fit_held_out(parts, 30, penalty=0.1),
        fit_correction(logits, labels, 30, penalty=0.1),
    )
    assert (found.alpha, found.beta) == pytest.approx((expected.alpha, expected.beta), rel=1e-10)
    assert found.beta < -0.5
    assert torch.equal(logits, kept)
    assert torch.equal(parts[1].new[:7], logits[7:14, 30:])


@pytest.mark.parametrize("num_old", [10, 5000])
def test_old_classes_leave_the_fit_three_numbers_an_image(num_old: int) -> None:
    logits, labels = scores_and_labels(num_old, 20, per_class=1)
    part = HeldOutLogits(20, num_old, 20)
    part.add(logits[-20:], labels[-20:])
    assert {one.untyped_storage().nbytes() for one in (part.old, part.best_old, part.own)} == {
        3 * 20 * 8
    }
    assert torch.allclose(part.old, logits[-20:, :num_old].double().logsumexp(dim=1))
    assert part.best_old.tolist() == logits[-20:, :num_old].amax(dim=1).tolist()
    assert part.own.tolist() == logits[-20:].diagonal(num_old).tolist()
    assert part.new.untyped_storage().nbytes() == 20 * 20 * 4


def test_nothing_held_out_that_can_be_read_leaves_the_scores_alone() -> None:
    assert fit_held_out([], 5) == Correction(1.0, 0.0, 5)


def test_the_held_out_pass_is_the_networks_own() -> None:
    draws = np.random.default_rng(0)
    images = array_set(draws.normal(size=(600, 6)).astype(np.float32), draws.integers(0, 9, 600))
    network = Network("mlp", channels=6, image_size=None)
    network.head.grow(9)
    parts = held_out_logits(network, images, 5, Progress("quiet"))
    logits = network(images.take(images.everything)).detach()
    assert [part.count for part in parts] == [600]
    assert torch.allclose(torch.cat([part.new for part in parts]), logits[:, 5:], atol=1e-5)
    assert torch.allclose(
        torch.cat([part.old for part in parts]), logits[:, :5].logsumexp(1).double(), atol=1e-5
    )
    assert torch.cat([part.labels for part in parts]).tolist() == images.labels.tolist()


def test_batches_times_outputs_are_bounded() -> None:
    images = array_set(np.zeros((1000, 3), np.float32), np.zeros(1000, np.int64))
    sizes = {
        count: len(next(plain_batches(images, num_outputs=count))[1])
        for count in (10, 4096, 10_000, 100_000)
    }
    assert sizes == {10: 512, 4096: 512, 10_000: 209, 100_000: 32}


def test_the_teacher_holds_one_head() -> None:
    network = Network("small", channels=1, image_size=8)
    network.head.grow(4)
    teacher = Teacher(network, Correction(0.5, 1.0, 2))
    assert teacher.folded.head is teacher.network.head
    assert teacher.network.head is not network.head
    images = torch.randint(0, 256, (3, 1, 8, 8), dtype=torch.uint8)
    raw = network.eval()(images).detach()
    assert torch.allclose(
        teacher(images), torch.cat([raw[:, :2], 0.5 * raw[:, 2:] + 1], dim=1), atol=1e-5
    )


@pytest.mark.timeout(
    10
)  # each took minutes when a list of the classes was searched for every class
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

    def test_are_remembered_cut_and_saved(self) -> None:
        memory = Memory(MemoryBudget(images=160_000), 0.2, Preprocessing(channels=1, size=8))
        files = [bytes([rank]) for rank in range(8)]
        for first in (0, 20_000):
            labels = range(first, first + 20_000)
            memory.store(
                {label: iter(files) for label in labels},
                {label: [b"h1", b"h2"] for label in labels},
            )
        assert len(memory) == 160_000
        again = Memory(memory.budget, 0.2, memory.preprocessing)
        again.load_table(memory.to_table())
        assert again.classes == memory.classes
        assert again.classes[39_999].train == files[:3]
        assert again.classes[0].held_out == [b"h1"]


def test_an_empty_memory_is_saved_too() -> None:
    memory = Memory(MemoryBudget(images=10), 0.0, Preprocessing(channels=1, size=8))
    table = memory.to_table()
    assert table.num_rows == 0
    assert table.schema.field("image").type == pa.binary()


def test_errors_do_not_list_ten_thousand_classes() -> None:
    with pytest.raises(UserError, match=r"got 10000: 0, 0, 1, 2, 3, 4, 5, 6, 7, 8 …; mend it"):
        check_order([0, *range(9999)], 10_000)


def test_tensors_are_written_with_a_checksum_and_the_modes_of_other_files(tmp_path: Path) -> None:
    tensors = {"head": torch.arange(6.0).view(2, 3).T}
    folder = tmp_path / "folder"
    write_folder(
        folder, {"a.json": b"{}", "w.safetensors": lambda path: write_tensors(tensors, path)}
    )
    assert torch.equal(
        safetensors.torch.load(read_folder(folder)["w.safetensors"])["head"], tensors["head"]
    )
    assert (folder / "w.safetensors").stat().st_mode == (folder / "a.json").stat().st_mode
    content = bytearray((folder / "w.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "w.safetensors").write_bytes(content)
    with pytest.raises(UserError, match=r"w\.safetensors is damaged"):
        read_folder(folder)


def test_a_disk_that_is_full_of_tensors_is_the_users_to_mend(tmp_path: Path, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise safetensors.SafetensorError("I/O error: No space left on device")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(
        UserError, match=r"cannot write .*No space left on device.*run the same command again"
    ):
        write_folder(tmp_path / "folder", {"w": lambda path: write_tensors({}, path)})
    assert list(tmp_path.iterdir()) == []


def test_seconds_per_image_are_those_of_each_epoch(tmp_path: Path, capsys) -> None:
    def step(number: int, num_train: int, stage1: float) -> dict[str, object]:
        return {
            "step": number,
            "seen": 10 * number,
            "num_train": num_train,
            "seconds": {"stage1": stage1},
        }

    recipe = {"epochs": 4, "first_epochs": 10, "backbone": "fast"}
    steps = [step(1, 100, 2.0), step(2, 100, 0.8), step(3, 50, 0.6)]
    result = {"method": "bic", "config": {"recipe": recipe}, "steps": steps}
    assert scale.seconds_per_image(result) == pytest.approx([0.002, 0.002, 0.003])
    (tmp_path / "result.json").write_text(json.dumps(result))
    assert not scale.report_run(tmp_path)
    assert "last / second: 1.50" in capsys.readouterr().out


def test_the_cost_model_counts_what_the_engine_would_do() -> None:
    """Step 2 of ImageNet-1000: 100 old classes with 200 exemplars each, of which 20 are held out."""
    second = cost_model.steps(cost_model.IMAGENET)[1]
    assert (second.num_old, second.num_new) == (100, 100)
    assert second.held_out == 20 * 200
    assert second.trained == 100 * 180 + 100 * (1281 - 20)
