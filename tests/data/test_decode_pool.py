"""The decode pool: the same batches as without it, and what happens if something goes wrong."""

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
from support.pictures import jpeg, kinds, picture

from bic.data import decode_pool
from bic.data.augmentation import Augmentation
from bic.data.batches import Batches, plain_batches
from bic.data.decode_files import decode_files
from bic.data.decode_pool import Pool, decode_all, decoding
from bic.data.image_files import Row
from bic.data.images import ImageSet
from bic.data.preprocessing import Preprocessing
from bic.errors import LostError, UserError

PREPROCESSING = Preprocessing(channels=3, size=40, resize=48)
AUGMENTATION = Augmentation(random_resize=(48, 96), flip=True, brightness=5.0, contrast=0.1)


@pytest.fixture
def photos(tmp_path: Path) -> list[str]:
    """30 files of six kinds and several sizes."""
    paths = []
    for number in range(30):
        path = tmp_path / f"{number}.JPEG"
        path.write_bytes(list(kinds(number, 80 + number, 70).values())[number % 6])
        paths.append(str(path))
    return paths


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """Two processes, which decode however few images there are."""
    with pytest.MonkeyPatch.context() as patch, decoding(2):
        patch.setattr(decode_pool, "MIN_PIXELS", 1)
        assert decode_pool._pool is not None
        yield decode_pool._pool


def image_set(files: list[str] | list[bytes], *, skip_bad: bool = False) -> ImageSet:
    labels = np.arange(len(files))
    return ImageSet(labels=labels, preprocessing=PREPROCESSING, files=files, skip_bad=skip_bad)


def batches_of(images: ImageSet) -> Batches:
    return Batches(images, (3,), batch_size=7, augmentation=AUGMENTATION)


