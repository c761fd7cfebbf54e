"""Run folders as `bic run` leaves them, made up: of any size, in a moment, with numbers that a test can work out."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from bic.learn.config import MemoryBudget, Plan, Recipe

Answers = Mapping[str, Sequence[Any]]


def plan(sizes: Sequence[int], *, method: str = "bic", seed: int = 0, **changes: Any) -> Plan:
    values: dict[str, Any] = {
        "dataset": "made-up",
        "fingerprint": "f" * 32,
        "memory": MemoryBudget(images=200),
        "held_out": 0.1,
        "recipe": Recipe(name="fast", backbone="fast", epochs=6, learning_rate=0.1),
    }
    return Plan(step_sizes=tuple(sizes), method=method, seed=seed, **{**values, **changes})


def random_answers(
    draws: np.random.Generator, sizes: Sequence[int], per_class: int, accuracy: float, bias: float
) -> Answers:
    """Answers that are right at a rate, and else uniform, drawn to the newest classes at a rate before correction."""
    seen, num_old = sum(sizes), sum(sizes[:-1])
    true = np.repeat(np.arange(seen), per_class)
    predicted = np.where(
        draws.random(len(true)) < accuracy, true, draws.integers(0, seen, len(true))
    )
    drawn = (draws.random(len(true)) < bias) & (num_old > 0)
    raw = np.where(drawn, draws.integers(num_old, seen, len(true)), predicted)
    sure = draws.random(len(true)).astype(np.float32)
    return {
        "index": np.arange(len(true)),
        "true": true,
        "predicted": predicted,
        "predicted_uncorrected": raw,
        "confidence": sure,
        "confidence_uncorrected": np.sqrt(sure),
    }


def step_record(answers: Answers, sizes: Sequence[int], *, corrected: bool) -> dict[str, Any]:
    """The record of a step, from its answers."""
    true, predicted, raw = (
        np.asarray(answers[name]) for name in ("true", "predicted", "predicted_uncorrected")
    )
    starts = np.cumsum([0, *sizes])
    groups = [(true >= low) & (true < high) for low, high in pairwise(starts)]
    bell = (1000 * np.exp(-(np.linspace(-3, 3, 60) ** 2))).astype(int).tolist()
    corrected = corrected and len(sizes) > 1
    return {
        "step": len(sizes),
        "seen": sum(sizes),
        "top1": 100 * float((predicted == true).mean()),
        "top5": None,
        "top1_uncorrected": 100 * float((raw == true).mean()),
        "top1_per_group": [
            100 * float((predicted[group] == true[group]).mean()) for group in groups
        ],
        "alpha": 1 - 0.05 * len(sizes) if corrected else None,
        "beta": -1.0 * len(sizes) if corrected else None,
        "share_on_new": float((predicted >= starts[-2]).mean()),
        "share_on_new_uncorrected": float((raw >= starts[-2]).mean()),
        "true_share_of_new": float((true >= starts[-2]).mean()),
        "forgetting": 4.5 if len(sizes) > 1 else None,
        "num_train": 100,
        "num_held_out": 20,
        "num_exemplars": 200,
        "score_histograms": {
            "old": {"start": -8.0, "width": 0.25, "counts": bell} if len(sizes) > 1 else None,
            "new": {"start": -5.0, "width": 0.25, "counts": bell},
        },
        "head_norms": np.linspace(1, 2, sum(sizes)).round(4).tolist(),
        "seconds": {"stage1": 60.0, "stage2": 0.5, "memory": 5.0, "evaluate": 4.5},
    }


def write_run(
    folder: Path,
    sizes: Sequence[int],
    *,
    answers: Sequence[Answers] | None = None,
    classes: Sequence[str] | None = None,
    per_class: int = 10,
    accuracy: float = 0.6,
    steps_done: int | None = None,
    pictures: int = 2,
    **settings: Any,
) -> Path:
    """A run folder; `steps_done` leaves it unfinished, `pictures` is the number of exemplars per class."""
    settled = plan(sizes, **settings)
    draws = np.random.default_rng(settled.seed)
    done = len(sizes) if steps_done is None else steps_done
    seen = sum(sizes[:done])
    names = list(classes or (f"class {number}" for number in range(sum(sizes))))[:seen]
    if answers is None:
        answers = [
            random_answers(draws, sizes[:one], per_class, accuracy, 0.4)
            for one in range(1, done + 1)
        ]
    corrected = settled.method == "bic"
    steps = [
        step_record(each, sizes[:one], corrected=corrected)
        for one, each in enumerate(answers, start=1)
    ]
    result = {
        "method": settled.method,
        "dataset": settled.dataset,
        "seed": settled.seed,
        "config": settled.model_dump(mode="json"),
        "complete": done == len(sizes),
        "classes": names,
        "made_with": {"bic": "0.1.0", "torch": "2.13.0"},
        "steps": steps,
    }
    (folder / "model").mkdir(parents=True)
    asked = {"dataset": settled.dataset, "method": settled.method, "seed": settled.seed}
    config = {"format": 1, "version": "0.1.0", "asked": asked, "plan": result["config"]}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "result.json").write_text(json.dumps(result))
    for number, columns in enumerate(answers, start=1):
        np.savez_compressed(
            folder / f"predictions-{number}.npz",
            **{key: np.asarray(columns[key]) for key in columns},
        )
    write_memory(folder / "model" / "memory.parquet", seen, pictures, draws)
    return folder


def write_memory(path: Path, num_classes: int, pictures: int, draws: np.random.Generator) -> None:
    rows: dict[str, list[Any]] = {"class": [], "part": [], "rank": [], "image": []}
    for label in range(num_classes):
        for rank in range(pictures):
            packed = io.BytesIO()
            shade = draws.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(shade).resize((32, 32)).save(packed, "PNG")
            for name, value in zip(rows, (label, "train", rank, packed.getvalue()), strict=True):
                rows[name].append(value)
    kinds = {"class": pa.int64(), "part": pa.string(), "rank": pa.int64(), "image": pa.binary()}
    pq.write_table(pa.table(rows, schema=pa.schema(kinds)), path)
