"""The cost of teaching a model ten new classes, against the number of classes that it knows.

    python benchmarks/learn_cost.py [--classes 10,100,1000,10000] [--cut] [--json FILE]

For each number of known classes, a model folder is made with made-up images of 8 × 8 pixels, a
small network, one epoch and four exemplars per class. Then one process learns ten classes of 20
images, and another one predicts one image. The script prints CPU time, because other programs
disturb it less than the time on the clock, for each part of a learn; then the bytes written and the
peak memory. The last column is the ratio of the last two numbers of classes. If these differ by a
factor of 10, a ratio of 10 means proportional to the classes, as head and memory are. Every process
has one thread.

With --cut the memory is full, and every known class gives up an exemplar.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bic.learn.step
import bic.store.learn_folder
import bic.store.teaching
from bic import open_model
from bic.learn.learner import Learner
from bic.store.teaching import Teaching

NEW_CLASSES = 10
NEW_IMAGES = 20  # of each new class
KNOWN_IMAGES = 6  # of each known class
EXEMPLARS = 4  # of each class
SIZE = 8

Figures = dict[str, dict[str, float]]

# The parts of a learn, and the functions that belong to them. A part excludes parts inside it.
PARTS: dict[str, list[tuple[Any, str]]] = {
    "opening": [(bic.store.learn_folder, "_opened"), (Teaching, "__init__")],
    "reading images": [(Teaching, "read")],
    "training": [(bic.learn.step, "train_network")],
    "stage 2 and memory": [(Learner, "learn")],
    "calibration and gate": [(Learner, "calibrate"), (bic.store.teaching, "judge")],
    "writing": [(Teaching, "_store"), (bic.store.learn_folder, "_finished")],
    "rest": [],
}


class Meter:
    """Divides the CPU time and the written bytes of this process among parts."""

    def __init__(self) -> None:
        self.figures: Figures = {part: {"seconds": 0.0, "bytes": 0.0} for part in PARTS}
        self.running = ["rest"]
        self.last = (time.process_time(), written_bytes())

    def charge(self) -> None:
        """Charge the part that runs with what was used since the last call."""
        now = (time.process_time(), written_bytes())
        figures = self.figures[self.running[-1]]
        figures["seconds"] += now[0] - self.last[0]
        figures["bytes"] += now[1] - self.last[1]
        self.last = now

    def measured(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its cost charged to the part."""

        def call(*arguments: Any, **options: Any) -> Any:
            self.charge()
            self.running.append(part)
            try:
                return function(*arguments, **options)
            finally:
                self.charge()
                self.running.pop()

        return call


def written_bytes() -> int:
    """The bytes that this process has handed to the system to write."""
    lines = dict(line.split(":") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["wchar"])


def peak_mb() -> float:
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) / 1e3


def made_images(first: int, num_classes: int, num_images: int) -> tuple[Any, list[str]]:
    """Noisy images of classes that each have a pattern, and the names of their classes."""
    draws = np.random.default_rng(first)
    patterns = draws.integers(0, 256, (num_classes, 1, SIZE, SIZE))
    noise = draws.integers(-20, 21, (num_classes, num_images, SIZE, SIZE))
    images = np.clip(patterns + noise, 0, 255).astype(np.uint8)
    names = [f"class {label}" for label in range(first, first + num_classes)]
    return images.reshape(-1, SIZE, SIZE), [name for name in names for _ in range(num_images)]


def make(folder: Path, num_known: int, *, cut: bool) -> None:
    """Make a model folder with known classes."""
    room = num_known if cut else num_known + NEW_CLASSES
    model = open_model(
        folder, recipe="demo", backbone="mlp", epochs=1, memory=EXEMPLARS * room, held_out=0.25
    )
    model.learn(*made_images(0, num_known, KNOWN_IMAGES))


