"""What each step of a protocol costs: arithmetic, bytes and memory, computed and not measured.

    python benchmarks/cost_model.py [--tflops 20] [--decode 3000] [--link 10]

Counts follow from the engine's rules and its resnet18. Times follow from the hardware figures in
the flags, which are assumptions: the FLOP/s that a GPU sustains in training, the images per second
that the CPUs beside one GPU decode, and the GB/s that one GPU sends to the others. Prints Markdown
tables for ImageNet-1000 by the paper's recipe, on one GPU and on eight, and for two protocols with
more classes.
"""

import argparse
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from bic.model.network import Network

FLOAT = 4  # bytes
LOGITS_HELD = 8  # matrices [batch, classes] that exist at once in the backward pass of the losses
SHOWN_STEPS = (1, 2, 5)  # and the last


@dataclass(frozen=True)
class Protocol:
    name: str
    classes: int
    steps: int
    train_per_class: int
    test_per_class: int
    memory: int  # K, in images
    image_bytes: int  # of an encoded image
    held_out: float = 0.1
    epochs: int = 100
    batch: int = 256


# 1,281,167 images, 140 GB.
IMAGENET = Protocol("ImageNet-1000", 1000, 10, 1281, 50, 20_000, 110_000)
MANY = Protocol("100,000 classes", 100_000, 10, 50, 5, 500_000, 20_000, held_out=0.2)
MORE = Protocol("1,000,000 classes", 1_000_000, 10, 50, 5, 5_000_000, 20_000, held_out=0.2)


@dataclass(frozen=True)
class Step:
    """The classes and images of one step."""

    num_old: int
    num_new: int
    trained_new: int
    trained_old: int
    held_out: int
    tested: int

    @property
    def num_seen(self) -> int:
        return self.num_old + self.num_new

    @property
    def trained(self) -> int:
        return self.trained_new + self.trained_old


