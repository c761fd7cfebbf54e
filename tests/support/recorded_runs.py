"""Made-up run folders, like those of `bic run`: of any size, made quickly, with known numbers.

    python tests/support/recorded_runs.py FOLDER --steps 5 --step-size 20 --runs 10

writes such runs for a look at their report, or for benchmarks/report.py.
"""

from __future__ import annotations

import argparse
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

from bic.lab.plan import Plan
from bic.lab.protocol import Protocol
from bic.learn.learning import Learning
from bic.learn.recipe import Recipe
from bic.store.results import checksum_of

RECIPE = Recipe(name="fast", backbone="fast", epochs=6, learning_rate=0.1)
Predictions = Mapping[str, Sequence[Any]]


def plan_settings(sizes: Sequence[int], **changes: Any) -> dict[str, Any]:
    """All settings of a run, as its config.json and result.json record them."""
    values = {
        "dataset": "made-up",
        "fingerprint": "f" * 32,
        "step_sizes": sizes,
        "method": "bic",
        "recipe": RECIPE,
        "memory": 200,
        **changes,
    }
    protocol = {name: value for name, value in values.items() if name in Protocol.model_fields}
    learning = {name: value for name, value in values.items() if name not in protocol}
    return Plan(Protocol(**protocol), Learning(**learning)).settings()


def random_predictions(
    draws: np.random.Generator, sizes: Sequence[int], per_class: int, accuracy: float, bias: float
) -> Predictions:
    """Predictions that are right with probability `accuracy`, and otherwise uniform.

    Before correction, the share `bias` of the images is put into the newest classes.
    """
    seen = sum(sizes)
    num_old = sum(sizes[:-1])
    true = np.repeat(np.arange(seen), per_class)
    is_right = draws.random(len(true)) < accuracy
    predicted = np.where(is_right, true, draws.integers(0, seen, len(true)))
    is_biased = (draws.random(len(true)) < bias) & (num_old > 0)
    uncorrected = np.where(is_biased, draws.integers(num_old, seen, len(true)), predicted)
    confidence = draws.random(len(true)).astype(np.float32)
    return {
        "index": np.arange(len(true)),
        "true": true,
        "predicted": predicted,
        "predicted_uncorrected": uncorrected,
        "confidence": confidence,
        "confidence_uncorrected": np.sqrt(confidence),
    }


def step_record(
    predictions: Predictions, sizes: Sequence[int], *, corrects: bool
) -> dict[str, Any]:
    """What result.json records about a step with these predictions."""
    true = np.asarray(predictions["true"])
    predicted = np.asarray(predictions["predicted"])
    uncorrected = np.asarray(predictions["predicted_uncorrected"])
    starts = np.cumsum([0, *sizes])
    groups = [(true >= low) & (true < high) for low, high in pairwise(starts)]
    bell = (1000 * np.exp(-(np.linspace(-3, 3, 60) ** 2))).astype(int).tolist()
    has_old = len(sizes) > 1
    is_corrected = corrects and has_old
    return {
        "step": len(sizes),
        "seen": sum(sizes),
        "top1": 100 * float((predicted == true).mean()),
        "top5": None,
        "top1_uncorrected": 100 * float((uncorrected == true).mean()),
        "top1_per_group": [
            100 * float((predicted[group] == true[group]).mean()) for group in groups
        ],
        "alpha": 1 - 0.05 * len(sizes) if is_corrected else None,
        "beta": -1.0 * len(sizes) if is_corrected else None,
        "share_on_new": float((predicted >= starts[-2]).mean()),
        "share_on_new_uncorrected": float((uncorrected >= starts[-2]).mean()),
        "true_share_of_new": float((true >= starts[-2]).mean()),
        "forgetting": 4.5 if has_old else None,
        "num_train": 100,
        "num_held_out": 20,
        "num_exemplars": 200,
        "score_histograms": {
            "old": {"start": -8.0, "width": 0.25, "counts": bell} if has_old else None,
            "new": {"start": -5.0, "width": 0.25, "counts": bell},
        },
        "head_norms": np.linspace(1, 2, sum(sizes)).round(4).tolist(),
        "seconds": {"stage1": 60.0, "stage2": 0.5, "memory": 5.0, "evaluate": 4.5},
    }


def write_run(
    folder: Path,
    sizes: Sequence[int],
    *,
    predictions: Sequence[Predictions] | None = None,
    classes: Sequence[str] | None = None,
    per_class: int = 10,
    accuracy: float = 0.6,
    steps_done: int | None = None,
    pictures: int = 2,
    **settings: Any,
) -> Path:
    """Write a run folder and return it.

    `per_class` is the number of test images per class, `pictures` that of exemplars. `steps_done`
    makes the run unfinished. `settings` are those of the run.
    """
    plan = plan_settings(sizes, **settings)
    draws = np.random.default_rng(plan["seed"])
    num_steps = len(sizes) if steps_done is None else steps_done
    seen = sum(sizes[:num_steps])
    names = list(classes or (f"class {number}" for number in range(sum(sizes))))[:seen]
    if predictions is None:
        predictions = [
            random_predictions(draws, sizes[:number], per_class, accuracy, bias=0.4)
            for number in range(1, num_steps + 1)
        ]
    steps = [
        step_record(columns, sizes[:number], corrects=plan["method"] == "bic")
        for number, columns in enumerate(predictions, start=1)
    ]
    result = {
        "method": plan["method"],
        "dataset": plan["dataset"],
        "seed": plan["seed"],
        "config": plan,
        "complete": num_steps == len(sizes),
        "classes": names,
        "made_with": {"bic": "0.1.0", "torch": "2.13.0"},
        "steps": steps,
    }
    asked = {name: plan[name] for name in ("dataset", "method", "seed")}
    config = {"format": 1, "version": "0.1.0", "asked": asked, "plan": plan}
    (folder / "model").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    result["checksum"] = checksum_of(result)
    (folder / "result.json").write_text(json.dumps(result))
    for number, columns in enumerate(predictions, start=1):
        arrays = {name: np.asarray(column) for name, column in columns.items()}
        np.savez_compressed(folder / f"predictions-{number}.npz", **arrays)
    write_memory(folder / "model" / "memory.parquet", seen, pictures, draws)
    return folder


def write_memory(path: Path, num_classes: int, pictures: int, draws: np.random.Generator) -> None:
    """Write a memory of random pictures."""
    rows: list[dict[str, Any]] = []
    for label in range(num_classes):
        for rank in range(pictures):
            encoded = io.BytesIO()
            pixels = draws.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).resize((32, 32)).save(encoded, "PNG")
            image = encoded.getvalue()
            rows.append({"class": label, "part": "train", "rank": rank, "image": image})
    kinds = {"class": pa.int64(), "part": pa.string(), "rank": pa.int64(), "image": pa.binary()}
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(kinds)), path)


def change_result(folder: Path, **changes: Any) -> None:
    """Change entries of a run's result.json, with a checksum that fits."""
    file = folder / "result.json"
    content = {**json.loads(file.read_text()), **changes}
    del content["checksum"]
    file.write_text(json.dumps({**content, "checksum": checksum_of(content)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--step-size", type=int, default=20, help="classes per step")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--images", type=int, default=100, help="test images per class")
    parser.add_argument("--pictures", type=int, default=4, help="exemplars per class")
    options = parser.parse_args()
    for seed in range(options.runs):
        write_run(
            options.folder / f"seed{seed}",
            [options.step_size] * options.steps,
            seed=seed,
            per_class=options.images,
            pictures=options.pictures,
        )


if __name__ == "__main__":
    main()
