"""The tables of results in the documents: made of recorded runs, and up to date."""

from __future__ import annotations

import importlib.util
import json
import re
import statistics
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("results", ROOT / "benchmarks" / "results.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


results = load_script()


def recorded(
    seed: int,
    *accuracies: float,
    method: str = "bic",
    complete: bool = True,
    threads: int = 2,
    **changed: Any,
) -> dict[str, Any]:
    steps = [
        {"top1": each, "top1_uncorrected": each / 2, "seconds": {"stage1": 50.0, "memory": 10.0}}
        for each in accuracies
    ]
    config = {
        **results.CIFAR,
        "recipe": {"name": "fast"},
        "step_sizes": [20] * len(accuracies),
        **changed,
    }
    made_with = {"threads": threads}
    about = {
        "method": method,
        "seed": seed,
        "complete": complete,
        "config": config,
        "made_with": made_with,
    }
    return {**about, "steps": steps}


@pytest.mark.parametrize("page", results.PAGES)
def test_pages_show_what_was_recorded(page: str) -> None:
    text = (ROOT / page).read_text()
    assert "<!-- results: " in text
    assert results.filled(text, results.load()) == text, "run python benchmarks/results.py"


def test_rows_are_means_over_seeds_with_their_spread() -> None:
    runs = [recorded(0, 80, 70, 60), recorded(2, 82, 73, 63)]
    name, first, second, last, average, minutes, seeds = results.row("bic", runs)
    assert (name, first, second, minutes, seeds) == ("bic", "81.00", "71.50", "3.0", "0, 2")
    assert last == f"61.50 ± {statistics.stdev([60, 63]):.2f}"
    assert average == f"71.33 ± {statistics.stdev([70, 218 / 3]):.2f}"
    assert results.row("", runs[:1], key="top1_uncorrected")[1:5] == [
        "40.00",
        "35.00",
        "30.00",
        "35.00",
    ]


def test_times_of_runs_made_beside_others_are_left_out() -> None:
    assert results.row("bic", [recorded(0, 80, 70, threads=1)])[-2:] == ["", "0"]


def test_only_complete_runs_of_the_same_protocol_count() -> None:
    runs = [
        recorded(1, 80, 70),
        recorded(0, 81, 71),
        recorded(2, 1, 1, complete=False),
        recorded(0, 9, 9, method="lwf"),
        recorded(3, 9, 9, held_out=0.2),
        recorded(4, 9, 9, memory={"images": 400, "bytes": None}),
    ]
    found = results.select([*runs, recorded(0, 80, 70, 60)], recipe="fast", sizes=[20, 20])
    assert [run["seed"] for run in found] == [0, 1]


@pytest.mark.parametrize(
    "changed", [{}, {"recipe": {"name": "fast", "epochs": 20}}, {"fingerprint": "other"}]
)
def test_a_row_refuses_runs_that_differ_in_more_than_their_seed(changed: dict[str, Any]) -> None:
    seed = 1 if changed else 0
    with pytest.raises(SystemExit, match="differ in their seed"):
        results.select(
            [recorded(0, 80, 70), recorded(seed, 81, 71, **changed)], recipe="fast", sizes=[20, 20]
        )


def test_recorded_runs_are_whole() -> None:
    for path in (ROOT / "results").glob("*/result.json"):
        result = json.loads(path.read_text())
        assert result["complete"], path
        recipe, seed = result["config"]["recipe"]["name"], result["seed"]
        assert re.fullmatch(f".*-{result['method']}-{recipe}(-.*)?-seed{seed}", path.parent.name), (
            path
        )
        assert len(result["steps"]) == len(result["config"]["step_sizes"])