def learn(folder: Path, num_known: int) -> Figures:
    """Learn ten classes in this process, and return the cost of each part."""
    images, names = made_images(num_known, NEW_CLASSES, NEW_IMAGES)
    meter = Meter()
    for part, places in PARTS.items():
        for owner, name in places:
            setattr(owner, name, meter.measured(part, getattr(owner, name)))
    start = meter.last
    open_model(folder).learn(images, names, force=True)
    meter.charge()
    used = {"seconds": meter.last[0] - start[0], "bytes": meter.last[1] - start[1]}
    return {**meter.figures, "in all": {**used, "peak_mb": peak_mb()}}


def predict(folder: Path) -> Figures:
    """Open the folder in this process and predict one image, then another one."""
    image = made_images(0, 1, 1)[0]
    model = open_model(folder)
    start = time.process_time()
    model.predict(image)
    opened = time.process_time()
    model.predict(image)
    return {
        "predict: opening and one image": {
            "seconds": opened - start,
            "bytes": 0.0,
            "peak_mb": peak_mb(),
        },
        "predict: one more image": {"seconds": time.process_time() - opened, "bytes": 0.0},
    }


def in_process(action: str, folder: Path, num_known: int, *, cut: bool) -> Figures:
    """What an action returns, in a new process."""
    command = [sys.executable, __file__, "--action", action, "--folder", str(folder)]
    command += ["--classes", str(num_known), *(["--cut"] if cut else [])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        sys.exit(f"{action} with {num_known} known classes failed:\n{done.stderr}")
    return dict(json.loads(done.stdout))


def measure(num_known: int, folder: Path, *, cut: bool) -> Figures:
    """Make a model folder, learn and predict."""
    in_process("make", folder, num_known, cut=cut)
    figures = in_process("learn", folder, num_known, cut=cut)
    return {**figures, **in_process("predict", folder, num_known, cut=cut)}


def print_table(figures: dict[int, Figures]) -> None:
    """Print the seconds of every part, then bytes written and peak memory."""
    counts = list(figures)
    heading = "".join(f"{count:>12,}" for count in counts)
    print(f"{'CPU seconds':32}{heading}{'ratio':>10}")
    for part in figures[counts[0]]:
        seconds = [figures[count][part]["seconds"] for count in counts]
        cells = "".join(f"{value:12.3f}" for value in seconds)
        ratio = ""
        if len(seconds) > 1 and seconds[-2] > 0:
            ratio = f"{seconds[-1] / seconds[-2]:10.1f}"
        print(f"{part:32}{cells}{ratio}")
    for title, name, scale in (("MB written", "bytes", 1e-6), ("peak MB", "peak_mb", 1.0)):
        values = [scale * figures[count]["in all"][name] for count in counts]
        cells = "".join(f"{value:12.2f}" for value in values)
        ratio = f"{values[-1] / values[-2]:10.1f}" if len(values) > 1 else ""
        print(f"{title:32}{cells}{ratio}")


def act(action: str, folder: Path, num_known: int, *, cut: bool) -> None:
    """Run one action in this process and print its figures as JSON."""
    torch.set_num_threads(1)
    if action == "make":
        make(folder, num_known, cut=cut)
        print("{}")
    elif action == "learn":
        print(json.dumps(learn(folder, num_known)))
    else:
        print(json.dumps(predict(folder)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--classes", default="10,100,1000,10000")
    parser.add_argument("--cut", action="store_true", help="every known class loses an exemplar")
    parser.add_argument("--json", type=Path, help="a file to write the figures to")
    parser.add_argument("--action", choices=("make", "learn", "predict"), help="in this process")
    parser.add_argument("--folder", type=Path, help="the model folder of --action")
    options = parser.parse_args()
    counts = [int(text) for text in options.classes.split(",")]
    if options.action is not None:
        act(options.action, options.folder, counts[0], cut=options.cut)
        return
    figures = {}
    for num_known in counts:
        with tempfile.TemporaryDirectory() as folder:
            figures[num_known] = measure(num_known, Path(folder) / "model", cut=options.cut)
    print_table(figures)
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
