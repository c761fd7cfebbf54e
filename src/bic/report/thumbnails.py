"""Exemplars as small pictures for the page."""

import base64
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bic.data.parquet_files import column_pieces
from bic.data.small_pictures import small_pictures
from bic.report.runs import Run

MAX_SIDE = 48  # pixels
MAX_PER_CLASS = 4
MAX_PICTURES = 600  # of one data set
NOT_SHOWN = "its exemplars cannot be shown as pictures"


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
            found = _first_images(memory, classes, per_class)
        except Exception:  # pyarrow raises almost anything
            run.problems.append(NOT_SHOWN)
            continue
        shown = {number: small_pictures(images, MAX_SIDE) for number, images in found.items()}
        if found and not any(shown.values()):
            run.problems.append(NOT_SHOWN)
        for number, small in shown.items():
            if small:
                name = run.result.classes[number]
                pictures[name] = [base64.b64encode(picture).decode() for picture in small]
    return pictures


def _first_images(memory: Path, classes: Sequence[int], per_class: int) -> dict[int, list[bytes]]:
    """The first exemplars of each class, read in pieces: the file may not fit into memory."""
    labels = _column(memory, "class")
    is_trained = _column(memory, "part") == "train"
    is_chosen = np.isin(labels, classes) & is_trained & (_column(memory, "rank") < per_class)
    images: dict[int, list[bytes]] = {}
    start = 0
    for piece in column_pieces(memory, "image"):
        chosen = np.flatnonzero(is_chosen[start : start + len(piece)])
        for row in chosen:
            images.setdefault(int(labels[start + row]), []).append(piece[int(row)].as_py())
        start += len(piece)
    return images


def _column(memory: Path, name: str) -> Any:
    pieces = [piece.to_numpy(zero_copy_only=False) for piece in column_pieces(memory, name)]
    return np.concatenate(pieces) if pieces else np.zeros(0)
