"""What a protocol costs by step: arithmetic, bytes and memory, computed and not measured.

    python benchmarks/cost_model.py [--tflops 20] [--decode 3000] [--link 10]

Counts come from the engine's own rules and its resnet18; times follow from the hardware figures in the flags, which are
assumptions: FLOP/s that a GPU sustains in training, images per second that the processors beside one GPU decode, and
GB/s that one GPU sends to the others. Prints Markdown tables for ImageNet-1000 by the paper's recipe, on one GPU and on
eight, and for two protocols with more classes.
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
SCORES_HELD = 8  # matrices of batch × classes that live at once in the losses' backward pass


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


IMAGENET = Protocol(
    "ImageNet-1000", 1000, 10, 1281, 50, 20_000, 110_000
)  # 1,281,167 images, 140 GB
MANY = Protocol("100,000 classes", 100_000, 10, 50, 5, 500_000, 20_000, held_out=0.2)
MORE = Protocol("1,000,000 classes", 1_000_000, 10, 50, 5, 5_000_000, 20_000, held_out=0.2)


@dataclass(frozen=True)
class Step:
    """What one step has to go through, in classes and images."""

    num_old: int
    num_new: int
    trained_new: int
    trained_old: int
    held_out: int
    tested: int

    @property
    def trained(self) -> int:
        return self.trained_new + self.trained_old


def steps(protocol: Protocol) -> list[Step]:
    """By the rules of the memory: K // n exemplars for each of n old classes, h = max(1, ⌊f·k⌋) of them held out."""
    new, found = protocol.classes // protocol.steps, []
    for number in range(protocol.steps):
        old = number * new
        kept = min(protocol.memory // (old or new), protocol.train_per_class)
        held = max(1, math.floor(protocol.held_out * kept + 1e-9))
        trained_new, trained_old = new * (protocol.train_per_class - held), old * (kept - held)
        tested = protocol.test_per_class * (old + new)
        found.append(Step(old, new, trained_new, trained_old, held * (old + new), tested))
    return found


@dataclass(frozen=True)
class Backbone:
    """A backbone's size and what one image takes in it."""

    flops: int  # of the forward pass
    parameters: int
    features: int
    activations: int  # numbers kept for the backward pass

    @classmethod
    def measured(cls, name: str, size: int) -> "Backbone":
        network, kept = Network(name, channels=3, image_size=size), 0

        def count(module: nn.Module, _: object, output: Tensor) -> None:
            nonlocal kept
            kept += 0 if isinstance(module, nn.ReLU) else output.numel()  # in place

        for module in network.backbone.modules():
            if not list(module.children()):
                module.register_forward_hook(count)
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            network.backbone.eval()(torch.zeros(1, 3, size, size))
        parameters = sum(each.numel() for each in network.backbone.parameters())
        return cls(counter.get_total_flops(), parameters, network.num_features, kept)


@dataclass(frozen=True)
class Hardware:
    """Assumptions."""

    flops: float  # sustained, of one GPU
    decode: float  # images/s, beside one GPU
    link: float  # bytes/s, from one GPU


@dataclass(frozen=True)
class Cost:
    """Of one step."""

    flops: float
    read: float  # bytes from the disk; exemplars are in memory
    sent: float  # bytes by each GPU
    gpu_memory: float
    host_memory: (
        float  # in each process: exemplars, and the held-out images' logits of the new classes
    )
    seconds: float
    bound: str  # what decides the seconds


def cost(protocol: Protocol, step: Step, body: Backbone, hardware: Hardware, gpus: int) -> Cost:
    seen, images = step.num_old + step.num_new, protocol.epochs * step.trained
    student, teacher = (
        body.flops + 2 * body.features * classes for classes in (seen, step.num_old)
    )
    looked_at = (
        step.held_out * bool(step.num_old) + step.trained_new + step.tested
    )  # correction, herding, evaluation
    flops = images * (3 * student + teacher * bool(step.num_old)) + looked_at * student
    head = (body.features + 1) * seen
    updates = images / protocol.batch
    # A ring: every gradient goes round twice, but for the share that is there already.
    sent = updates * 2 * (gpus - 1) / gpus * FLOAT * (body.parameters + head)
    # Weights, gradient, momentum and gathered gradients; the teacher and its folded backbone; a batch's share.
    weights = FLOAT * ((3 + (gpus > 1)) * (body.parameters + head) + 2 * body.parameters + head)
    share = protocol.batch / gpus
    gpu_memory = weights + FLOAT * share * (body.activations + SCORES_HELD * seen)
    times = {
        "arithmetic": flops / gpus / hardware.flops,
        "decoding": (images + looked_at) / gpus / hardware.decode,
        "network": sent / hardware.link,
    }
    bound = max(times, key=lambda name: times[name])
    read = protocol.image_bytes * (
        protocol.epochs * step.trained_new + step.trained_new + step.tested
    )
    host_memory = (
        protocol.image_bytes * protocol.memory
        + FLOAT * step.held_out * step.num_new * bool(step.num_old)
    )
    return Cost(flops, read, sent, gpu_memory, host_memory, times[bound], bound)


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    names = list(header)
    yield "| " + " | ".join(names) + " |"
    yield "|" + "---|" * len(names)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def report(protocol: Protocol, body: Backbone, hardware: Hardware, gpus: int) -> None:
    every = steps(protocol)
    found = [cost(protocol, step, body, hardware, gpus) for step in every]
    total = sum(one.seconds for one in found) / 3600
    print(f"\n{protocol.name}, {gpus} GPU{'s' * (gpus > 1)}: {total:.0f} h in all\n")
    header = [
        "step",
        "old + new",
        "trained on",
        "held out",
        "PFLOP",
        "read TB",
        "sent TB",
        "GPU GB",
        "host GB",
        "h",
        "by",
    ]
    rows = [
        [
            *(
                str(number),
                f"{step.num_old:,} + {step.num_new:,}",
                f"{step.trained:,}",
                f"{step.held_out:,}",
            ),
            *(f"{one.flops / 1e15:,.0f}", f"{one.read / 1e12:,.1f}", f"{one.sent / 1e12:,.1f}"),
            *(
                f"{one.gpu_memory / 1e9:.1f}",
                f"{one.host_memory / 1e9:.1f}",
                f"{one.seconds / 3600:,.1f}",
                one.bound,
            ),
        ]
        for number, (step, one) in enumerate(zip(every, found, strict=True), start=1)
        if number in (1, 2, 5, len(every))
    ]
    print("\n".join(table(header, rows)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tflops", type=float, default=20, help="that a GPU sustains in training")
    parser.add_argument(
        "--decode", type=float, default=3000, help="images/s decoded beside one GPU"
    )
    parser.add_argument("--link", type=float, default=10, help="GB/s from one GPU to the others")
    options = parser.parse_args()
    body = Backbone.measured("resnet18", 224)
    hardware = Hardware(options.tflops * 1e12, options.decode, options.link * 1e9)
    size = f"{body.flops / 1e9:.2f} GFLOP forward, {body.parameters / 1e6:.1f} M parameters"
    print(
        f"resnet18 at 224 × 224: {size}, {FLOAT * body.activations / 1e6:.0f} MB of activations an image"
    )
    for protocol, gpus in ((IMAGENET, 1), (IMAGENET, 8), (MANY, 8), (MORE, 8)):
        report(protocol, body, hardware, gpus)


if __name__ == "__main__":
    main()
