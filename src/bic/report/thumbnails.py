"""Exemplars as small pictures for the page."""

import base64
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from bic.report.runs import Run

MAX_SIDE = 48  # pixels
MAX_PER_CLASS = 4
MAX_PICTURES = 600  # of one data set


def thumbnails(runs: Iterable[Run], wanted: Sequence[str]) -> dict[str, list[str]]:
    """Up to four exemplars per class name, best first, as base64 of WebP.

    `wanted` names the classes, the most important first. All runs must use the same data: a class
    without exemplars in one run gets them from another.
    """
    names = list(dict.fromkeys(wanted))[:MAX_PICTURES]
    per_class = min(MAX_PER_CLASS, MAX_PICTURES // max(1, len(names)))
    pictures: dict[str, list[str]] = {}
    for run in runs:
        memory = run.memory_file()
        missing = set(names) - pictures.keys()
        if memory is None or not missing:
            continue
        classes = [number for number, name in enumerate(run.result.classes) if name in missing]
        try:
            for number, images in _first_images(memory, classes, per_class).items():
                pictures[run.result.classes[number]] = [_small(image) for image in images]
        except (OSError, ValueError, KeyError, pa.ArrowException):
            run.problems.append("its exemplars cannot be shown as pictures")
    return pictures


def _first_images(memory: Path, classes: Sequence[int], per_class: int) -> dict[int, list[bytes]]:
    """The first exemplars of each class, read in batches: the file may not fit into memory."""
    images: dict[int, list[bytes]] = {}
    with pq.ParquetFile(memory, memory_map=True) as file:
        for rows in file.iter_batches(batch_size=256, columns=["class", "part", "rank", "image"]):
            labels = rows.column("class").to_numpy()
            ranks = rows.column("rank").to_numpy()
            is_trained = rows.column("part").to_numpy(zero_copy_only=False) == "train"
            is_chosen = np.isin(labels, classes) & is_trained & (ranks < per_class)
            chosen = np.flatnonzero(is_chosen)
            encoded = rows.column("image").take(pa.array(chosen))
            for label, image in zip(labels[chosen], encoded, strict=True):
                images.setdefault(int(label), []).append(image.as_py())
    return images


def _small(image: bytes) -> str:
    packed = io.BytesIO()
    with Image.open(io.BytesIO(image)) as picture:
        small = picture.convert("RGB")
    small.thumbnail((MAX_SIDE, MAX_SIDE))
    small.save(packed, "WEBP", quality=75, method=4)
    return base64.b64encode(packed.getvalue()).decode()