@pytest.mark.parametrize("from_bytes", [False, True])
def test_the_pool_makes_the_batches_of_one_process(
    pool: Pool, photos: list[str], from_bytes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = image_set([Path(path).read_bytes() for path in photos] if from_bytes else photos)
    shuffled = list(batches_of(images).epoch(2))
    plain = list(plain_batches(images, 13))
    assert {worker.pid for worker in pool.workers} - {os.getpid(), None}
    monkeypatch.setattr(decode_pool, "_pool", None)
    pairs = chain(
        zip(shuffled, batches_of(images).epoch(2), strict=True),
        zip(plain, plain_batches(images, 13), strict=True),
    )
    for (pixels, labels), (same_pixels, same_labels) in pairs:
        assert torch.equal(pixels, same_pixels)
        assert np.array_equal(labels, same_labels)
    assert sorted(torch.cat([labels for _, labels in shuffled]).tolist()) == list(range(30))


def test_more_images_than_the_shared_memory_holds(
    pool: Pool, photos: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two images per task; the block that the processes share is larger than that.
    monkeypatch.setattr(decode_pool, "HALF_BYTES", 2 * 40 * 40 * 3 + 5)
    pixels, good = decode_all(photos, PREPROCESSING)
    assert torch.equal(pixels, decode_files(photos, PREPROCESSING)[0])
    assert good == list(range(30))


def test_images_too_large_for_the_shared_memory_are_decoded_here(
    pool: Pool, photos: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode_pool, "HALF_BYTES", 40 * 40 * 3 - 1)
    monkeypatch.setattr(Pool, "fill", None)
    pixels, _ = decode_all(photos, PREPROCESSING)
    assert torch.equal(pixels, decode_files(photos, PREPROCESSING)[0])


def test_few_images_start_no_process(photos: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_pool, "MIN_PIXELS", 30 * 40 * 40 + 1)
    with decoding(2):
        decode_all(photos, PREPROCESSING)
        assert decode_pool._pool is not None
        assert decode_pool._pool.workers == []


def test_a_broken_file_is_named_or_left_out(pool: Pool, photos: list[str]) -> None:
    Path(photos[4]).write_bytes(b"")
    path = re.escape(photos[4])
    with pytest.raises(UserError, match=rf"can't read {path} \(it is not an image\); fix it"):
        list(batches_of(image_set(photos)).epoch(0))
    lenient = image_set(photos, skip_bad=True)
    with pytest.warns(UserWarning, match=f"left out {path}"):
        batches = list(batches_of(lenient).epoch(0))
    labels_seen = sorted(torch.cat([labels for _, labels in batches]).tolist())
    assert labels_seen == [number for number in range(30) if number != 4]
    assert all(len(images) == len(labels) for images, labels in batches)


@pytest.mark.parametrize("skip_bad", [False, True])
def test_a_missing_file_ends_the_run(pool: Pool, photos: list[str], skip_bad: bool) -> None:
    Path(photos[9]).unlink()
    missing = rf"can't read {re.escape(photos[9])} \(No such file or directory\); put it back"
    with pytest.raises(UserError, match=missing):
        list(batches_of(image_set(photos, skip_bad=skip_bad)).epoch(0))


@pytest.mark.parametrize("decode", [decode_all, decode_files])
@pytest.mark.parametrize("accident", ["vanishes", "is cut short"])
def test_a_shard_that_is_lost_during_a_run_is_named(
    pool: Pool, tmp_path: Path, accident: str, decode: object
) -> None:
    """A decode process must report it and not die of it."""
    shard = tmp_path / "train-0.parquet"
    table = pa.table({"image": [jpeg(picture(number, 60, 50)) for number in range(8)]})
    pq.write_table(table, shard, row_group_size=2)
    rows = [Row(str(shard), "image", n // 2, n % 2, n - n % 2) for n in range(8)]
    images = ImageSet(labels=np.arange(8), preprocessing=PREPROCESSING, files=rows, skip_bad=True)
    assert len(images.take(np.array([0, 1]), decode=decode)) == 2  # type: ignore[arg-type]
    if accident == "vanishes":
        shard.unlink()
    else:
        shard.write_bytes(shard.read_bytes()[:-100])
    named = rf"can't read row 6 of {re.escape(str(shard))} \(.+\); put it back and run again"
    for _ in range(2):
        with pytest.raises(UserError, match=named):
            images.take_readable(np.array([6, 7]), decode=decode)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=named):
        images.encoded(6)


def test_a_killed_process_ends_the_run_at_once(
    photos: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode_pool, "MIN_PIXELS", 1)
    started = time.monotonic()
    with decoding(1):
        batches = batches_of(image_set(photos)).epoch(0)
        next(batches)
        assert decode_pool._pool is not None
        pid = decode_pool._pool.workers[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(LostError, match=r"was killed, most likely .*; use fewer workers"):
            list(chain(batches, batches_of(image_set(photos)).epoch(1)))
    assert time.monotonic() - started < 60


SCRIPT = """
import os, signal
print("started", flush=True)
from bic.data import decode_pool
from bic.data.preprocessing import Preprocessing
decode_pool.MIN_PIXELS = 1
with decode_pool.decoding(1):
    decode_pool.decode_all({files}, Preprocessing(channels=3, size=8))
    print(decode_pool._pool.workers[0].pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_processes_end_with_their_owner_and_never_run_its_script(
    tmp_path: Path, photos: list[str]
) -> None:
    script = tmp_path / "without_main_guard.py"
    script.write_text(SCRIPT.format(files=photos[:2]))
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    first_line, pid = ended.stdout.split()
    assert (first_line, ended.returncode) == ("started", -signal.SIGKILL)
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()


def test_only_the_cpus_of_this_process_count() -> None:
    assert decode_pool.count_cpus() == len(os.sched_getaffinity(0))


def test_the_default_leaves_cpus_for_training(monkeypatch: pytest.MonkeyPatch) -> None:
    for num_cpus, on_cpu, on_gpu in [(1, 1, 1), (2, 1, 2), (8, 2, 8), (64, 16, 16)]:
        monkeypatch.setattr(decode_pool, "count_cpus", lambda count=num_cpus: count)
        assert decode_pool.default_processes("cpu") == on_cpu
        assert decode_pool.default_processes("cuda") == on_gpu
