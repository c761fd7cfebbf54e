"""How near the engine's training comes to what the processor can do, and what it spends elsewhere.

    python benchmarks/throughput.py [--threads N] [--rounds N] [--json FILE]

Everything is measured in one run, in rounds that take turns, and given as medians with the range over rounds. FLOPs of
an update are 3 × the student's forward pass plus the teacher's forward pass, counted by torch. "outside" is the share
of time in none of forward passes (with the losses), backward pass and optimiser. Rows in bfloat16 are left out where
the processor multiplies it no faster than float32. Wants a quiet machine.
"""

import argparse
import copy
import json
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from bic.compute.compiling import compile_training
from bic.data.batches import Batches
from bic.data.images import array_set
from bic.errors import HeldOutWarning
from bic.learn.config import MemoryBudget, Recipe
from bic.learn.correction import Correction, fit_correction
from bic.learn.losses import distillation, old_class_weight
from bic.learn.memory import Memory, by_class, files_of, herd
from bic.learn.methods.bic import distilling
from bic.learn.recipes import RECIPES
from bic.learn.train import Teacher, Training, fit
from bic.model.model import extract
from bic.model.network import Network
from bic.progress import Progress

IMAGES, BATCH = 2048, 128  # BATCH: of the plain loop, as in the paper
OLD, NEW = 20, 20


class Stopwatch:
    """Adds up the time spent in the calls it wraps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            result = call(*args, **kwargs)
            self.seconds += time.perf_counter() - start
            return result

        return timed


def forward_flops(network: nn.Module) -> int:
    """Multiplications and additions of one image's forward pass."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        copy.deepcopy(network).eval()(torch.zeros(1, 3, 32, 32, dtype=torch.uint8))
    return counter.get_total_flops()


def matrix_product(dtype: torch.dtype = torch.float32) -> float:
    """FLOP/s of a product of two square matrices."""
    one, two = torch.randn(2, 2048, 2048).to(dtype)
    times = []
    for _ in range(8):
        start = time.perf_counter()
        one @ two
        times.append(time.perf_counter() - start)
    return 2 * 2048**3 / statistics.median(times)


