"""Decode processes: the same batches whoever makes them, and what happens when something goes wrong in mid-run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from support.pictures import huge, jpeg, kinds, picture, truncated

from bic import Recipe, UserError
from bic.data import ImageSet
from bic.data import workers as workers_module
from bic.data.batches import Batches, plain_batches, random_cuts
from bic.data.decode import Preprocessing
from bic.data.decode_pool import decode_all, decoding
from bic.data.image_files import Row
from bic.errors import LostError
from bic.learn.memory import files_of
from bic.model.model import extract
from bic.model.network import Network
from bic.progress import Progress
from bic.randomness import generator

VIEW = Preprocessing(channels=3, size=40, resize=48)
RECIPE = Recipe(
    name="vgg", backbone="fast", epochs=1, learning_rate=0.1, batch_size=7, image_size=40, resize=48,
    random_resize=(48, 96), flip=True, brightness=5.0, contrast=0.1,
)  # fmt: skip


@pytest.fixture
def photos(tmp_path: Path) -> list[str]:
    """30 files of six kinds and several sizes."""
    paths = []
    for number in range(30):
        path = tmp_path / f"{number}.JPEG"
        path.write_bytes(list(kinds(number, 80 + number, 70).values())[number % 6])
        paths.append(str(path))
    return paths


def image_set(files: list[str] | list[bytes], *, skip_bad: bool = False) -> ImageSet:
    return ImageSet(labels=np.arange(len(files)), preprocessing=VIEW, files=files, skip_bad=skip_bad)


@pytest.fixture(scope="module")
def pool() -> Iterator[workers_module.Pool]:
    """Two processes, used for however few images."""
    with pytest.MonkeyPatch.context() as patch, decoding(2):
        patch.setattr(workers_module, "WORTH_IT", 1)
        assert workers_module._pool is not None
        yield workers_module._pool


def in_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "_pool", None)


@pytest.mark.parametrize("from_bytes", [False, True])
def test_processes_make_the_batches_that_are_made_in_line(
    pool, photos, from_bytes: bool, monkeypatch
) -> None:
    images = image_set([Path(path).read_bytes() for path in photos] if from_bytes else photos)
    by_processes = list(Batches(images, RECIPE, (3,)).epoch(2))
    plain = list(plain_batches(images, 13))
    assert {worker.pid for worker in pool.workers} - {os.getpid(), None}
    in_line(monkeypatch)
    for made, alone in (
        (by_processes, Batches(images, RECIPE, (3,)).epoch(2)),
        (plain, plain_batches(images, 13)),
    ):
        for (one, labels), (two, same_labels) in zip(made, alone, strict=True):
            assert torch.equal(one, two)
            assert np.array_equal(labels, same_labels)
    assert sorted(torch.cat([labels for _, labels in by_processes]).tolist()) == list(range(30))


def test_more_images_than_the_shared_memory_holds(pool, photos, monkeypatch) -> None:
    monkeypatch.setattr(
        workers_module, "HALF_BYTES", 2 * 40 * 40 * 3 + 5
    )  # the processes' own is larger
    pixels, good = decode_all(photos, VIEW)
    in_line(monkeypatch)
    assert torch.equal(pixels, decode_all(photos, VIEW)[0])
    assert good == list(range(30))


def test_few_images_start_no_process(photos, monkeypatch) -> None:
    monkeypatch.setattr(workers_module, "WORTH_IT", 30 * 40 * 40 + 1)
    with decoding(2):
        decode_all(photos, VIEW)
        assert workers_module._pool is not None
        assert workers_module._pool.workers == []


BROKEN = {
    "empty": (b"", "it is not an image"),
    "truncated": (truncated(jpeg(picture(1, 300, 200))), "truncated"),
    "huge": (huge(), "it has more than 178,956,970 pixels"),
}


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("by", ["processes", "us"])
def test_a_file_that_turns_out_broken_is_named_or_left_out(
    pool, photos, kind: str, by: str, monkeypatch
) -> None:
    if by == "us":
        in_line(monkeypatch)
    Path(photos[4]).write_bytes(BROKEN[kind][0])
    named = rf"can't read {re.escape(photos[4])} \(.*{BROKEN[kind][1]}.*\); mend it, or leave it out with --skip-bad"
    with pytest.raises(UserError, match=named):
        list(Batches(image_set(photos), RECIPE, (3,)).epoch(0))
    lenient = image_set(photos, skip_bad=True)
    with pytest.warns(UserWarning, match=rf"left out {re.escape(photos[4])}"):
        batches = list(Batches(lenient, RECIPE, (3,)).epoch(0))
    assert sorted(torch.cat([labels for _, labels in batches]).tolist()) == [
        n for n in range(30) if n != 4
    ]
    assert all(len(images) == len(labels) for images, labels in batches)


@pytest.mark.filterwarnings("ignore:left out")
def test_what_is_left_out_leaves_the_others_in_their_place(photos) -> None:
    whole, network = image_set(photos), Network("fast", channels=3, image_size=40)
    everything, _ = extract(network, whole, Progress("quiet"))
    Path(photos[4]).write_bytes(b"")
    features, readable = extract(network, image_set(photos, skip_bad=True), Progress("quiet"))
    others = [n for n in range(30) if n != 4]
    assert readable.tolist() == others
    assert torch.allclose(features, everything[others], atol=1e-5)
    kept = list(files_of(image_set(photos, skip_bad=True), np.array([3, 4, 5])))
    assert kept == [Path(photos[n]).read_bytes() for n in (3, 5)]


@pytest.mark.parametrize("skip_bad", [False, True])
def test_a_file_that_vanishes_ends_the_run(pool, photos, skip_bad: bool) -> None:
    """Even with --skip-bad: else a drive that goes away would leave nothing to learn from."""
    Path(photos[9]).unlink()
    images = image_set(photos, skip_bad=skip_bad)
    gone = rf"can't read {re.escape(photos[9])} \(No such file or directory\); put it back"
    with pytest.raises(UserError, match=gone):
        list(Batches(images, RECIPE, (3,)).epoch(0))
    with pytest.raises(UserError, match=gone):
        images.encoded(9)


@pytest.mark.parametrize("by", ["processes", "us"])
@pytest.mark.parametrize("what", ["vanishes", "is cut short"])
def test_a_shard_that_is_lost_in_mid_run_is_named(
    pool, tmp_path: Path, what: str, by: str, monkeypatch
) -> None:
    """By all who read it: a process that decodes must say so, and not die of it."""
    if by == "us":
        in_line(monkeypatch)
    shard = tmp_path / "train-0.parquet"
    pq.write_table(
        pa.table({"image": [jpeg(picture(n, 60, 50)) for n in range(8)]}), shard, row_group_size=2
    )
    rows = [Row(str(shard), "image", n // 2, n % 2, n - n % 2) for n in range(8)]
    images = ImageSet(labels=np.arange(8), preprocessing=VIEW, files=rows, skip_bad=True)
    assert len(images.take(np.array([0, 1]))) == 2
    if what == "vanishes":
        shard.unlink()
    else:
        shard.write_bytes(shard.read_bytes()[:-100])
    named = rf"can't read row 6 of {re.escape(str(shard))} \(.+\); put it back and run the same command again"
    for _ in range(2):
        with pytest.raises(UserError, match=named):
            images.take(np.array([6, 7]))
    with pytest.raises(UserError, match=named):
        images.encoded(6)


def test_a_process_that_is_killed_ends_the_run_at_once(photos, monkeypatch) -> None:
    monkeypatch.setattr(workers_module, "WORTH_IT", 1)
    began = time.monotonic()
    with decoding(1):
        batches = Batches(image_set(photos), RECIPE, (3,)).epoch(0)
        next(batches)
        pool = workers_module._pool
        assert pool is not None
        pid = pool.workers[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(
            LostError,
            match="was killed, most likely because the memory ran out; give fewer --workers",
        ):
            list(chain(batches, Batches(image_set(photos), RECIPE, (3,)).epoch(1)))
    assert time.monotonic() - began < 60


def test_processes_end_with_their_owner_and_never_run_its_script(tmp_path: Path, photos) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(
        "import os, signal\n"
        "print('begins', flush=True)\n"
        "from bic.data import workers\n"
        "from bic.data.decode import Preprocessing\n"
        "workers.WORTH_IT = 1\n"
        f"with workers.decoding(1):\n"
        f"    workers.decode_all({photos[:2]}, Preprocessing(channels=3, size=8))\n"
        "    print(workers._pool.workers[0].pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    begins, pid = ended.stdout.split()
    assert (begins, ended.returncode) == ("begins", -signal.SIGKILL)
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()


def test_cuts_are_uniform_and_flips_only_where_asked() -> None:
    cuts = random_cuts(20_000, (48, 96), generator("cuts"), flip=True)
    sides = np.array([cut.side for cut in cuts])
    assert (sides.min(), sides.max()) == (48, 96)
    assert sides.mean() == pytest.approx(72, abs=0.5)
    assert np.mean([cut.x for cut in cuts]) == pytest.approx(0.5, abs=0.01)
    assert np.corrcoef([cut.x for cut in cuts], [cut.y for cut in cuts])[0, 1] == pytest.approx(
        0, abs=0.03
    )
    assert np.mean([cut.mirrored for cut in cuts]) == pytest.approx(0.5, abs=0.02)
    assert not any(
        cut.mirrored for cut in random_cuts(100, (48, 96), generator("cuts"), flip=False)
    )


def test_batches_are_pinned_where_asked(photos, monkeypatch) -> None:
    pinned = []

    def pin(images: torch.Tensor) -> torch.Tensor:
        pinned.append(len(images))
        return images

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    list(Batches(image_set(photos), RECIPE, (3,)).epoch(0))
    assert pinned == []
    list(Batches(image_set(photos), RECIPE, (3,), pinned=True).epoch(0))
    assert sum(pinned) == 30
