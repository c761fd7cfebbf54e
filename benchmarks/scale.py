"""Time and memory of the engine's parts against the number of classes.

    python benchmarks/scale.py [--out FOLDER] [--classes 100,1000,10000,100000] [--run RUN]

Every part is measured in its own process with one thread. The script prints a table; with --out it
also draws scale.png and writes scale.json. Everything but the backbone is simulated, because the
cost of the backbone does not depend on the number of classes: features and logits are random. On a
quiet machine "time" and "processor" differ only where a part waits for the disk. "working" is the
peak memory of a part beyond its input.

--run takes a run folder instead and compares the seconds per training image of its steps. They must
not grow: those of the last step may be at most 1.25 times those of the second.
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
import pyarrow.parquet as pq
import torch

from bic import MemoryBudget, Model, Progress
from bic.data.images import array_set
from bic.learn.correction import fit_held_out
from bic.learn.exemplars import herd
from bic.learn.held_out import HeldOutLogits
from bic.learn.lesson import Checkpoint
from bic.learn.losses import classification
from bic.learn.memory import Memory, by_class, files_of
from bic.learn.methods.bic import distilling
from bic.model.evaluate import evaluate
from bic.model.network import Head
from bic.store.run_folder import RunFolder

NUM_FEATURES = 512  # as resnet18
BATCH_SIZE = 128
MAX_RATIO = 1.25  # for --run

# What a part does, and the number of units in it
Work = tuple[Callable[[], object], int]
# Number of classes → work
Part = Callable[[int], Work]
Figures = dict[str, float]


def update(num_classes: int) -> Work:
    """The head's forward and backward pass and the optimiser's update, per training image."""
    head = Head(NUM_FEATURES)
    head.grow(num_classes)
    features = torch.randn(BATCH_SIZE, NUM_FEATURES, requires_grad=True)
    labels = torch.randint(0, num_classes, (BATCH_SIZE,))
    optimiser = torch.optim.SGD(
        head.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, foreach=True
    )

    def work() -> None:
        for _ in range(3):
            optimiser.zero_grad()
            classification(head(features), labels).backward()
            optimiser.step()

    return work, 3 * BATCH_SIZE


def loss(num_classes: int) -> Work:
    """Classification and distillation from logits, forward and backward, per training image."""
    logits = torch.randn(BATCH_SIZE, num_classes, requires_grad=True)
    targets = torch.randn(BATCH_SIZE, num_classes * 9 // 10)
    labels = torch.randint(0, num_classes, (BATCH_SIZE,))

    def work() -> None:
        for _ in range(3):
            losses = distilling(logits, labels, targets, ())
            torch.stack(list(losses.values())).sum().backward()

    return work, 3 * BATCH_SIZE


def reduction(num_classes: int) -> Work:
    """Held-out logits reduced to what the correction needs, per held-out image."""
    num_images = min(BATCH_SIZE, max(32, 2**21 // num_classes))
    logits = torch.randn(num_images, num_classes)
    labels = torch.randint(0, num_classes, (num_images,))
    num_new = new_classes(num_classes)

    def work() -> None:
        HeldOutLogits(num_images, num_classes - num_new, num_new).add(logits, labels)

    return work, num_images


def correction(num_classes: int) -> Work:
    """The fit of α and β on two held-out images per class, per step."""
    num_new = new_classes(num_classes)
    draws = torch.Generator().manual_seed(0)
    held_out = HeldOutLogits(2 * (num_classes + num_new), num_classes, num_new)
    held_out.count = len(held_out.labels)
    held_out.labels = torch.arange(num_classes + num_new).repeat(2)
    held_out.new.normal_(std=2, generator=draws)
    is_new = torch.nonzero(held_out.labels >= num_classes)[:, 0]
    own_logits = (is_new, held_out.labels[is_new] - num_classes)
    held_out.new[own_logits] += 8
    held_out.old.normal_(mean=9, generator=draws)
    held_out.best_old = held_out.old - 1
    held_out.own = held_out.old - 1
    held_out.own[is_new] = held_out.new[own_logits].double()
    return lambda: fit_held_out([held_out], num_classes), 1


def memory(num_classes: int) -> Work:
    """Herding and storing a tenth of the classes, cutting all others, writing; per new class."""
    num_new = max(1, num_classes // 10)
    images_per_class = 20
    draws = np.random.default_rng(0)
    labels = np.repeat(np.arange(num_classes - num_new, num_classes), images_per_class)
    pixels = draws.integers(0, 256, (len(labels), 8, 8), dtype=np.uint8)
    images = array_set(pixels, labels)
    features = torch.randn(len(labels), 128)
    kept = Memory(MemoryBudget(images=5 * num_classes), 0.2, images.preprocessing)
    image = images.encoded(0)
    old_classes = range(num_classes - num_new)
    kept.store(
        {label: [image] * 5 for label in old_classes}, {label: [image] for label in old_classes}
    )
    folder = tempfile.TemporaryDirectory()

    def work() -> None:
        ranked = {}
        for label, rows in by_class(labels).items():
            ranked[label] = files_of(images, rows[herd(features[rows], 5)])
        kept.store(ranked, {label: [image] for label in ranked})
        pq.write_table(kept.to_table(), Path(folder.name) / "memory.parquet", compression="none")

    return work, num_new


def evaluation(num_classes: int) -> Work:
    """Logits, answers, top-5 and histograms, per test image."""
    draws = np.random.default_rng(0)
    labels = draws.permutation(np.arange(1024) * 997 % num_classes)
    test = array_set(draws.normal(size=(1024, 32)).astype(np.float32), labels)
    model = Model.fresh("mlp", test.preprocessing)
    model.classes = tuple(map(str, range(num_classes)))
    model.classes_per_step = (num_classes - num_classes // 2, num_classes // 2)
    model.network.head.grow(num_classes)
    return lambda: evaluate(model, test, test.everything, Progress("quiet")), len(test)


def checkpoint(num_classes: int) -> Work:
    """The head and its momentum, written and synced, per checkpoint."""
    tensors = {}
    for name in ("module.head.weight", "momentum.head.weight"):
        tensors[name] = torch.randn(num_classes, NUM_FEATURES)
    folder = tempfile.TemporaryDirectory()
    run_folder = RunFolder(Path(folder.name))
    epochs = count()

    def work() -> None:
        assert Path(folder.name).exists()  # keeps the folder until the work is done
        run_folder.save_checkpoint(Checkpoint(1, "stage 1", next(epochs), {}, tensors))

    return work, 1


PARTS: dict[str, Part] = {
    part.__name__: part
    for part in (update, loss, reduction, correction, memory, evaluation, checkpoint)
}


def new_classes(num_classes: int) -> int:
    return min(1000, max(1, num_classes // 10))


def resident(name: str) -> float:
    """VmRSS or VmHWM (its peak) of this process, in MB."""
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[name].split()[0]) / 1e3


def measure(part: str, num_classes: int) -> Figures:
    """Seconds per unit and memory of a part in this process.

    The time is the shortest of up to five; slow parts run once.
    """
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    work, num_units = PARTS[part](num_classes)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
    times: list[float] = []
    cpu_times: list[float] = []
    while len(times) < 5 and sum(times) < 2:
        start = time.perf_counter()
        cpu_start = time.process_time()
        work()
        times.append(time.perf_counter() - start)
        cpu_times.append(time.process_time() - cpu_start)
    peak = resident("VmHWM")
    return {
        "seconds": min(times) / num_units,
        "processor": min(cpu_times) / num_units,
        "working_mb": max(0.0, peak - before),
        "peak_mb": peak,
    }


def measured(part: str, num_classes: int) -> Figures:
    """As `measure`, in a new process."""
    command = [sys.executable, __file__, "--part", part, "--classes", str(num_classes)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        sys.exit(f"{part} with {num_classes} classes failed:\n{done.stderr}")
    return dict(json.loads(done.stdout))


def measure_all(counts: list[int]) -> dict[str, dict[int, Figures]]:
    """Measure and print every part for every number of classes."""
    columns = f"{'time':>12} {'processor':>12} {'working MB':>11} {'peak MB':>8}"
    print(f"{'':11} {'classes':>8} {columns}")
    figures: dict[str, dict[int, Figures]] = {}
    for name, part in PARTS.items():
        print(part.__doc__)
        figures[name] = {}
        for num_classes in counts:
            row = measured(name, num_classes)
            figures[name][num_classes] = row
            seconds = f"{row['seconds'] * 1e3:9.3f} ms {row['processor'] * 1e3:9.3f} ms"
            megabytes = f"{row['working_mb']:11.0f} {row['peak_mb']:8.0f}"
            print(f"{name:11} {num_classes:8} {seconds} {megabytes}", flush=True)
    return figures


def draw(figures: dict[str, dict[int, Figures]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.6), layout="constrained", dpi=120)
    times, memories = figure.subplots(1, 2)
    for name, rows in figures.items():
        unit = (PARTS[name].__doc__ or "").rpartition("per ")[2].rstrip(".")
        seconds = [row["seconds"] for row in rows.values()]
        megabytes = [max(1, row["working_mb"]) for row in rows.values()]
        times.plot(rows.keys(), seconds, "o-", label=f"{name}, per {unit}")
        memories.plot(rows.keys(), megabytes, "o-", label=name)
    times.set(ylabel="seconds", title="Time, one thread")
    memories.set(ylabel="MB", title="Memory of a part beyond its input")
    for axes in (times, memories):
        axes.set(xscale="log", yscale="log", xlabel="classes")
        axes.grid(alpha=0.25)
        axes.legend(fontsize=8, frameon=False)
    figure.savefig(path)


def seconds_per_image(result: dict[str, Any]) -> list[float]:
    """Seconds of stage 1 per training image and epoch, by step, from a run's result.json."""
    recipe = result["config"]["recipe"]
    seconds = []
    for step in result["steps"]:
        is_afresh = step["step"] == 1 or result["method"] == "joint"
        epochs = recipe["epochs"]
        if is_afresh:
            epochs = recipe["first_epochs"] or epochs
        seconds.append(step["seconds"]["stage1"] / step["num_train"] / epochs)
    return seconds


