"""Time and memory of the engine's parts against the number of classes, each in a process of its own.

    python benchmarks/scale.py [--out FOLDER] [--classes 100,1000,10000,100000] [--run RUN]

Prints a table and, with --out, draws scale.png and writes scale.json there. What is simulated is everything but the
backbone, whose cost has nothing to do with the number of classes: features and logits are random. Everything runs in
one thread; on a quiet machine "time" and "processor" are the same but where a disk is waited for. "working" is the
largest memory while the part worked beyond what it was given. --run takes a run folder and compares the seconds per
training image of its steps, which must stay flat: the last within 1.25 of the second.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bic.data.images import array_set
from bic.files import write_table
from bic.learn.config import MemoryBudget
from bic.learn.correction import HeldOutLogits, fit_held_out
from bic.learn.learner import Checkpoint
from bic.learn.losses import classification
from bic.learn.memory import Memory, by_class, files_of, herd
from bic.learn.methods.bic import distilling
from bic.model.evaluate import evaluate
from bic.model.model import Model
from bic.model.network import Head
from bic.progress import Progress
from bic.store.run_folder import RunFolder

DIM, BATCH = 512, 128  # features as resnet18's
FLAT = 1.25  # the bar for --run
Part = Callable[
    [int], tuple[Callable[[], object], int]
]  # classes → the work, and how many units it does


def update(classes: int) -> tuple[Callable[[], object], int]:
    """The head's forward and backward pass and the optimiser's update, per training image."""
    head, features = Head(DIM), torch.randn(BATCH, DIM, requires_grad=True)
    head.grow(classes)
    labels = torch.randint(0, classes, (BATCH,))
    optimiser = torch.optim.SGD(
        head.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, foreach=True
    )

    def work() -> None:
        for _ in range(3):
            optimiser.zero_grad()
            classification(head(features), labels).backward()
            optimiser.step()

    return work, 3 * BATCH


def loss(classes: int) -> tuple[Callable[[], object], int]:
    """Classification and distillation from logits, forward and backward, per training image."""
    logits, old = torch.randn(BATCH, classes, requires_grad=True), classes * 9 // 10
    targets, labels = torch.randn(BATCH, old), torch.randint(0, classes, (BATCH,))

    def work() -> None:
        for _ in range(3):
            torch.stack(list(distilling(logits, labels, targets, ()).values())).sum().backward()

    return work, 3 * BATCH


def reduction(classes: int) -> tuple[Callable[[], object], int]:
    """Held-out logits reduced to what the correction needs, per held-out image."""
    rows = min(BATCH, max(32, 2**21 // classes))
    logits, labels = torch.randn(rows, classes), torch.randint(0, classes, (rows,))
    new = num_new(classes)
    return lambda: HeldOutLogits(rows, classes - new, new).add(logits, labels), rows


def correction(classes: int) -> tuple[Callable[[], object], int]:
    """The fit of α and β on two held-out images a class, per step."""
    new, draws = num_new(classes), torch.Generator().manual_seed(0)
    held_out = HeldOutLogits(2 * (classes + new), classes, new)
    held_out.labels = torch.arange(classes + new).repeat(2)
    held_out.new.normal_(std=2, generator=draws)
    is_new = torch.nonzero(held_out.labels >= classes)[:, 0]
    own = is_new, held_out.labels[is_new] - classes
    held_out.new[own] += 8
    held_out.old.normal_(mean=9, generator=draws)
    held_out.best_old, held_out.own, held_out.count = (
        held_out.old - 1,
        held_out.old - 1,
        len(held_out.labels),
    )
    held_out.own[is_new] = held_out.new[own].double()
    return lambda: fit_held_out([held_out], classes), 1


def memory(classes: int) -> tuple[Callable[[], object], int]:
    """Herding and storing a tenth of the classes, all others cut, and the memory written, per class of the step."""
    new, per_class = max(1, classes // 10), 20
    draws = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes - new, classes), per_class)
    images = array_set(draws.integers(0, 256, (len(labels), 8, 8), dtype=np.uint8), labels)
    features = torch.randn(len(labels), 128)
    kept = Memory(MemoryBudget(images=5 * classes), 0.2, images.preprocessing)
    image = images.encoded(0)
    folder = tempfile.TemporaryDirectory()
    old: Any = {label: [image] * 5 for label in range(classes - new)}
    kept.store(old, {label: [image] for label in old})

    def work() -> None:
        ranked = {label: own[herd(features[own], 5)] for label, own in by_class(labels).items()}
        kept.store(
            {label: files_of(images, best) for label, best in ranked.items()},
            {each: [image] for each in ranked},
        )
        write_table(kept.to_table(), Path(folder.name) / "memory.parquet")

    return work, new


def evaluation(classes: int) -> tuple[Callable[[], object], int]:
    """Logits, answers, top-5 and histograms, per test image."""
    draws = np.random.default_rng(0)
    labels = draws.permutation(np.arange(1024) * 997 % classes)
    test = array_set(draws.normal(size=(1024, 32)).astype(np.float32), labels)
    model = Model.fresh("mlp", test.preprocessing)
    model.classes, model.classes_per_step = (
        tuple(map(str, range(classes))),
        (classes - classes // 2, classes // 2),
    )
    model.network.head.grow(classes)
    return lambda: evaluate(model, test, test.everything, Progress("quiet")), len(test)


def checkpoint(classes: int) -> tuple[Callable[[], object], int]:
    """The head and its momentum, written and synced, per checkpoint."""
    tensors = {
        name: torch.randn(classes, DIM) for name in ("module.head.weight", "momentum.head.weight")
    }
    folder = tempfile.TemporaryDirectory()
    run_folder, epochs = RunFolder(Path(folder.name)), count()

    def work() -> None:
        assert Path(folder.name).exists()  # as long as there is work
        run_folder.save_checkpoint(Checkpoint(1, "stage 1", next(epochs), {}, tensors))

    return work, 1


PARTS: dict[str, Part] = {
    part.__name__: part
    for part in (update, loss, reduction, correction, memory, evaluation, checkpoint)
}


def num_new(classes: int) -> int:
    return min(1000, max(1, classes // 10))


def resident(what: str) -> float:
    """VmRSS or VmHWM (the largest so far) of this process, in MB."""
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[what].split()[0]) / 1e3


def measure(part: str, classes: int) -> dict[str, float]:
    """In this process: seconds a unit (the least of up to five times, of slow parts one) and memory."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    work, units = PARTS[part](classes)
    given = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # begins VmHWM anew
    times: list[float] = []
    processor: list[float] = []
    while len(times) < 5 and sum(times) < 2:
        began = time.perf_counter(), time.process_time()
        work()
        times.append(time.perf_counter() - began[0])
        processor.append(time.process_time() - began[1])
    peak, seconds = (
        resident("VmHWM"),
        {"seconds": min(times) / units, "processor": min(processor) / units},
    )
    return {**seconds, "working_mb": max(0.0, peak - given), "peak_mb": peak}


