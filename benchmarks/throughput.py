"""How near training comes to what the CPU can do, and how much time it spends elsewhere.

    python benchmarks/throughput.py [--threads N] [--rounds N] [--no-compile] [--json FILE]

Everything is measured in one run, in rounds that alternate, and given as medians with the range
over rounds. The FLOPs of an update are 3 × the student's forward pass plus the teacher's forward
pass, counted by torch. "outside" is the share of time outside of forward passes (with the losses),
backward passes and the optimiser. Rows in bfloat16 are left out on CPUs without native bfloat16.
Run it on a machine that does nothing else.
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
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from bic import RECIPES, Correction, HeldOutWarning, MemoryBudget, Progress, Recipe, fit_correction
from bic.data.batches import Batches
from bic.data.images import array_set
from bic.learn.exemplars import herd
from bic.learn.losses import Losses, distillation, old_class_weight
from bic.learn.memory import Memory, by_class, files_of
from bic.learn.methods.bic import distilling
from bic.learn.teacher import Teacher
from bic.learn.train import Training, fit
from bic.model.features import extract
from bic.model.network import Network

NUM_IMAGES = 2048
BATCH_SIZE = 128  # of the plain loop, as in the paper
NUM_OLD = 20
NUM_NEW = 20

PLAIN_LOOP = "resnet32, distilling, plain PyTorch"
COMPARED_WITH_PLAIN_LOOP = (
    "resnet32, distilling",
    "resnet32, distilling, compiled",
    "resnet32, distilling, bfloat16",
)

Times = list[tuple[float, float]]  # seconds of an epoch, and those of them outside


class Stopwatch:
    """Adds up the time of the calls that it wraps."""

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
    """Multiplications and additions of the forward pass of one image."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        copy.deepcopy(network).eval()(torch.zeros(1, 3, 32, 32, dtype=torch.uint8))
    return counter.get_total_flops()


def matrix_product(dtype: torch.dtype = torch.float32) -> float:
    """FLOP/s of a product of two square matrices."""
    left, right = torch.randn(2, 2048, 2048).to(dtype)
    seconds = median_time(lambda: left @ right, rounds=8)
    return 2 * 2048**3 / seconds


