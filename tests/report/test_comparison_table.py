"""The first table of the report and its curves."""

import math
from pathlib import Path
from typing import Any

import pytest
from support.recorded_runs import RECIPE, change_result, write_run

from bic.learn.methods import METHODS
from bic.report.comparison_table import curves, rows
from bic.report.comparisons import comparisons, headline
from bic.report.looks import Look
from bic.report.runs import find, load

SLOW = RECIPE.model_copy(update={"epochs": 12})


def ten_images(num_right: int) -> dict[str, list[Any]]:
    """Predictions for ten images of class 0."""
    predicted = [0] * num_right + [1] * (10 - num_right)
    return {
        "true": [0] * 10,
        "predicted": predicted,
        "predicted_uncorrected": predicted,
        "confidence": [0.5] * 10,
        "confidence_uncorrected": [0.5] * 10,
    }


def test_rows_are_means_over_seeds_and_upper_bounds_are_never_best(tmp_path: Path) -> None:
    num_right = {("bic", 0): 6, ("bic", 1): 8, ("distill", 0): 5, ("joint", 0): 9}
    runs = []
    for (method, seed), count in num_right.items():
        folder = tmp_path / f"{method}{seed}"
        predictions = [ten_images(count)]
        write_run(folder, [2], predictions=predictions, method=method, seed=seed)
        runs.append(load(folder))
    (comparison,) = comparisons(runs)
    by_label = {row["variant"].label: row for row in rows(comparison)}
    assert list(by_label) == ["joint", "bic", "distill"]
    assert by_label["bic"]["final"] == 70
    assert by_label["bic"]["final_std"] == pytest.approx(math.sqrt(200))
    assert by_label["bic"]["seeds"] == "0, 1"
    assert [row["best"] for row in by_label.values()] == [False, True, False]
    assert [row["behind"] for row in by_label.values()] == [20, None, -20]
    sentence = "bic is best: 70.0 % on 2 classes of made-up, 20.0 points ahead of distill."
    assert headline(comparison)[0] == sentence


def test_an_unfinished_run_has_no_average(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [2, 2, 2], steps_done=2, method="lwf")
    (comparison,) = comparisons([load(folder)])
    (row,) = rows(comparison)
    assert row["variant"].label == "lwf, unfinished"
    assert row["average"] is None
    assert row["later"] is None


def test_the_papers_result_is_shown_for_the_run_that_it_fits(tmp_path: Path) -> None:
    settings = {"dataset": "cifar100", "memory": 2000, "per_class": 2, "pictures": 0}
    for held_out in (0.1, 0.2):
        write_run(tmp_path / str(held_out), [20] * 5, held_out=held_out, **settings)
    (comparison,) = comparisons([load(path) for path in find([tmp_path])])
    assert {row["variant"].label: row["paper"] for row in rows(comparison)} == {
        "bic, held out 0.1": (56.69, "top1", "Table 3"),
        "bic, held out 0.2": (54.31, "top1", "Table 4"),
    }
    papers = curves(comparison)["papers"]
    assert papers[0]["label"] == "finetune, the paper’s Table 3"
    assert papers[0]["seen"] == [20, 40, 60, 80, 100]


def drawn(folder: Path, *runs: dict[str, Any]) -> set[tuple[str, str, str]]:
    """The colour, dash and symbol of each curve."""
    loaded = [
        load(write_run(folder / str(number), [2, 2], **settings))
        for number, settings in enumerate(runs)
    ]
    (comparison,) = comparisons(loaded)
    return {
        (curve["colour"], curve["dash"], curve["symbol"]) for curve in curves(comparison)["curves"]
    }


def test_a_method_keeps_its_colour_beside_a_variant_of_itself(tmp_path: Path) -> None:
    bic = METHODS["bic"].colour
    assert drawn(tmp_path, {}, {"recipe": SLOW}, {"method": "lwf"}) == {
        (bic, "solid", "circle"),
        (bic, "longdash", "circle-open"),
        (METHODS["lwf"].colour, "solid", "triangle-up"),
    }


def test_variants_of_one_method_have_different_colours(tmp_path: Path) -> None:
    colours = [colour for colour, _, _ in drawn(tmp_path, {}, {"recipe": SLOW})]
    assert len(set(colours)) == 2


def test_an_unknown_method_has_the_default_colour(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [2, 2])
    plan = load(folder).plan
    change_result(folder, method="plug-in", config={**plan, "method": "plug-in"})
    other = write_run(tmp_path / "b", [2, 2], method="distill")
    (comparison,) = comparisons([load(folder), load(other)])
    (curve,) = [curve for curve in curves(comparison)["curves"] if curve["label"] == "plug-in"]
    assert curve["colour"] == Look().colour
    assert curve["symbol"] == Look().symbol
