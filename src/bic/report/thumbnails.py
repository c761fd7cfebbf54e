"""Exemplars as small pictures that fit into a page."""

import base64
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from bic.report.runs import Run

SIDE = 48  # pixels, at most
PER_CLASS, LIMIT = 4, 600  # pictures of one class, and of one data set


def thumbnails(runs: Iterable[Run], wanted: Sequence[str]) -> dict[str, list[str]]:
    """Up to four exemplars per class name, best first, as base64 of WebP; `wanted` says which classes come first.

    All runs must be of the same data: what one has no memory of, another may.
    """
    names = list(dict.fromkeys(wanted))[:LIMIT]
    per_class = min(PER_CLASS, LIMIT // max(1, len(names)))
    found: dict[str, list[str]] = {}
    for run in runs:
        memory = run.memory()
        if memory is not None and (missing := set(names) - found.keys()):
            numbers = {number: name for number, name in enumerate(run.result.classes) if name in missing}
            try:
                for number, images in _first_images(memory, sorted(numbers), per_class).items():
                    found[numbers[number]] = [_small(image) for image in images]
            except (OSError, ValueError, KeyError, pa.ArrowException):
                run.problems.append("its exemplars cannot be shown as pictures")
    return found


def _first_images(memory: Path, classes: Sequence[int], per_class: int) -> dict[int, list[bytes]]:
    """The exemplars of lowest rank, read a few rows at a time: a memory may be larger than the machine's."""
    chosen: dict[int, list[bytes]] = {}
    with pq.ParquetFile(memory, memory_map=True) as file:
        for rows in file.iter_batches(batch_size=256, columns=["class", "part", "rank", "image"]):
            labels, ranks = rows.column("class").to_numpy(), rows.column("rank").to_numpy()
            trained = rows.column("part").to_numpy(zero_copy_only=False) == "train"
            picked = np.flatnonzero(np.isin(labels, classes) & trained & (ranks < per_class))
            for label, image in zip(labels[picked], rows.column("image").take(pa.array(picked)), strict=True):
                chosen.setdefault(int(label), []).append(image.as_py())
    return chosen


def _small(image: bytes) -> str:
    packed = io.BytesIO()
    with Image.open(io.BytesIO(image)) as picture:
        small = picture.convert("RGB")
    small.thumbnail((SIDE, SIDE))
    small.save(packed, "WEBP", quality=75, method=4)
    return base64.b64encode(packed.getvalue()).decode()