def median_time(work: Callable[[], object], rounds: int = 5) -> float:
    """The median time of a call, in seconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


class Engine:
    """fit() on random images, in a first step or in a step with a teacher."""

    def __init__(self, recipe: Recipe, *, distils: bool, compiled: bool = False) -> None:
        draws = np.random.default_rng(0)
        pixels = draws.integers(0, 256, (NUM_IMAGES, 32, 32, 3), dtype=np.uint8)
        labels = draws.integers(0, NUM_NEW, NUM_IMAGES).astype(np.int64)
        self.images = array_set(pixels, labels + NUM_OLD if distils else labels)
        self.network = Network(recipe.backbone, channels=3, image_size=32)
        self.network.prepare(self.images.take(np.arange(NUM_IMAGES)))
        self.network.head.grow(NUM_OLD if distils else NUM_NEW)
        self.flops = 3 * forward_flops(self.network)
        self.teacher: Teacher | None = None
        if distils:
            self.flops += forward_flops(self.network)
            self.teacher = Teacher(self.network, Correction(0.9, -1.0, NUM_OLD // 2))
            self.network.head.grow(NUM_NEW)
        self.recipe = recipe.model_copy(update={"epochs": 1})
        self.training = Training.start(self.network, self.recipe)
        if compiled:
            self.training.compile(self.network, self.teacher)

    def epoch(self) -> tuple[float, float]:
        """The seconds of one epoch, and those of them outside of the network."""
        inside = Stopwatch()
        self.training.epoch = 0
        teacher: Any = None if self.teacher is None else inside.wrap(self.teacher)
        backward = torch.autograd.backward
        update = self.training.optimiser.step
        forward = self.network.forward
        compiled = self.training.compiled
        torch.autograd.backward = inside.wrap(backward)
        self.training.optimiser.step = inside.wrap(update)
        self.network.forward = inside.wrap(forward)
        self.training.compiled = None if compiled is None else inside.wrap(compiled)
        start = time.perf_counter()
        try:
            batches = Batches(
                self.images,
                (0,),
                batch_size=self.recipe.batch_size,
                augmentation=self.recipe.augmentation,
            )
            fit(self.training, batches, inside.wrap(_loss), self.recipe, teacher=teacher)
        finally:
            torch.autograd.backward = backward
            self.training.optimiser.step = update
            self.network.forward = forward
            self.training.compiled = compiled
        seconds = time.perf_counter() - start
        return seconds, seconds - inside.seconds


def _loss(logits: Tensor, labels: Tensor, targets: Tensor | None) -> Losses:
    return distilling(logits, labels, targets, (NUM_OLD, NUM_NEW))


class PlainLoop:
    """A loop written by hand: two modules, images that are normalised already, no augmentation."""

    def __init__(self, backbone: str) -> None:
        self.student = Network(backbone, channels=3, image_size=32)
        self.student.head.grow(NUM_OLD)
        self.teacher = copy.deepcopy(self.student).eval().requires_grad_(False)
        self.student.head.grow(NUM_NEW)
        self.student.train()
        self.optimiser = torch.optim.SGD(
            self.student.parameters(), lr=0.01, momentum=0.9, weight_decay=2e-4
        )
        self.images = torch.randn(NUM_IMAGES, 3, 32, 32).to(memory_format=torch.channels_last)
        self.labels = torch.randint(0, NUM_OLD + NUM_NEW, (NUM_IMAGES,))

    def epoch(self) -> tuple[float, float]:
        """The seconds of one epoch, and 0: time outside of the network is not measured."""
        weight = old_class_weight(NUM_OLD, NUM_NEW)
        start = time.perf_counter()
        batches = zip(self.images.split(BATCH_SIZE), self.labels.split(BATCH_SIZE), strict=True)
        for images, labels in batches:
            with torch.no_grad():
                targets = self.teacher(images)
            logits = self.student(images)
            distilled = distillation(logits[:, :NUM_OLD], targets)
            loss = weight * distilled + (1 - weight) * F.cross_entropy(logits, labels)
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
        return time.perf_counter() - start, 0.0


def build_loops(*, has_bfloat16: bool, compiles: bool) -> dict[str, Engine | PlainLoop]:
    """Everything that is measured, by the name of its row."""
    fast = RECIPES["fast"]
    paper = RECIPES["paper-cifar100"]
    sgd = fast.optimiser.model_copy(update={"muon_rate": None})
    fast_by_sgd = fast.model_copy(update={"optimiser": sgd, "batch_size": BATCH_SIZE})
    loops: dict[str, Engine | PlainLoop] = {
        "fast, first step": Engine(fast, distils=False),
        "fast, first step, SGD, batches of 128": Engine(fast_by_sgd, distils=False),
        "fast, distilling": Engine(fast, distils=True),
        "resnet32, first step": Engine(paper, distils=False),
        "resnet32, distilling": Engine(paper, distils=True),
        PLAIN_LOOP: PlainLoop("resnet32"),
    }
    if has_bfloat16:
        fast_in_bfloat16 = fast.model_copy(update={"precision": "bfloat16"})
        paper_in_bfloat16 = paper.model_copy(update={"precision": "bfloat16"})
        loops["fast, first step, bfloat16"] = Engine(fast_in_bfloat16, distils=False)
        loops["fast, distilling, bfloat16"] = Engine(fast_in_bfloat16, distils=True)
        loops["resnet32, distilling, bfloat16"] = Engine(paper_in_bfloat16, distils=True)
    if compiles:
        loops["fast, distilling, compiled"] = Engine(fast, distils=True, compiled=True)
        loops["resnet32, distilling, compiled"] = Engine(paper, distils=True, compiled=True)
    return loops


def correction_seconds() -> float:
    """Stage 2 for 80 old and 20 new classes with two held-out images each, without forward pass."""
    draws = torch.Generator().manual_seed(0)
    labels = np.arange(100).repeat(2)
    logits = torch.randn(200, 100, generator=draws) + 3 * F.one_hot(torch.from_numpy(labels), 100)
    logits[:, 80:] += 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeldOutWarning)  # random logits may determine nothing
        return median_time(lambda: fit_correction(logits, labels, 80))


def memory_seconds(network: Network) -> tuple[float, float]:
    """Ranking and storing 100 of 500 images of 20 classes, without and with the forward passes."""
    draws = np.random.default_rng(0)
    labels = np.arange(20).repeat(500)
    images = array_set(draws.integers(0, 256, (10_000, 32, 32, 3), dtype=np.uint8), labels)
    start = time.perf_counter()
    features, _ = extract(network, images, Progress("quiet"))
    forward_seconds = time.perf_counter() - start

    def remember() -> None:
        memory = Memory(MemoryBudget(images=2000), 0.0, images.preprocessing)
        ranked = {}
        for label, members in by_class(labels).items():
            best = members[herd(features[members], 100)]
            ranked[label] = files_of(images, best)
        memory.store(ranked, {})

    seconds = median_time(remember, 3)
    return seconds, seconds + forward_seconds


def print_rows(
    loops: dict[str, Engine | PlainLoop], times: dict[str, Times], product: float
) -> dict[str, dict[str, Any]]:
    """Print a row for each loop and return its figures. `product` is in FLOP/s."""
    print(f"{'':38} {'images/s':>8} {'range':>11} {'GFLOP/s':>8} {'of product':>10} {'outside':>8}")
    figures: dict[str, dict[str, Any]] = {}
    for name, loop in loops.items():
        rates = sorted(NUM_IMAGES / seconds for seconds, _ in times[name])
        rate = statistics.median(rates)
        line = f"{name:38} {rate:8.0f} {rates[0]:5.0f}–{rates[-1]:5.0f}"
        figures[name] = {"images_per_second": rate, "range": [rates[0], rates[-1]]}
        if isinstance(loop, Engine):
            flops = rate * loop.flops
            outside = statistics.median(outside / seconds for seconds, outside in times[name])
            line += f" {flops / 1e9:8.1f} {flops / product:10.0%} {outside:8.1%}"
            figures[name] |= {"flops": flops, "of_product": flops / product, "outside": outside}
        print(line)
    return figures


def print_ratios(times: dict[str, Times], figures: dict[str, dict[str, Any]]) -> None:
    """Print how many times as fast as the plain loop the engine is, and add it to the figures."""
    for name in COMPARED_WITH_PLAIN_LOOP:
        if name not in times:
            continue
        rounds = zip(times[PLAIN_LOOP], times[name], strict=True)
        ratio = statistics.median(plain / seconds for (plain, _), (seconds, _) in rounds)
        figures[name]["times_plain"] = ratio
        print(f"\n{name}: {ratio:.2f} × the plain PyTorch loop", end="")


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

    has_bfloat16 = matrix_product(torch.bfloat16) > matrix_product()
    loops = build_loops(has_bfloat16=has_bfloat16, compiles=not options.no_compile)
    for loop in loops.values():
        loop.epoch()  # allocates, and compiles
    products: list[float] = []
    bfloat16_products: list[float] = []
    times: dict[str, Times] = {name: [] for name in loops}
    for _ in range(options.rounds):
        products.append(matrix_product())
        bfloat16_products.append(matrix_product(torch.bfloat16) if has_bfloat16 else 0.0)
        for name, loop in loops.items():
            times[name].append(loop.epoch())

    product = statistics.median(products)
    bfloat16_product = statistics.median(bfloat16_products)
    title = f"{options.threads} threads; a float32 matrix product: {product / 1e9:.0f} GFLOP/s"
    if has_bfloat16:
        title += f"; in bfloat16: {bfloat16_product / 1e9:.0f}"
    print(f"{title}\n")
    figures: dict[str, Any] = {
        "threads": options.threads,
        "matrix_product_flops": product,
        "bfloat16_product_flops": bfloat16_product,
    }
    rows = print_rows(loops, times, product)
    print_ratios(times, rows)
    network = Engine(RECIPES["fast"], distils=False).network
    stage2_seconds = correction_seconds()
    beyond, with_forward = memory_seconds(network)
    figures |= rows
    figures["correction_seconds"] = stage2_seconds
    figures["memory_seconds"] = beyond
    figures["memory_seconds_with_forward"] = with_forward
    stage2_ms = stage2_seconds * 1e3
    print(f"\n\nstage 2 for 100 classes, beyond the forward pass: {stage2_ms:.1f} ms")
    print(f"memory of a step: {beyond:.2f} s beyond the forward pass, {with_forward:.2f} s with it")
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
