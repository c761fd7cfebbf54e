"""Planning: what a request leaves open is decided or measured once, and recorded."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.lines import Lines
from support.toy import toy_dataset

from bic import Dataset, RunConfig, UserError, run
from bic.compute.distributed import World
from bic.data.images import array_set
from bic.lab import planning
from bic.lab.planning import make_plan, measured
from bic.store.run_folder import RunFolder

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return toy_dataset(0.5)


def request(**changes: Any) -> RunConfig:
    plain = {
        "dataset": "toy",
        "steps": 3,
        "recipe": "demo",
        "memory": 36,
        "held_out": 0.25,
        "epochs": 1,
    }
    return RunConfig(**{**plain, **changes})


def quickest(**changes: Any) -> RunConfig:
    """A request that leaves the precision to a measurement."""
    return request(recipe={"name": "demo", "precision": "quickest"}, **changes)


def images_ahead(
    monkeypatch: pytest.MonkeyPatch, dataset: Dataset, **changes: Any
) -> tuple[int, float]:
    """The images that a run trains on and the cost of an update, as the plan counts them."""
    counted: list[tuple[int, float]] = []

    def noted(*_: object, num_images: int, update_cost: float, **__: object) -> bool:
        counted.append((num_images, update_cost))
        return True

    monkeypatch.setattr(planning, "worth_compiling", noted)
    monkeypatch.setattr(planning, "FEW_PIXELS", 0)
    config = request(epochs=10, **changes)
    plan = measured(make_plan(config, dataset), config, None, dataset, Lines(), "cpu")
    assert plan.learning.compile
    return counted[0]


def test_images_ahead_are_counted(monkeypatch: pytest.MonkeyPatch, dataset: Dataset) -> None:
    # 10 epochs on 6 classes of 24 images, and a full memory of 36 in two later steps.
    assert images_ahead(monkeypatch, dataset) == (10 * (6 * 24 + 2 * 36), 4 / 3)
    # There are no more exemplars than images.
    assert images_ahead(monkeypatch, dataset, memory=10_000)[0] == 10 * 3 * 6 * 24
    # A budget in bytes is divided by the size of an image, a little over 64 bytes.
    some, _ = images_ahead(monkeypatch, dataset, memory="10kB")
    assert 10 * 6 * 24 < some < 10 * 3 * 6 * 24
    # joint trains on all images of 2, 4 and 6 classes: twice all images. It has no teacher.
    assert images_ahead(monkeypatch, dataset, method="joint") == (10 * 2 * 6 * 24, 1.0)


def test_short_run_is_not_measured(monkeypatch: pytest.MonkeyPatch, dataset: Dataset) -> None:
    def refuse(*_: object, **__: object) -> bool:
        raise AssertionError("a short run was measured")

    monkeypatch.setattr(planning, "worth_compiling", refuse)
    # 216 images of 8 × 8 pixels in each of 1,000 epochs; FEW_PIXELS are 200,000 of 32 × 32.
    config = request(epochs=1000)
    plan = measured(make_plan(config, dataset), config, None, dataset, Lines(), "cpu")
    assert not plan.learning.compile
    monkeypatch.setattr(planning, "FEW_PIXELS", 200_000 * 8**2)
    with pytest.raises(AssertionError, match="was measured"):
        measured(make_plan(config, dataset), config, None, dataset, Lines(), "cpu")
    config = request(epochs=900)
    measured(make_plan(config, dataset), config, None, dataset, Lines(), "cpu")


def test_measurement_is_recorded_and_holds_when_the_run_continues(
    monkeypatch: pytest.MonkeyPatch, dataset: Dataset, tmp_path: Path
) -> None:
    measurements: list[str] = []

    def compiles(*_: object) -> bool:
        measurements.append("compiling")
        return False

    monkeypatch.setattr(planning, "_worth_compiling", compiles)
    run(request(), tmp_path / "run", data=dataset)
    run(request(), tmp_path / "run", data=dataset)
    assert measurements == ["compiling"]
    recorded = json.loads((tmp_path / "run" / "config.json").read_text())
    assert recorded["plan"]["compile"] is False


def test_measured_precision_is_recorded_and_holds_when_the_run_continues(
    monkeypatch: pytest.MonkeyPatch, dataset: Dataset, tmp_path: Path
) -> None:
    measurements: list[str] = []

    def precision(*_: object) -> str:
        measurements.append("precision")
        return "bfloat16"

    monkeypatch.setattr(planning, "measured_precision", precision)
    run(quickest(), tmp_path / "run", data=dataset)
    result = run(quickest(), tmp_path / "run", data=dataset)
    in_other_words = request(recipe={"name": "demo", "precision": "bfloat16"})
    same = run(in_other_words, tmp_path / "run", data=dataset)
    assert measurements == ["precision"]
    assert result.config["recipe"]["precision"] == "bfloat16"
    assert same == result
    recorded = json.loads((tmp_path / "run" / "config.json").read_text())
    assert recorded["asked"]["recipe"]["precision"] == "quickest"
    assert recorded["plan"]["recipe"]["precision"] == "bfloat16"


def test_compiled_network_does_not_train_in_bfloat16(dataset: Dataset, tmp_path: Path) -> None:
    config = request(recipe={"name": "demo", "precision": "bfloat16"}, compile=True)
    with pytest.raises(UserError) as caught:
        run(config, tmp_path / "run", data=dataset)
    assert caught.value.remedy == "leave out {compile} or {recipe.precision}"
    assert not (tmp_path / "run").exists()


def test_several_processes_do_not_compile(
    monkeypatch: pytest.MonkeyPatch, dataset: Dataset, tmp_path: Path
) -> None:
    monkeypatch.setattr("bic.lab.run.world", lambda: World(rank=0, size=2))
    with pytest.raises(UserError, match="several processes cannot train a compiled network"):
        run(request(compile=True), tmp_path / "run", data=dataset)
    assert not (tmp_path / "run").exists()


def test_run_needs_a_request() -> None:
    with pytest.raises(UserError, match=r"a run needs a RunConfig, got 'digits'; pass RunConfig"):
        run("digits")  # type: ignore[arg-type]


def test_precision_of_a_compiled_run_is_not_measured(
    monkeypatch: pytest.MonkeyPatch, dataset: Dataset
) -> None:
    monkeypatch.setattr(planning, "measured_precision", lambda *_: "bfloat16")
    config = quickest(compile=True)
    plan = measured(make_plan(config, dataset), config, None, dataset, Lines(), "cpu")
    assert plan.learning.compile
    assert plan.learning.precision == "float32"


def test_compiled_run_does_not_continue_in_bfloat16(dataset: Dataset, tmp_path: Path) -> None:
    asked = request(recipe={"name": "demo", "precision": "float32"}, compile=True)
    folder = RunFolder(tmp_path / "run")
    settings = make_plan(asked, dataset).settings()
    folder.agree(asked.model_dump(mode="json"), settings, lambda recorded: recorded)
    with pytest.raises(UserError, match=r"recipe\.precision was float32 and is now bfloat16"):
        run(
            request(recipe={"name": "demo", "precision": "bfloat16"}),
            tmp_path / "run",
            data=dataset,
        )


def test_images_must_be_square(dataset: Dataset) -> None:
    images = array_set(np.zeros((12, 8, 6), np.uint8), np.arange(12) % 6)
    wide = replace(dataset, train=images, test=images)
    with pytest.raises(UserError, match="images must be square") as caught:
        make_plan(request(), wide)
    assert caught.value.remedy == "set {recipe.image_size=32} to resize them"


def test_vectors_get_their_own_recipe() -> None:
    vectors = array_set(np.zeros((12, 5), np.float32), np.arange(12) % 6)
    dataset = Dataset(name="toy", classes=tuple("abcdef"), train=vectors, test=vectors)
    plan = make_plan(RunConfig(dataset="toy", steps=3), dataset)
    assert plan.learning.recipe.name == "vectors"
    assert plan.learning.recipe.image_size is None
    assert plan.protocol.step_sizes == (2, 2, 2)


def test_class_order_is_checked(dataset: Dataset) -> None:
    with pytest.raises(UserError, match=r"class_order must list each of 0\.\.5 once"):
        make_plan(request(class_order=(1, 2)), dataset)
