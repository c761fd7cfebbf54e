"""Compiling the network: when it is chosen, that it is recorded, and that it learns the same."""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from support.toy import toy_dataset

from bic import Dataset, RunConfig, run
from bic.compute.compiling import _images_ahead, compiled_forward, worth_compiling
from bic.learn.recipes import make_plan
from bic.model.network import Network
from bic.progress import Progress


class Lines(Progress):
    """What is said."""

    def __init__(self) -> None:
        super().__init__("quiet")
        self.said: list[str] = []

    def say(self, line: str) -> None:
        self.said.append(line)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return toy_dataset(0.5)


def config(**changes: object) -> RunConfig:
    plain = {
        "dataset": "toy",
        "steps": 3,
        "recipe": "demo",
        "memory": 36,
        "held_out": 0.25,
        "epochs": 1,
    }
    return RunConfig.model_validate({**plain, **changes})


def decide(
    monkeypatch: pytest.MonkeyPatch,
    dataset: Dataset,
    *,
    epochs: int,
    plain: float,
    quick: float | Exception,
) -> tuple[bool, list[str]]:
    """The decision, and what is said, where an image takes so many seconds."""

    def seconds(network: object, images: object, forward: object = None) -> float:
        if forward is not None and isinstance(quick, Exception):
            raise quick
        return plain if forward is None else quick  # type: ignore[return-value]

    monkeypatch.setattr("bic.compute.compiling.seconds_per_image", seconds)
    monkeypatch.setattr("bic.compute.compiling.compiled_forward", lambda network: network)
    monkeypatch.setattr("bic.compute.compiling.FEW_PIXELS", 200_000 * 8**2)
    progress = Lines()
    return worth_compiling(
        make_plan(config(epochs=epochs), dataset), dataset, progress, "cpu"
    ), progress.said


def test_images_ahead_are_counted(dataset: Dataset) -> None:
    # 6 classes of 24 images, and a memory of 36 in two later steps, ten times.
    assert _images_ahead(make_plan(config(epochs=10), dataset), dataset) == 10 * (6 * 24 + 2 * 36)
    # No more exemplars than there are images; of a budget in bytes, as many as fit: 64 bytes and a little each.
    everything = make_plan(config(epochs=10, memory=10_000), dataset)
    assert _images_ahead(everything, dataset) == 10 * 3 * 6 * 24
    some = _images_ahead(make_plan(config(epochs=10, memory="10kB"), dataset), dataset)
    assert 10 * 6 * 24 < some < 10 * 3 * 6 * 24
    # All data of 2, 4 and 6 classes: twice as much as there is, which is near enough to 1 + 2/2.
    assert (
        _images_ahead(make_plan(config(epochs=10, method="joint"), dataset), dataset)
        == 10 * 2 * 6 * 24
    )


def test_a_short_run_is_not_even_measured(
    monkeypatch: pytest.MonkeyPatch, dataset: Dataset
) -> None:
    assert decide(monkeypatch, dataset, epochs=100, plain=9e9, quick=0) == (False, [])


def test_a_run_too_short_to_pay_says_so(monkeypatch: pytest.MonkeyPatch, dataset: Dataset) -> None:
    # 216,000 images, and a third of their time for the teacher.
    compiles, said = decide(monkeypatch, dataset, epochs=1000, plain=0.005, quick=0)
    assert not compiles
    assert said == [
        "not compiling the network: about 24 min of training ahead, too few to pay for it"
    ]


def test_a_moment_of_other_work_does_not_decide(
    monkeypatch: pytest.MonkeyPatch, dataset: Dataset
) -> None:
    """The plain network is timed again after compiling, in turns with the compiled one."""
    timed = iter(
        [0.05, 0.03, 0.02, 0.03, 0.02, 0.03, 0.02, 0.03]
    )  # first plain while something else ran
    monkeypatch.setattr("bic.compute.compiling.FEW_PIXELS", 0)
    monkeypatch.setattr("bic.compute.compiling.seconds_per_image", lambda *_: next(timed))
    monkeypatch.setattr("bic.compute.compiling.compiled_forward", lambda network: network)
    progress = Lines()
    assert not worth_compiling(make_plan(config(epochs=1000), dataset), dataset, progress, "cpu")
    assert "0.67 × the speed" in progress.said[1]


def test_a_long_run_compiles_if_that_is_faster(
    monkeypatch: pytest.MonkeyPatch, dataset: Dataset
) -> None:
    compiles, said = decide(monkeypatch, dataset, epochs=1000, plain=0.02, quick=0.016)
    assert compiles
    assert "96 min" in said[0]
    assert "1.25 × the speed" in said[1]
    compiles, said = decide(monkeypatch, dataset, epochs=1000, plain=0.02, quick=0.02)
    assert not compiles
    assert "not using it: 1.00 × the speed" in said[1]


def test_without_a_compiler_the_run_goes_on(
    monkeypatch: pytest.MonkeyPatch, dataset: Dataset
) -> None:
    compiles, said = decide(
        monkeypatch, dataset, epochs=1000, plain=0.02, quick=RuntimeError("no g++")
    )
    assert not compiles
    assert "cannot be compiled here (RuntimeError)" in said[1]


def test_the_choice_is_recorded_and_holds_when_going_on(
    monkeypatch: pytest.MonkeyPatch, dataset: Dataset, tmp_path: Path
) -> None:
    asked: list[bool] = []

    def choose(*_: object) -> bool:
        asked.append(True)
        return False

    monkeypatch.setattr(sys.modules["bic.lab.run"], "worth_compiling", choose)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run(config(), tmp_path / "run", data=dataset)
        run(config(), tmp_path / "run", data=dataset)
    assert asked == [True]
    assert json.loads((tmp_path / "run" / "config.json").read_text())["plan"]["compile"] is False


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs a C++ compiler")
def test_a_compiled_backbone_gives_the_same_scores_and_gradients_while_its_head_grows() -> None:
    torch.manual_seed(0)
    network = Network("mlp", channels=1, image_size=8).train()
    forward = compiled_forward(network)
    for size, rows in ((8, 2), (9, 3)):
        network.head.grow(rows)
        images = torch.from_numpy(
            np.random.default_rng(0).integers(0, 256, (size, 1, 8, 8), dtype=np.uint8)
        )
        logits, expected = forward(images), network(images)
        torch.testing.assert_close(logits, expected)
        ours, plain = (
            torch.autograd.grad(each.square().sum(), list(network.parameters()))
            for each in (logits, expected)
        )
        torch.testing.assert_close(ours, plain, rtol=1e-3, atol=1e-4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs a C++ compiler")
def test_a_run_compiles_student_and_teacher(
    monkeypatch: pytest.MonkeyPatch, dataset: Dataset, tmp_path: Path
) -> None:
    compiled: list[Network] = []

    def note(network: Network) -> Callable[[torch.Tensor], torch.Tensor]:
        compiled.append(network)
        return compiled_forward(network)

    monkeypatch.setattr("bic.compute.compiling.compiled_forward", note)
    result = run(config(steps=2, compile=True, method="distill"), tmp_path / "run", data=dataset)
    assert result["complete"]
    first, second, teacher = compiled
    assert first is second
    assert not any(parameter.requires_grad for parameter in teacher.parameters())