def measured(part: str, classes: int) -> dict[str, float]:
    """In a process of its own."""
    line = [sys.executable, __file__, "--part", part, "--classes", str(classes)]
    done = subprocess.run(
        line,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    if done.returncode:
        sys.exit(f"{part} with {classes} classes failed:\n{done.stderr}")
    return dict(json.loads(done.stdout))


def seconds_per_image(result: dict[str, Any]) -> list[float]:
    """Of stage 1, by step, from a run's result.json."""
    recipe, found = result["config"]["recipe"], []
    for step in result["steps"]:
        afresh = step["step"] == 1 or result["method"] == "joint"
        epochs = (recipe["first_epochs"] if afresh else None) or recipe["epochs"]
        found.append(step["seconds"]["stage1"] / step["num_train"] / epochs)
    return found


def draw(figures: dict[str, dict[int, dict[str, float]]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.6), layout="constrained", dpi=120)
    times, memories = figure.subplots(1, 2)
    for name, by_classes in figures.items():
        unit = PARTS[name].__doc__.rpartition("per ")[2].rstrip(".")
        times.plot(
            by_classes.keys(),
            [one["seconds"] for one in by_classes.values()],
            "o-",
            label=f"{name}, per {unit}",
        )
        memories.plot(
            by_classes.keys(),
            [max(1, one["working_mb"]) for one in by_classes.values()],
            "o-",
            label=name,
        )
    times.set(
        xscale="log", yscale="log", xlabel="classes", ylabel="seconds", title="Time, one thread"
    )
    memories.set(
        xscale="log",
        yscale="log",
        xlabel="classes",
        ylabel="MB",
        title="Memory beyond what a part is given",
    )
    for axes in (times, memories):
        axes.grid(alpha=0.25)
        axes.legend(fontsize=8, frameon=False)
    figure.savefig(path)


def report_run(folder: Path) -> bool:
    """Print seconds per training image by step; whether they are flat."""
    result = json.loads((folder / "result.json").read_text())
    found = seconds_per_image(result)
    print(f"{folder}: {result['method']}, {result['config']['recipe']['backbone']}")
    for step, seconds in zip(result["steps"], found, strict=True):
        print(
            f"  step {step['step']:3}  {step['seen']:7} classes  {1e3 * seconds:8.3f} ms per training image"
        )
    if len(found) < 3:
        return True
    ratio = found[-1] / found[1]
    print(f"  last / second: {ratio:.2f} (bar: {FLAT})")
    return ratio <= FLAT


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--classes", default="100,1000,10000,100000")
    parser.add_argument(
        "--part", choices=PARTS, help="measure one part in this process, and print JSON"
    )
    parser.add_argument("--out", type=Path, help="a folder for scale.png and scale.json")
    parser.add_argument(
        "--run", type=Path, help="a run folder, whose time per image is compared instead"
    )
    options = parser.parse_args()
    counts = [int(each) for each in options.classes.split(",")]
    if options.run is not None:
        sys.exit(not report_run(options.run))
    if options.part is not None:
        print(json.dumps(measure(options.part, counts[0])))
        return
    figures: dict[str, dict[int, dict[str, float]]] = {}
    print(
        f"{'':11} {'classes':>8} {'time':>12} {'processor':>12} {'working MB':>11} {'peak MB':>8}"
    )
    for name, part in PARTS.items():
        print(part.__doc__)
        figures[name] = {}
        for classes in counts:
            one = figures[name][classes] = measured(name, classes)
            took = f"{one['seconds'] * 1e3:9.3f} ms {one['processor'] * 1e3:9.3f} ms"
            print(
                f"{name:11} {classes:8} {took} {one['working_mb']:11.0f} {one['peak_mb']:8.0f}",
                flush=True,
            )
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        draw(figures, options.out / "scale.png")
        (options.out / "scale.json").write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
