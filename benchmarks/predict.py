"""Compare `bic predict` on a folder of JPEGs with the network's bare forward pass.

    python benchmarks/predict.py [--images N] [--rounds N] [--threads N] [--json FILE]

Predicting is everything from files to class names: read, decode, scale, classify, sort. The bare
forward pass classifies the same pixels, which are in memory, in the same batches. Both take turns.
The figures are medians over rounds: images per second, and their ratio. The ratio of CPU times is
less disturbed by other programs. Also measured: one image, once a model is loaded, and one image
with a new process. Use a quiet machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from input import photograph

from bic import Model, Preprocessing
from bic.data.batches import plain_batches
from bic.data.images import ImageSet
from bic.model.predict import predictions

CLASSES = 100


class Case(NamedTuple):
    """A network, the size of its images, and the size of the files."""

    name: str
    backbone: str
    size: int
    width: int
    height: int


CASES = (
    Case("photographs, resnet18", "resnet18", 224, 500, 375),
    Case("photographs, fast", "fast", 64, 500, 375),
    Case("small images, resnet32", "resnet32", 32, 32, 32),
    Case("small images, fast", "fast", 32, 32, 32),
)


class Cost(NamedTuple):
    seconds: float
    cpu_seconds: float  # of this process and of decode processes that have ended


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--images", type=int, default=512, help="photographs; 8 times as many small"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    figures = {}
    for case in CASES:
        count = arguments.images * (8 if case.width < 100 else 1)
        with tempfile.TemporaryDirectory() as folder:
            figures[case.name] = compare(case, Path(folder), count, arguments.rounds)
        print(case.name, json.dumps(figures[case.name]), flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


def compare(case: Case, folder: Path, count: int, rounds: int) -> dict[str, float]:
    images = folder / "images"
    images.mkdir()
    files = write_photographs(images, case, count)
    model = made_model(case)
    image_set = ImageSet(
        labels=np.zeros(count, np.int64), preprocessing=model.preprocessing, files=files
    )
    batches = [pixels.clone() for pixels, _ in plain_batches(image_set, num_outputs=CLASSES)]

    def bare() -> None:
        with torch.no_grad():
            for pixels in batches:
                model.network(pixels)

    def predict() -> None:
        for _ in predictions(model, files, top=5):
            pass

    model.network.eval()
    costs: dict[str, list[Cost]] = {"bare": [], "predict": []}
    bare()
    for _ in range(rounds):
        costs["bare"].append(cost_of(bare))
        costs["predict"].append(cost_of(predict))
    median = {}
    for name, measured in costs.items():
        median[name] = Cost(*(statistics.median(column) for column in zip(*measured, strict=True)))
    model.save(folder / "model")
    return {
        "bare, images/s": round(count / median["bare"].seconds, 1),
        "predict, images/s": round(count / median["predict"].seconds, 1),
        "ratio": round(median["bare"].seconds / median["predict"].seconds, 3),
        "ratio of CPU times": round(median["bare"].cpu_seconds / median["predict"].cpu_seconds, 3),
        "one image, ms": round(1000 * one_image(model, files[0]), 1),
        "one image with a new process, s": round(new_process(folder / "model", files[0]), 2),
    }


def cost_of(work: Callable[[], None]) -> Cost:
    start = time.perf_counter()
    cpu_start = sum(os.times()[:4])
    work()
    return Cost(time.perf_counter() - start, sum(os.times()[:4]) - cpu_start)


def one_image(model: Model, file: str) -> float:
    model.predict([file])
    return statistics.median(cost_of(lambda: model.predict([file])).seconds for _ in range(9))


def new_process(folder: Path, file: str) -> float:
    command = [sys.executable, "-m", "bic", "predict", str(folder), file, "--quiet"]

    def run() -> None:
        subprocess.run(command, check=True, capture_output=True)

    return min(cost_of(run).seconds for _ in range(3))


def made_model(case: Case) -> Model:
    """An untrained model: predicting takes the same time."""
    torch.manual_seed(0)
    model = Model.fresh(case.backbone, Preprocessing(channels=3, size=case.size))
    model.network.head.grow(CLASSES)
    model.classes = tuple(f"class {number}" for number in range(CLASSES))
    model.classes_per_step = (CLASSES,)
    return model


def write_photographs(folder: Path, case: Case, count: int) -> list[str]:
    """JPEGs of 64 different pictures, each written several times."""
    draws = np.random.default_rng(0)
    different = [photograph(draws, case.width, case.height) for _ in range(min(count, 64))]
    files = []
    for number in range(count):
        path = folder / f"{number:05}.jpg"
        different[number % len(different)].save(path, quality=90)
        files.append(str(path))
    return files


if __name__ == "__main__":
    main()
