"""One run from Python: its result, its folder, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.lines import Lines
from support.toy import toy_dataset

from bic import Dataset, Model, Result, RunConfig, UserError, read_result, run
from bic.lab.run_data import open_for

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")

RECORDED = Path(__file__).parents[2] / "results" / "cifar100-5steps-bic-best-seed0"


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return toy_dataset(0.7)


def request(**changes: Any) -> RunConfig:
    plain = {"dataset": "toy", "steps": 3, "recipe": "demo", "memory": 36, "epochs": 2}
    return RunConfig(**{**plain, **changes})


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory, dataset: Dataset
) -> tuple[Result, Path, list[str]]:
    """The result of a run, its folder, and what it said."""
    folder = tmp_path_factory.mktemp("lab") / "run"
    progress = Lines()
    result = run(request(method="bic"), folder, data=dataset, progress=progress)
    return result, folder, progress.said


def keys(folder: Path) -> list[list[str]]:
    """The keys of result.json in order: of the file, of its settings, and of each step."""
    content = json.loads((folder / "result.json").read_text())
    settings = [name for name in content["config"] if name != "method_settings"]
    parts = [list(content), settings, list(content["made_with"])]
    for step in content["steps"]:
        parts += [list(step), list(step["score_histograms"]), list(step["seconds"])]
    return parts


def test_result_has_the_keys_that_it_always_had(finished: tuple[Result, Path, list[str]]) -> None:
    _, folder, _ = finished
    found = keys(folder)
    expected = keys(RECORDED)[: len(found)]
    expected[0].append("checksum")
    expected[1].insert(expected[1].index("recipe"), "held_out_limit")
    for step in expected[3::3]:
        step.append("predictions_checksum")
    assert found == expected


def test_result_is_what_the_folder_holds(finished: tuple[Result, Path, list[str]]) -> None:
    result, folder, _ = finished
    assert result.complete
    assert read_result(folder) == result
    assert json.loads((folder / "result.json").read_text()) == result.content()
    assert [step.step for step in result.steps] == [1, 2, 3]
    assert [step.seen for step in result.steps] == [2, 4, 6]
    assert result.steps[0].alpha is None
    assert result.steps[2].alpha is not None
    assert result.final_top1 == result.top1[-1] > 50


def test_predictions_agree_with_the_result_and_the_model(
    finished: tuple[Result, Path, list[str]], dataset: Dataset
) -> None:
    result, folder, _ = finished
    model = Model.load(folder)
    assert list(model.classes) == result.classes
    for step in result.steps:
        predictions = np.load(folder / f"predictions-{step.step}.npz")
        is_right = predictions["predicted"] == predictions["true"]
        assert step.top1 == 100 * is_right.mean()
        true_names = [result.classes[position] for position in predictions["true"]]
        labels = dataset.test.labels[predictions["index"]]
        assert true_names == [dataset.classes[label] for label in labels]
    raw, final = model.logits(dataset.test.take(predictions["index"]))
    assert final.argmax(dim=1).tolist() == predictions["predicted"].tolist()
    assert raw.argmax(dim=1).tolist() == predictions["predicted_uncorrected"].tolist()


def test_run_says_how_each_step_went(finished: tuple[Result, Path, list[str]]) -> None:
    result, _, said = finished
    step = result.steps[2]
    expected = (
        f"step 3/3: 6 classes, top-1 {step.top1:.2f} % (uncorrected "
        f"{step.top1_uncorrected:.2f} %, α {step.alpha:.3f}, β {step.beta:.3f})"
    )
    assert said[-1] == expected
    assert f"step 1/3: 2 classes, top-1 {result.steps[0].top1:.2f} %" in said


def test_complete_run_is_only_read(
    finished: tuple[Result, Path, list[str]], dataset: Dataset
) -> None:
    result, folder, _ = finished
    progress = Lines()
    assert run(request(), str(folder), data=dataset, progress=progress) == result
    assert progress.said == [f"{folder} is complete; nothing to do"]


def test_folder_without_its_result_does_not_continue(dataset: Dataset, tmp_path: Path) -> None:
    run(request(), tmp_path / "run", data=dataset)
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(UserError, match=r"has lost its result\.json; run again and choose"):
        run(request(), tmp_path / "run", data=dataset)


def test_default_folder_is_named_by_the_main_settings(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(request(method="finetune", seed=4, epochs=1), data=dataset)
    assert (tmp_path / "runs" / "toy-3steps-finetune-demo-seed4" / "result.json").exists()


def test_memory_without_effect_is_mentioned(dataset: Dataset, tmp_path: Path) -> None:
    progress = Lines()
    run(request(method="lwf", epochs=1), tmp_path / "run", data=dataset, progress=progress)
    assert "memory has no effect: lwf keeps no exemplars" in progress.said


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"threads": 0}, "threads must be from 1 to "),
        ({"threads": 5000}, " here, got 5,000; use threads="),
        ({"workers": -1}, "workers must be from 0 to "),
        ({"device": "banana"}, "the device banana is unknown; use cpu or cuda for device"),
        ({"device": "cuda:99"}, "the device cuda:99 cannot be used here"),
    ],
)
def test_options_that_cannot_work_are_refused(
    dataset: Dataset, tmp_path: Path, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError) as caught:
        run(request(), tmp_path / "run", data=dataset, **options)
    assert sentence in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_threads_are_set(dataset: Dataset, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    try:
        result = run(request(epochs=1), tmp_path / "run", data=dataset, threads=2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert result.made_with["threads"] == 2


def test_data_is_opened_as_the_recipe_needs_it() -> None:
    config = RunConfig(dataset="digits", classes="3,5", recipe={"name": "demo", "image_size": 6})
    dataset = open_for(config, None, Lines())
    assert dataset.classes == ("3", "5")
    assert dataset.image_size == 6