class Engine:
    """The engine's own fit() on random images, in the first step or in one with a teacher."""

    def __init__(self, recipe: Recipe, *, distils: bool, compiled: bool = False) -> None:
        draws = np.random.default_rng(0)
        pixels = draws.integers(0, 256, (IMAGES, 32, 32, 3), dtype=np.uint8)
        self.images = array_set(
            pixels, draws.integers(0, NEW, IMAGES).astype(np.int64) + (OLD if distils else 0)
        )
        self.network = Network(recipe.backbone, channels=3, image_size=32)
        self.network.prepare(self.images.take(np.arange(IMAGES)))
        self.network.head.grow(OLD if distils else NEW)
        self.teacher = Teacher(self.network, Correction(0.9, -1.0, OLD // 2)) if distils else None
        self.flops = 3 * forward_flops(self.network) + (
            forward_flops(self.network) if distils else 0
        )
        if distils:
            self.network.head.grow(NEW)
        self.recipe = recipe.model_copy(update={"epochs": 1})
        self.training = Training.start(self.network, self.recipe)
        if compiled:
            compile_training(self.training, self.network, self.teacher)

    def epoch(self) -> tuple[float, float]:
        """Seconds of one epoch, and of those the seconds outside the network."""
        inside = Stopwatch()
        self.training.epoch = 0
        teacher: Any = None if self.teacher is None else inside.wrap(self.teacher)
        backward, step, forward = (
            torch.autograd.backward,
            self.training.optimiser.step,
            self.network.forward,
        )
        compiled = self.training.compiled
        torch.autograd.backward = inside.wrap(backward)
        self.training.optimiser.step = inside.wrap(step)
        self.network.forward = inside.wrap(forward)
        self.training.compiled = None if compiled is None else inside.wrap(compiled)
        loss = inside.wrap(
            lambda logits, labels, targets: distilling(logits, labels, targets, (OLD, NEW))
        )
        start = time.perf_counter()
        try:
            fit(
                self.training,
                Batches(self.images, self.recipe, (0,)),
                loss,
                self.recipe,
                teacher=teacher,
            )
        finally:
            torch.autograd.backward, self.training.optimiser.step = backward, step
            self.network.forward, self.training.compiled = forward, compiled
        seconds = time.perf_counter() - start
        return seconds, seconds - inside.seconds


class PlainLoop:
    """What one would write by hand: student and teacher as modules, normalised images on hand, nothing augmented."""

    def __init__(self, backbone: str) -> None:
        self.student = Network(backbone, channels=3, image_size=32)
        self.student.head.grow(OLD)
        self.teacher = copy.deepcopy(self.student).eval().requires_grad_(False)
        self.student.head.grow(NEW)
        self.student.train()
        self.optimiser = torch.optim.SGD(
            self.student.parameters(), lr=0.01, momentum=0.9, weight_decay=2e-4
        )
        self.images = torch.randn(IMAGES, 3, 32, 32).to(memory_format=torch.channels_last)
        self.labels = torch.randint(0, OLD + NEW, (IMAGES,))

    def epoch(self) -> tuple[float, float]:
        weight = old_class_weight(OLD, NEW)
        start = time.perf_counter()
        for images, labels in zip(self.images.split(BATCH), self.labels.split(BATCH), strict=True):
            with torch.no_grad():
                targets = self.teacher(images)
            logits = self.student(images)
            loss = weight * distillation(logits[:, :OLD], targets) + (1 - weight) * F.cross_entropy(
                logits, labels
            )
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
        return time.perf_counter() - start, 0.0


def median_time(work: Callable[[], object], rounds: int = 5) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def correction_seconds() -> float:
    """Stage 2 for 80 old and 20 new classes, two held-out images each, without the forward pass."""
    draws = torch.Generator().manual_seed(0)
    labels = np.arange(100).repeat(2)
    logits = torch.randn(200, 100, generator=draws) + 3 * F.one_hot(torch.from_numpy(labels), 100)
    logits[:, 80:] += 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeldOutWarning)  # random logits may well settle nothing
        return median_time(lambda: fit_correction(logits, labels, 80))


def memory_seconds(network: Network) -> tuple[float, float]:
    """Ranking and storing 20 classes of 500 images, 100 of each: without and with the forward passes."""
    draws = np.random.default_rng(0)
    labels = np.arange(20).repeat(500)
    images = array_set(draws.integers(0, 256, (10_000, 32, 32, 3), dtype=np.uint8), labels)
    forward = time.perf_counter()
    features, _ = extract(network, images, Progress("quiet"))
    forward = time.perf_counter() - forward

    def remember() -> None:
        memory = Memory(MemoryBudget(images=2000), 0.0, images.preprocessing)
        ranked = {label: own[herd(features[own], 100)] for label, own in by_class(labels).items()}
        memory.store(
            {label: files_of(images, best) for label, best in ranked.items()},
            {label: [] for label in ranked},
        )

    beyond = median_time(remember, 3)
    return beyond, beyond + forward


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-compile", action="store_true", help="leave out the compiled rows")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    fast, paper = (Recipe(name=name, **RECIPES[name]) for name in ("fast", "paper-cifar100"))
    by_sgd = fast.model_copy(update={"muon_rate": None, "batch_size": BATCH})
    loops: dict[str, Engine | PlainLoop] = {
        "fast, first step": Engine(fast, distils=False),
        "fast, first step, SGD, batches of 128": Engine(by_sgd, distils=False),
        "fast, distilling": Engine(fast, distils=True),
        "resnet32, first step": Engine(paper, distils=False),
        "resnet32, distilling": Engine(paper, distils=True),
        "resnet32, distilling, plain PyTorch": PlainLoop("resnet32"),
    }
    if has_bfloat16 := matrix_product(torch.bfloat16) > matrix_product():
        in_bfloat16 = {"precision": "bfloat16"}
        loops["fast, first step, bfloat16"] = Engine(
            fast.model_copy(update=in_bfloat16), distils=False
        )
        loops["fast, distilling, bfloat16"] = Engine(
            fast.model_copy(update=in_bfloat16), distils=True
        )
        loops["resnet32, distilling, bfloat16"] = Engine(
            paper.model_copy(update=in_bfloat16), distils=True
        )
    if not options.no_compile:
        loops["fast, distilling, compiled"] = Engine(fast, distils=True, compiled=True)
        loops["resnet32, distilling, compiled"] = Engine(paper, distils=True, compiled=True)
    for loop in loops.values():
        loop.epoch()  # allocation, and compilation
    products: list[float] = []
    bfloat16_products: list[float] = []
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in loops}
    for _ in range(options.rounds):
        products.append(matrix_product())
        bfloat16_products.append(matrix_product(torch.bfloat16) if has_bfloat16 else 0.0)
        for name, loop in loops.items():
            times[name].append(loop.epoch())

    product = statistics.median(products)
    print(
        f"{options.threads} threads; a float32 matrix product: {product / 1e9:.0f} GFLOP/s", end=""
    )
    print(
        f"; in bfloat16: {statistics.median(bfloat16_products) / 1e9:.0f}\n"
        if has_bfloat16
        else "\n"
    )
    print(f"{'':38} {'images/s':>8} {'range':>11} {'GFLOP/s':>8} {'of product':>10} {'outside':>8}")
    figures: dict[str, Any] = {"threads": options.threads, "matrix_product_flops": product}
    figures["bfloat16_product_flops"] = statistics.median(bfloat16_products)
    for name, loop in loops.items():
        rates = sorted(IMAGES / seconds for seconds, _ in times[name])
        rate, outside = (
            statistics.median(rates),
            statistics.median(out / seconds for seconds, out in times[name]),
        )
        line = f"{name:38} {rate:8.0f} {rates[0]:5.0f}–{rates[-1]:5.0f}"
        figures[name] = {"images_per_second": rate, "range": [rates[0], rates[-1]]}
        if isinstance(loop, Engine):
            figures[name] |= {
                "flops": rate * loop.flops,
                "of_product": rate * loop.flops / product,
                "outside": outside,
            }
            line += f" {rate * loop.flops / 1e9:8.1f} {rate * loop.flops / product:10.0%} {outside:8.1%}"
        print(line)
    for name in (
        "resnet32, distilling",
        "resnet32, distilling, compiled",
        "resnet32, distilling, bfloat16",
    ):
        if name in times:
            ratio = statistics.median(
                plain / ours
                for (plain, _), (ours, _) in zip(
                    times["resnet32, distilling, plain PyTorch"], times[name], strict=True
                )
            )
            figures[name]["times_plain"] = ratio
            print(f"\n{name}: {ratio:.2f} × the plain PyTorch loop", end="")
    figures["correction_seconds"] = correction_seconds()
    figures["memory_seconds"], figures["memory_seconds_with_forward"] = memory_seconds(
        Engine(fast, distils=False).network
    )
    print(
        f"\n\nstage 2 for 100 classes, beyond the forward pass: {figures['correction_seconds'] * 1e3:.1f} ms"
    )
    with_forward = figures["memory_seconds_with_forward"]
    print(
        f"memory of a step: {figures['memory_seconds']:.2f} s beyond the forward pass, {with_forward:.2f} s with it"
    )
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
