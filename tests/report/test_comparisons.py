"""Which runs are compared, what they are called, and what the headline says."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from support.recorded_runs import RECIPE, write_run

from bic.report.comparison_table import curves
from bic.report.comparisons import comparisons, headline
from bic.report.runs import load
from bic.store.results import BlendResult

SLOW = RECIPE.model_copy(update={"epochs": 12})
NAMED_SLOW = SLOW.model_copy(update={"name": "slow"})


def labels(folder: Path, *runs: dict[str, Any]) -> list[str]:
    """The labels of runs with these settings, which must be of one protocol."""
    loaded = [
        load(write_run(folder / str(number), [2], **settings))
        for number, settings in enumerate(runs)
    ]
    (comparison,) = comparisons(loaded)
    return sorted(variant.label for variant in comparison.variants)


def test_runs_of_one_method_are_labelled_with_what_differs(tmp_path: Path) -> None:
    runs = [{}, {"seed": 1}, {"recipe": SLOW}]
    assert labels(tmp_path, *runs) == ["bic, epochs 12", "bic, epochs 6"]


def test_the_names_of_recipes_stand_for_their_settings(tmp_path: Path) -> None:
    assert labels(tmp_path, {}, {"recipe": NAMED_SLOW, "held_out": 0.2}) == [
        "bic, held out 0.1, fast recipe",
        "bic, held out 0.2, slow recipe",
    ]


def test_settings_in_tables_are_labelled_by_their_own_names(tmp_path: Path) -> None:
    nesterov = RECIPE.optimiser.model_copy(update={"nesterov": True})
    changed = RECIPE.model_copy(update={"optimiser": nesterov})
    share = {"method_settings": {"previous_share": 0.5}}
    assert labels(tmp_path, {}, {"recipe": changed, **share}) == [
        "bic, nesterov False, previous share 0.0",
        "bic, nesterov True, previous share 0.5",
    ]


def test_runs_of_different_protocols_are_not_compared(tmp_path: Path) -> None:
    first = load(write_run(tmp_path / "a", [2, 2]))
    second = load(write_run(tmp_path / "b", [2, 2], memory="64KB"))
    by_protocol = comparisons([first, second])
    assert [comparison.difference for comparison in by_protocol] == [
        "memory 200 images",
        "memory 64,000 bytes",
    ]


def test_data_sets_are_told_apart_by_their_names_if_these_differ(tmp_path: Path) -> None:
    def differences(folder: Path, datasets: list[str]) -> list[str]:
        runs = []
        for number, dataset in enumerate(datasets):
            sizes = [2, 2 + number]
            settings = {"dataset": dataset, "fingerprint": f"f{number}"}
            runs.append(load(write_run(folder / str(number), sizes, **settings)))
        return [comparison.difference for comparison in comparisons(runs)]

    assert differences(tmp_path / "different", ["a", "b"]) == ["2 × 2, a", "2, 3, b"]
    assert differences(tmp_path / "same", ["c", "c"]) == [
        "2 × 2, fingerprint f0",
        "2, 3, fingerprint f1",
    ]


def test_the_headline_of_an_unfinished_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [2, 2, 2], steps_done=2, accuracy=1.0)
    (comparison,) = comparisons([load(folder)])
    assert comparison.ranked == []
    assert headline(comparison) == ["bic is unfinished: 100.0 % on 4 classes so far."]


def test_the_headline_of_an_upper_bound(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [2], accuracy=1.0, method="joint")
    (comparison,) = comparisons([load(folder)])
    assert headline(comparison) == [
        "joint reaches 100.0 % on 2 classes, an upper bound that sees old data."
    ]


def test_the_headline_says_what_the_correction_adds(tmp_path: Path) -> None:
    run = load(write_run(tmp_path / "a", [2, 2], accuracy=1.0))
    (comparison,) = comparisons([run])
    uncorrected = run.last.top1_uncorrected
    assert headline(comparison) == [
        "bic reaches 100.0 % on 4 classes of made-up in 2 steps.",
        f"Its correction adds {100 - uncorrected:.1f} points: without it {uncorrected:.1f} %.",
    ]


def test_the_headline_of_an_answer_with_class_means(tmp_path: Path) -> None:
    run = load(write_run(tmp_path / "a", [2, 2], accuracy=1.0))
    blend = BlendResult(head=0.5, alpha=0.4, beta=-1.0, means=20.0)
    last = run.result.steps[-1].model_copy(update={"blend": blend})
    steps = [*run.result.steps[:-1], last]
    result = run.result.model_copy(update={"steps": steps})
    (comparison,) = comparisons([replace(run, result=result)])
    assert headline(comparison)[1].startswith("Its answer, with correction and class means, adds ")


def test_a_pretrained_run_is_marked_and_not_ranked_before_one_from_scratch(tmp_path: Path) -> None:
    pretrained = RECIPE.model_copy(update={"backbone": "lite2", "frozen": True})
    runs = [
        load(write_run(tmp_path / "a", [2, 2], accuracy=0.3)),
        load(write_run(tmp_path / "b", [2, 2], accuracy=0.9, recipe=pretrained)),
    ]
    (comparison,) = comparisons(runs)
    assert [variant.is_pretrained for variant in comparison.variants] == [True, False]
    assert [variant.is_pretrained for variant in comparison.ranked] == [False]
    drawn = curves(comparison)["curves"]
    assert [curve["label"].endswith(" (pretrained)") for curve in drawn] == [True, False]
    (alone,) = comparisons(runs[1:])
    assert [variant.is_pretrained for variant in alone.ranked] == [True]
