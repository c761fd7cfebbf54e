"""Compare computing the features of a folder of JPEGs with the backbone's bare forward pass.

    python benchmarks/features.py [--images N] [--rounds N] [--threads N] [--json FILE]

Computing features is everything from files to features: read, decode, scale, both forward passes
(of the image and of the mirrored image), and keep them in a folder. The bare forward pass sees the
same pixels, which are in memory, in the same batches and in the same precision. Both take turns.
The figures are medians over rounds: images per second, and their ratio. The ratio of CPU times is
less disturbed by other programs. Use a quiet machine.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from predict import Case, Cost, cost_of, write_photographs

from bic.compute.precision import computing_in
from bic.data.batches import plain_batches
from bic.data.decode_pool import decoding, default_processes
from bic.data.images import ImageSet
from bic.model.feature_folder import FeatureFolder
from bic.model.frozen_features import BATCH_SIZE, with_features
from bic.model.model import Model
from bic.model.pretrained_backbones import preprocessing_for
from bic.progress import Progress


class Row(NamedTuple):
    case: Case
    precision: str
    mirrored: bool


# A lesson has a few hundred images; a data set has thousands, which the decode pool decodes.
ROWS = (
    Row(Case("lite2", "lite2", 224, 500, 375), "bfloat16", True),
    Row(Case("lite2", "lite2", 224, 500, 375), "bfloat16", False),
    Row(Case("lite2", "lite2", 224, 500, 375), "float32", True),
    Row(Case("lite0", "lite0", 224, 500, 375), "bfloat16", True),
    Row(Case("lite2, small images", "lite2", 160, 32, 32), "bfloat16", True),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    figures = {}
    for row in ROWS:
        kind = ", mirrored too" if row.mirrored else ""
        name = f"{row.case.name}, {row.precision}{kind}"
        with tempfile.TemporaryDirectory() as folder:
            figures[name] = compare(row, Path(folder), arguments.images, arguments.rounds)
        print(name, json.dumps(figures[name]), flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


def compare(row: Row, folder: Path, count: int, rounds: int) -> dict[str, float]:
    case = row.case
    files = write_photographs(folder, case, count)
    preprocessing = preprocessing_for(case.backbone, case.size, None)
    assert preprocessing is not None
    images = ImageSet(labels=np.zeros(count, np.int64), preprocessing=preprocessing, files=files)
    network = Model.fresh(case.backbone, preprocessing).network.freeze()
    network.prepare(torch.zeros(1))
    batches = [pixels.clone() for pixels, _ in plain_batches(images, BATCH_SIZE)]
    done = 0

    def bare() -> None:
        with computing_in(row.precision, "cpu"):
            for pixels in batches:
                network.features(pixels)
                if row.mirrored:
                    network.features(pixels)

    def features() -> None:
        nonlocal done
        done += 1
        quiet = Progress("quiet")
        cache = FeatureFolder(folder / f"cache-{done}", "network", quiet)
        with decoding(default_processes("cpu")):
            with_features(
                network, images, quiet, mirrored=row.mirrored, precision=row.precision, cache=cache
            )

    bare()
    costs: dict[str, list[Cost]] = {"bare": [], "features": []}
    for _ in range(rounds):
        costs["bare"].append(cost_of(bare))
        costs["features"].append(cost_of(features))
    median = {}
    for name, measured in costs.items():
        median[name] = Cost(*(statistics.median(column) for column in zip(*measured, strict=True)))
    cpu_ratio = median["bare"].cpu_seconds / median["features"].cpu_seconds
    return {
        "bare, images/s": round(count / median["bare"].seconds, 1),
        "features, images/s": round(count / median["features"].seconds, 1),
        "ratio": round(median["bare"].seconds / median["features"].seconds, 3),
        "ratio of CPU times": round(cpu_ratio, 3),
    }


if __name__ == "__main__":
    main()
