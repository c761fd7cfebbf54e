"""The demo: the methods of the paper on handwritten digits, in under a minute."""

from pathlib import Path

from bic.data.open import open_dataset
from bic.lab.plan import RunConfig
from bic.lab.run import run
from bic.learn.methods import METHODS
from bic.progress import Progress
from bic.store.results import Result


def demo(out: Path, *, seed: int, progress: Progress) -> list[Result]:
    """Run the methods on digits, ten classes in five steps, each in the folder `out/METHOD`."""
    dataset = open_dataset("digits")
    methods = [method for method in METHODS.values() if method.in_demo]
    results = []
    for number, method in enumerate(methods, start=1):
        config = RunConfig(dataset="digits", method=method.name, seed=seed)
        progress.say(f"method {number}/{len(methods)}: {method.name}, {method.summary}")
        # One thread is fastest for such a small network.
        result = run(config, out / method.name, data=dataset, progress=progress, threads=1)
        results.append(result)
    return results
