"""The precision of training: when bfloat16 is chosen, and what it applies to."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from support.lines import Lines
from support.toy import toy_dataset
from torch import Tensor

from bic import RunConfig, run
from bic.compute.precision import computing_in, quickest_precision
from bic.data.batches import Batches
from bic.learn import retrained_head, stage1
from bic.learn.train import BatchLoss, Training, fit
from bic.model.network import Network, fresh_network


@pytest.fixture
def network() -> Network:
    return fresh_network("mlp", channels=1, image_size=8, num_classes=2)


IMAGES = torch.zeros(16, 1, 8, 8, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("bfloat16", "chosen", "speedup"),
    [
        (0.5, "bfloat16", "2.00"),
        (0.9, "bfloat16", "1.11"),
        (0.95, "float32", "1.05"),
        (10.0, "float32", "0.10"),
    ],
)
def test_bfloat16_is_chosen_if_it_is_faster(
    monkeypatch: pytest.MonkeyPatch, network: Network, bfloat16: float, chosen: str, speedup: str
) -> None:
    def seconds(network: object, images: object) -> float:
        return bfloat16 if torch.is_autocast_enabled("cpu") else 1.0

    monkeypatch.setattr("bic.compute.precision.seconds_per_image", seconds)
    progress = Lines()
    assert quickest_precision(network, IMAGES, progress, "cpu") == chosen
    assert progress.said == [
        f"training in {chosen}: bfloat16 has {speedup} × the speed of float32 here"
    ]


def test_fastest_of_alternating_rounds_counts(
    monkeypatch: pytest.MonkeyPatch, network: Network
) -> None:
    """Other work on the machine slows some rounds down. The fastest round of each counts."""
    times = {"float32": [9.0, 4.0, 7.0], "bfloat16": [50.0, 60.0, 2.0]}
    order: list[str] = []

    def seconds(timed: object, images: object) -> float:
        assert timed is network
        assert images is IMAGES
        precision = "bfloat16" if torch.is_autocast_enabled("cpu") else "float32"
        order.append(precision)
        return times[precision].pop(0)

    monkeypatch.setattr("bic.compute.precision.seconds_per_image", seconds)
    progress = Lines()
    assert quickest_precision(network, IMAGES, progress, "cpu") == "bfloat16"
    assert order == ["float32", "bfloat16"] * 3
    assert "bfloat16 has 2.00 × the speed" in progress.said[0]


def test_choice_follows_the_time_that_was_really_measured(
    monkeypatch: pytest.MonkeyPatch, network: Network
) -> None:
    monkeypatch.setattr("bic.compute.cost.MIN_SECONDS", 0.01)
    progress = Lines()
    chosen = quickest_precision(network, IMAGES, progress, "cpu")
    match = re.fullmatch(
        r"training in (\w+): bfloat16 has (\d+\.\d\d) × the speed of float32 here", progress.said[0]
    )
    assert match is not None
    assert match[1] == chosen
    speedup = float(match[2])
    assert 0.0 < speedup < 20
    # Near the threshold the rounded figure does not tell.
    assert speedup == pytest.approx(1.1, abs=0.006) or (chosen == "bfloat16") == (speedup > 1.1)


@pytest.mark.parametrize(("supported", "chosen"), [(True, "bfloat16"), (False, "float32")])
def test_gpu_is_not_measured(
    monkeypatch: pytest.MonkeyPatch, network: Network, supported: bool, chosen: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: supported)
    assert quickest_precision(network, IMAGES, Lines(), "cuda") == chosen


def test_backbone_computes_in_the_precision_and_logits_stay_float32(network: Network) -> None:
    dtypes: list[torch.dtype] = []
    network.backbone.register_forward_hook(lambda _, __, output: dtypes.append(output.dtype))
    for precision in ("float32", "bfloat16"):
        with computing_in(precision, "cpu"):
            assert network(IMAGES).dtype == torch.float32
    assert dtypes == [torch.float32, torch.bfloat16]


def test_head_of_fc_retrain_is_trained_in_float32(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dtypes: dict[str, set[torch.dtype]] = {}
    precisions: dict[str, set[str]] = {}

    def noted(
        training: Training, batches: Batches, loss: BatchLoss, recipe: Any, **options: Any
    ) -> None:
        module = type(training.module).__name__
        precisions.setdefault(module, set()).add(recipe.precision)

        def noted_loss(logits: Tensor, *others: Any) -> Any:
            dtypes.setdefault(module, set()).add(logits.dtype)
            return loss(logits, *others)

        fit(training, batches, noted_loss, recipe, **options)

    monkeypatch.setattr(stage1, "fit", noted)
    monkeypatch.setattr(retrained_head, "fit", noted)
    config = RunConfig(
        dataset="toy",
        steps=3,
        memory=36,
        epochs=1,
        method="fc-retrain",
        recipe={"name": "demo", "precision": "bfloat16"},
    )
    run(config, tmp_path / "run", data=toy_dataset(0.5))
    assert dtypes == {"Network": {torch.float32}, "Linear": {torch.float32}}
    assert precisions == {"Network": {"bfloat16"}, "Linear": {"float32"}}
