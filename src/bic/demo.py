"""The paper's story on handwritten digits, by every method, in well under a minute."""

from pathlib import Path
from typing import Any

import numpy as np

from bic.config import RunConfig, checked
from bic.data import open_dataset
from bic.methods import METHODS
from bic.progress import Progress
from bic.protocol import run
from bic.report.plots import picture


def demo(out: Path, *, seed: int, progress: Progress) -> list[dict[str, Any]]:
    """Run every method on digits, ten classes in five steps, and draw `out/demo.png`."""
    dataset = open_dataset("digits")
    results = []
    for number, name in enumerate(METHODS, start=1):
        config = checked(RunConfig, {"dataset": "digits", "method": name, "seed": seed})
        progress.say(f"method {number}/{len(METHODS)}: {name}, {METHODS[name].summary}")
        # One thread suits so small a network best.
        results.append(run(config, out / name, data=dataset, progress=progress, threads=1))
    num_steps = len(results[0]["steps"])
    with np.load(out / "bic" / f"predictions-{num_steps}.npz") as predictions:
        picture(results, predictions, out / "demo.png")
    return results