def steps(protocol: Protocol) -> list[Step]:
    """The memory's rules: K // n exemplars for each of n old classes, max(1, ⌊f·k⌋) held out."""
    num_new = protocol.classes // protocol.steps
    every_step = []
    for number in range(protocol.steps):
        num_old = number * num_new
        kept = min(protocol.memory // (num_old or num_new), protocol.train_per_class)
        held_out = max(1, math.floor(protocol.held_out * kept + 1e-9))
        every_step.append(
            Step(
                num_old=num_old,
                num_new=num_new,
                trained_new=num_new * (protocol.train_per_class - held_out),
                trained_old=num_old * (kept - held_out),
                held_out=held_out * (num_old + num_new),
                tested=protocol.test_per_class * (num_old + num_new),
            )
        )
    return every_step


@dataclass(frozen=True)
class Backbone:
    """The size of a backbone, and its cost for one image."""

    flops: int  # of the forward pass
    parameters: int
    features: int
    activations: int  # numbers kept for the backward pass

    @classmethod
    def measured(cls, name: str, size: int) -> "Backbone":
        network = Network(name, channels=3, image_size=size)
        activations = 0

        def count(module: nn.Module, _: object, output: Tensor) -> None:
            nonlocal activations
            if not isinstance(module, nn.ReLU):  # it works in place
                activations += output.numel()

        for module in network.backbone.modules():
            if not list(module.children()):
                module.register_forward_hook(count)
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            network.backbone.eval()(torch.zeros(1, 3, size, size))
        parameters = sum(weight.numel() for weight in network.backbone.parameters())
        return cls(counter.get_total_flops(), parameters, network.num_features, activations)


@dataclass(frozen=True)
class Hardware:
    """Assumptions."""

    flops: float  # sustained, of one GPU
    decode: float  # images/s, beside one GPU
    link: float  # bytes/s, from one GPU


@dataclass(frozen=True)
class Cost:
    """The cost of one step."""

    flops: float
    read: float  # bytes from the disk; exemplars are in memory
    sent: float  # bytes by each GPU
    gpu_memory: float
    host_memory: float  # of each process: exemplars, and held-out logits of the new classes
    seconds: float
    bound: str  # what decides the seconds


def cost(protocol: Protocol, step: Step, backbone: Backbone, hardware: Hardware, gpus: int) -> Cost:
    has_old = bool(step.num_old)
    images = protocol.epochs * step.trained
    student = backbone.flops + 2 * backbone.features * step.num_seen
    teacher = backbone.flops + 2 * backbone.features * step.num_old
    # One forward pass each for the correction, herding and evaluation.
    forward_only = step.held_out * has_old + step.trained_new + step.tested
    flops = images * (3 * student + teacher * has_old) + forward_only * student
    head = (backbone.features + 1) * step.num_seen
    updates = images / protocol.batch
    # A ring: every gradient goes round twice, except for the shard that is there already.
    sent = updates * 2 * (gpus - 1) / gpus * FLOAT * (backbone.parameters + head)
    # Weights, gradients, momentum and gathered gradients; the teacher and its folded backbone.
    num_copies = 3 + (gpus > 1)
    student_weights = num_copies * (backbone.parameters + head)
    weights = FLOAT * (student_weights + 2 * backbone.parameters + head)
    shard = protocol.batch / gpus
    activations = FLOAT * shard * (backbone.activations + LOGITS_HELD * step.num_seen)
    times = {
        "arithmetic": flops / gpus / hardware.flops,
        "decoding": (images + forward_only) / gpus / hardware.decode,
        "network": sent / hardware.link,
    }
    bound = max(times, key=lambda name: times[name])
    num_read = protocol.epochs * step.trained_new + step.trained_new + step.tested
    held_out_logits = FLOAT * step.held_out * step.num_new * has_old
    return Cost(
        flops=flops,
        read=protocol.image_bytes * num_read,
        sent=sent,
        gpu_memory=weights + activations,
        host_memory=protocol.image_bytes * protocol.memory + held_out_logits,
        seconds=times[bound],
        bound=bound,
    )


COLUMNS = (
    *("step", "old + new", "trained on", "held out", "PFLOP", "read TB", "sent TB"),
    *("GPU GB", "host GB", "h", "by"),
)


def cells(number: int, step: Step, cost: Cost) -> list[str]:
    """One row of the table, as COLUMNS."""
    return [
        str(number),
        f"{step.num_old:,} + {step.num_new:,}",
        f"{step.trained:,}",
        f"{step.held_out:,}",
        f"{cost.flops / 1e15:,.0f}",
        f"{cost.read / 1e12:,.1f}",
        f"{cost.sent / 1e12:,.1f}",
        f"{cost.gpu_memory / 1e9:.1f}",
        f"{cost.host_memory / 1e9:.1f}",
        f"{cost.seconds / 3600:,.1f}",
        cost.bound,
    ]


def table(rows: Iterable[Iterable[str]]) -> Iterator[str]:
    yield "| " + " | ".join(COLUMNS) + " |"
    yield "|" + "---|" * len(COLUMNS)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def report(protocol: Protocol, backbone: Backbone, hardware: Hardware, gpus: int) -> None:
    rows = []
    seconds = 0.0
    for number, step in enumerate(steps(protocol), start=1):
        step_cost = cost(protocol, step, backbone, hardware, gpus)
        seconds += step_cost.seconds
        if number in (*SHOWN_STEPS, protocol.steps):
            rows.append(cells(number, step, step_cost))
    plural = "s" if gpus > 1 else ""
    print(f"\n{protocol.name}, {gpus} GPU{plural}: {seconds / 3600:.0f} h in all\n")
    print("\n".join(table(rows)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tflops", type=float, default=20, help="TFLOP/s of a GPU in training")
    parser.add_argument(
        "--decode", type=float, default=3000, help="images/s decoded beside one GPU"
    )
    parser.add_argument("--link", type=float, default=10, help="GB/s from one GPU to the others")
    options = parser.parse_args()
    backbone = Backbone.measured("resnet18", 224)
    hardware = Hardware(options.tflops * 1e12, options.decode, options.link * 1e9)
    size = f"{backbone.flops / 1e9:.2f} GFLOP forward, {backbone.parameters / 1e6:.1f} M parameters"
    activations = f"{FLOAT * backbone.activations / 1e6:.0f} MB of activations an image"
    print(f"resnet18 at 224 × 224: {size}, {activations}")
    for protocol, gpus in ((IMAGENET, 1), (IMAGENET, 8), (MANY, 8), (MORE, 8)):
        report(protocol, backbone, hardware, gpus)


if __name__ == "__main__":
    main()
