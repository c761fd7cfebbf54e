"""Compiling the network: when it pays, and that it computes the same."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from support.lines import Lines
from support.toy import toy_dataset
from torch import Tensor, nn

from bic import RunConfig, run
from bic.compute.compiling import worth_compiling
from bic.model.network import Network, compiled_forward

NUM_IMAGES = 216_000
WITH_TEACHER = 4 / 3

needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None, reason="compiling needs a C++ compiler"
)


def decide(
    monkeypatch: pytest.MonkeyPatch, seconds: Callable[..., float]
) -> tuple[bool, list[str]]:
    """The decision and what is said, if `seconds` measures the time per image."""
    monkeypatch.setattr("bic.compute.compiling.seconds_per_image", seconds)
    progress = Lines()
    network = nn.Identity()
    compiles = worth_compiling(
        network,
        torch.zeros(1),
        lambda: network,
        num_images=NUM_IMAGES,
        update_cost=WITH_TEACHER,
        progress=progress,
    )
    return compiles, progress.said


def measured(*, plain: float, compiled: float | Exception) -> Callable[..., float]:
    """A measurement with known results."""

    def seconds(network: object, images: object, forward: object = None) -> float:
        if forward is None:
            return plain
        if isinstance(compiled, Exception):
            raise compiled
        return compiled

    return seconds


def test_run_too_short_to_pay_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    compiles, said = decide(monkeypatch, measured(plain=0.005, compiled=0))
    assert not compiles
    # 216,000 images of 5 ms, and a third of their time for the teacher.
    assert said == [
        "not compiling the network: about 24 min of training ahead, too short to save time"
    ]


def test_other_work_on_the_machine_does_not_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain network is timed again after compiling, in turns with the compiled one."""
    # The first time of the plain network was taken while something else ran.
    times = iter([0.05, 0.03, 0.02, 0.03, 0.02, 0.03, 0.02, 0.03])
    compiles, said = decide(monkeypatch, lambda *_: next(times))
    assert not compiles
    assert "0.67 × the speed" in said[1]


def test_long_run_compiles_if_that_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    compiles, said = decide(monkeypatch, measured(plain=0.02, compiled=0.016))
    assert compiles
    assert said[0] == "compiling the network: about 96 min of training ahead"
    assert said[1].startswith("using the compiled network: 1.25 × the speed")
    compiles, said = decide(monkeypatch, measured(plain=0.02, compiled=0.02))
    assert not compiles
    assert said[1].startswith("not using the compiled network: 1.00 × the speed")


def test_run_continues_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    compiles, said = decide(monkeypatch, measured(plain=0.02, compiled=RuntimeError("no g++")))
    assert not compiles
    reason = "the network cannot be compiled here (RuntimeError)"
    assert said[1] == f"{reason}; training without compiling"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@needs_compiler
def test_compiled_backbone_gives_the_same_logits_and_gradients_while_its_head_grows() -> None:
    torch.manual_seed(0)
    network = Network("mlp", channels=1, image_size=8).train()
    forward = compiled_forward(network)
    for num_images, num_rows in ((8, 2), (9, 3)):
        network.head.grow(num_rows)
        draws = np.random.default_rng(0)
        pixels = draws.integers(0, 256, (num_images, 1, 8, 8), dtype=np.uint8)
        images = torch.from_numpy(pixels)
        logits = forward(images)
        expected = network(images)
        torch.testing.assert_close(logits, expected)
        parameters = list(network.parameters())
        gradients = torch.autograd.grad(logits.square().sum(), parameters)
        expected_gradients = torch.autograd.grad(expected.square().sum(), parameters)
        torch.testing.assert_close(gradients, expected_gradients, rtol=1e-3, atol=1e-4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@needs_compiler
def test_run_compiles_student_and_teacher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiled: list[Network] = []

    def noted(network: Network) -> Callable[[Tensor], Tensor]:
        compiled.append(network)
        return compiled_forward(network)

    monkeypatch.setattr("bic.learn.train.compiled_forward", noted)
    config = RunConfig(
        dataset="toy",
        steps=2,
        recipe="demo",
        memory=36,
        held_out=0.25,
        epochs=1,
        compile=True,
        method="distill",
    )
    result = run(config, tmp_path / "run", data=toy_dataset(0.5))
    assert result.complete
    assert result.config["compile"]
    first, second, teacher = compiled
    assert first is not second
    assert not any(parameter.requires_grad for parameter in teacher.parameters())
