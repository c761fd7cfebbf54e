"""The precision of training: when bfloat16 is chosen, and that the choice is recorded."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from support.toy import toy_dataset
from test_compiling import Lines

from bic import Dataset, RunConfig, UserError, run
from bic.compute.precision import quickest_precision
from bic.data.batches import Batches
from bic.lab.run import _measured
from bic.learn.recipes import make_plan
from bic.learn.train import BatchLoss, Training, fit
from bic.store.run_folder import RunFolder


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return toy_dataset(0.5)


def config(precision: str = "quickest") -> RunConfig:
    plain = {"dataset": "toy", "steps": 3, "memory": 36, "held_out": 0.25, "epochs": 1}
    return RunConfig.model_validate({**plain, "recipe": {"name": "demo", "precision": precision}})


@pytest.mark.parametrize(
    ("bfloat16", "chosen", "said"),
    [(0.5, "bfloat16", "2.00"), (0.95, "float32", "1.05"), (10.0, "float32", "0.10")],
)
def test_the_faster_is_chosen(
    monkeypatch: pytest.MonkeyPatch, dataset: Dataset, bfloat16: float, chosen: str, said: str
) -> None:
    def seconds(network: object, images: object) -> float:
        return bfloat16 if torch.is_autocast_enabled("cpu") else 1.0

    monkeypatch.setattr("bic.compute.precision.seconds_per_image", seconds)
    progress = Lines()
    assert quickest_precision(make_plan(config(), dataset), dataset, progress, "cpu") == chosen
    assert progress.said == [
        f"training in {chosen}: here bfloat16 has {said} × the speed of float32"
    ]


def test_it_can_be_measured(dataset: Dataset) -> None:
    assert quickest_precision(make_plan(config(), dataset), dataset, Lines(), "cpu") in (
        "float32",
        "bfloat16",
    )


def test_a_compiled_network_does_not_train_in_bfloat16(dataset: Dataset, tmp_path: Path) -> None:
    asked = config("bfloat16").model_copy(update={"compile": True})
    with pytest.raises(UserError, match=r"leave out --compile or recipe\.precision"):
        run(asked, tmp_path / "run", data=dataset)
    assert not (tmp_path / "run").exists()


def test_what_is_to_be_compiled_is_not_measured(
    monkeypatch: pytest.MonkeyPatch, dataset: Dataset
) -> None:
    monkeypatch.setattr(sys.modules["bic.lab.run"], "quickest_precision", lambda *_: "bfloat16")
    asked = config().model_copy(update={"compile": True})
    plan = _measured(make_plan(asked, dataset), asked, None, dataset, Lines(), "cpu")
    assert (plan.compile, plan.recipe.precision) == (True, "float32")


def test_a_compiled_run_is_not_gone_on_with_in_bfloat16(dataset: Dataset, tmp_path: Path) -> None:
    compiled = make_plan(config("float32").model_copy(update={"compile": True}), dataset)
    folder = RunFolder(tmp_path / "run")
    folder.agree(config("float32"), compiled)
    with pytest.raises(UserError, match=r"recipe\.precision was float32 and is now bfloat16"):
        run(config("bfloat16"), tmp_path / "run", data=dataset)


def test_a_head_alone_is_retrained_in_float32(
    monkeypatch: pytest.MonkeyPatch, dataset: Dataset, tmp_path: Path
) -> None:
    seen: dict[str, set[torch.dtype]] = {}

    def note(
        training: Training, batches: Batches, loss: BatchLoss, *rest: Any, **options: Any
    ) -> None:
        def noted(logits: torch.Tensor, *others: Any) -> Any:
            seen.setdefault(type(training.module).__name__, set()).add(logits.dtype)
            return loss(logits, *others)

        fit(training, batches, noted, *rest, **options)

    monkeypatch.setattr("bic.learn.learner.fit", note)
    asked = config("bfloat16").model_copy(update={"method": "fc-retrain"})
    run(asked, tmp_path / "run", data=dataset)
    assert seen == {"Network": {torch.float32}, "Linear": {torch.float32}}


def test_the_choice_is_recorded_and_holds_when_going_on(
    monkeypatch: pytest.MonkeyPatch, dataset: Dataset, tmp_path: Path
) -> None:
    asked: list[bool] = []

    def choose(*_: object) -> str:
        asked.append(True)
        return "bfloat16"

    monkeypatch.setattr(sys.modules["bic.lab.run"], "quickest_precision", choose)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            result = run(config(), tmp_path / "run", data=dataset)
        in_other_words = run(config("bfloat16"), tmp_path / "run", data=dataset)
    assert asked == [True]
    assert result["config"]["recipe"]["precision"] == "bfloat16"
    assert in_other_words == result
    recorded = json.loads((tmp_path / "run" / "config.json").read_text())
    assert recorded["asked"]["recipe"]["precision"] == "quickest"
    assert recorded["plan"]["recipe"]["precision"] == "bfloat16"