def report_run(folder: Path) -> bool:
    """Print the seconds per training image of each step. Returns whether they do not grow."""
    result = json.loads((folder / "result.json").read_text())
    seconds = seconds_per_image(result)
    print(f"{folder}: {result['method']}, {result['config']['recipe']['backbone']}")
    for step, value in zip(result["steps"], seconds, strict=True):
        classes = f"step {step['step']:3}  {step['seen']:7} classes"
        print(f"  {classes}  {1e3 * value:8.3f} ms per training image")
    if len(seconds) < 3:
        return True
    ratio = seconds[-1] / seconds[1]
    print(f"  last / second: {ratio:.2f} (bar: {MAX_RATIO})")
    return ratio <= MAX_RATIO


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--classes", default="100,1000,10000,100000")
    parser.add_argument(
        "--part", choices=PARTS, help="measure one part in this process and print JSON"
    )
    parser.add_argument("--out", type=Path, help="a folder for scale.png and scale.json")
    parser.add_argument("--run", type=Path, help="compare the steps of this run folder instead")
    options = parser.parse_args()
    counts = [int(text) for text in options.classes.split(",")]
    if options.run is not None:
        sys.exit(not report_run(options.run))
    if options.part is not None:
        print(json.dumps(measure(options.part, counts[0])))
        return
    figures = measure_all(counts)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        draw(figures, options.out / "scale.png")
        (options.out / "scale.json").write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
