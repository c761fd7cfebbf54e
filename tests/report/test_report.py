"""Reports of runs: the numbers of the page against numbers worked out by hand, and input that is odd or damaged."""

from __future__ import annotations

import base64
import json
import math
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.recorded_runs import plan, write_run

from bic.errors import UserError
from bic.lab.published import PUBLISHED
from bic.learn.config import MemoryBudget, RunConfig, load_settings
from bic.report import measures
from bic.report.colours import COLOURS
from bic.report.command import asked_of, command
from bic.report.comparison_table import curves, rows
from bic.report.details import details
from bic.report.groups import compare, differing, flat, headline
from bic.report.page import render, write_report
from bic.report.runs import Run, find, load

# Two steps of two classes. After the second, two of the four images of old classes are taken for class 3 before
# correction and one is after it; class 2 has no test image.
FIRST = {
    "true": [0, 0, 1, 1],
    "predicted": [0, 0, 1, 0],
    "predicted_uncorrected": [0, 0, 1, 0],
    "confidence": [0.9, 0.9, 0.9, 0.9],
    "confidence_uncorrected": [0.9, 0.9, 0.9, 0.9],
}
SECOND = {
    "true": [0, 0, 1, 1, 3],
    "predicted": [0, 3, 1, 1, 3],
    "predicted_uncorrected": [3, 3, 1, 1, 3],
    "confidence": [0.95, 0.95, 0.55, 0.55, 0.35],
    "confidence_uncorrected": [1.0, 1.0, 1.0, 1.0, 0.0],
}


def page_data(page: Path | str) -> Any:
    text = page if isinstance(page, str) else page.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def matrix(packed: dict[str, str], kind: str = "Uint8Array") -> list[list[int]]:
    assert packed["kind"] == kind
    flat_counts = np.frombuffer(
        base64.b64decode(packed["data"]), dtype={"Uint8Array": "<u1", "Uint16Array": "<u2"}[kind]
    )
    size = math.isqrt(len(flat_counts))
    return flat_counts.reshape(size, size).tolist()


@pytest.fixture
def by_hand(tmp_path: Path) -> Run:
    return load(
        write_run(
            tmp_path / "by-hand", [2, 2], answers=[FIRST, SECOND], classes=["a", "b", "c", "d"]
        )
    )


def test_shares_before_and_after(by_hand: Run) -> None:
    last = details(by_hand)["steps"][-1]
    assert last["shares"] == {"true": [0.8, 0.2], "before": [0.4, 0.6], "after": [0.6, 0.4]}
    assert last["new"] == {"true": 0.2, "before": 0.6, "after": 0.4}


def test_confusions_before_and_after(by_hand: Run) -> None:
    found = details(by_hand)
    assert found["bins"] == [0, 1, 2, 3, 4]
    assert matrix(found["steps"][0]["confusion"]["after"]) == [[2, 0], [1, 1]]
    assert matrix(found["steps"][1]["confusion"]["before"]) == [
        [0, 0, 0, 2],
        [0, 2, 0, 0],
        [0, 0, 0, 0],
        [0, 0, 0, 1],
    ]
    assert matrix(found["steps"][1]["confusion"]["after"]) == [
        [1, 0, 0, 1],
        [0, 2, 0, 0],
        [0, 0, 0, 0],
        [0, 0, 0, 1],
    ]
    assert found["pairs"]["before"] == {"listed": [(0, 3, 2)], "total": 1}
    assert found["pairs"]["after"] == {"listed": [(0, 3, 1)], "total": 1}


def test_classes_and_their_forgetting(by_hand: Run) -> None:
    classes = details(by_hand)["classes"]
    assert classes["after"] == [50, 100, None, 100]
    assert classes["before"] == [0, 100, None, 100]
    assert classes["best"] == [100, 50, None, None]
    assert classes["images"] == [2, 2, 0, 1]


def test_calibration_before_and_after(by_hand: Run) -> None:
    calibration = details(by_hand)["steps"][-1]["calibration"]
    # After: two at 0.95, one right (gap 0.45); two at 0.55, both right (0.45); one at 0.35, right (0.65).
    assert calibration["after"]["error"] == pytest.approx(
        (2 * 0.45 + 2 * 0.45 + 0.65) / 5, abs=1e-5
    )
    # Before: four at 1.0, two right (gap 0.5); one at 0.0 that is right (1.0).
    assert calibration["before"]["error"] == pytest.approx((4 * 0.5 + 1 * 1.0) / 5, abs=1e-5)
    assert calibration["before"]["bins"][0] == (1, 0.0, 1.0)
    assert calibration["before"]["bins"][14] == (4, 1.0, 0.5)
    assert [bin[0] for bin in calibration["before"]["bins"][1:14]] == [0] * 13


def test_confidence_on_an_edge_belongs_to_the_bin_below() -> None:
    found = measures.reliability(np.array([0.5, 0.51]), np.array([True, False]), num_bins=2)
    assert found.counts.tolist() == [1, 1]
    assert found.error == pytest.approx((0.5 + 0.51) / 2)


def test_norms_of_the_heads_rows_per_group(by_hand: Run) -> None:
    # Rows 1, 4/3, 5/3, 2: two per group.
    norms = details(by_hand)["steps"][-1]["norms"]
    assert norms[0] == pytest.approx([1, 1.0833, 1.1667, 1.25, 1.3333], abs=1e-3)
    assert norms[1] == pytest.approx([1.6667, 1.75, 1.8333, 1.9167, 2], abs=1e-3)


def test_norms_recorded_per_group_are_shown_as_they_are(tmp_path: Path) -> None:
    file = write_run(tmp_path / "run", [2, 2]) / "result.json"
    result = json.loads(file.read_text())
    for step in result["steps"]:
        del step["head_norms"]
        step["head_norms_per_group"] = [[1, 2, 3, 4, 5], [2, 3, 4, 5, 6]][: step["step"]]
    file.write_text(json.dumps(result))
    assert details(load(tmp_path / "run"))["steps"][-1]["norms"] == [
        [1, 2, 3, 4, 5],
        [2, 3, 4, 5, 6],
    ]
    result["steps"][-1]["head_norms_per_group"].pop()
    file.write_text(json.dumps(result))
    with pytest.raises(UserError, match="its head and its classes disagree"):
        load(tmp_path / "run")


def test_many_classes_share_bins_that_keep_to_their_steps() -> None:
    assert measures.class_bins([50, 10, 10], 100).tolist() == list(range(71))
    edges = measures.class_bins([600, 200, 200], 10)
    assert edges.tolist() == [0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000]
    assert {600, 800} <= set(edges.tolist())
    assert measures.class_bins([1] * 1000, 10).tolist() == list(range(0, 1001, 100))
    counts = measures.confusion(np.array([0, 99, 100, 999]), np.array([99, 100, 100, 0]), edges)
    assert counts[0, 0] == counts[0, 1] == counts[1, 1] == counts[9, 0] == 1
    assert counts.sum() == 4


def test_the_most_confused_pairs_come_first() -> None:
    true, answers = np.array([1, 0, 0, 0, 2, 2]), np.array([0, 1, 1, 0, 0, 1])
    assert measures.confused_pairs(true, answers, 3) == [(0, 1, 2), (1, 0, 1), (2, 0, 1), (2, 1, 1)]


def test_no_more_than_200_pairs_are_listed_of_those_there_are(tmp_path: Path) -> None:
    true, answers = np.divmod(np.arange(400), 20)
    chosen = {
        **dict.fromkeys(("predicted", "predicted_uncorrected"), answers),
        "true": true,
        "index": true,
    }
    sure = dict.fromkeys(
        ("confidence", "confidence_uncorrected"), np.full(400, 0.5, dtype=np.float32)
    )
    pairs = details(load(write_run(tmp_path / "a", [20], answers=[{**chosen, **sure}])))["pairs"][
        "after"
    ]
    assert (len(pairs["listed"]), pairs["total"]) == (200, 380)


def test_large_counts_get_wider_numbers(tmp_path: Path) -> None:
    often = {name: list(column) * 200 for name, column in SECOND.items()}
    run = load(write_run(tmp_path / "often", [2, 2], answers=[FIRST, often]))
    assert matrix(details(run)["steps"][1]["confusion"]["after"], "Uint16Array")[1] == [
        0,
        400,
        0,
        0,
    ]


def test_what_stands_beside_the_raw_answer(tmp_path: Path, by_hand: Run) -> None:
    assert details(by_hand)["second"] == "correction"
    other = load(write_run(tmp_path / "icarl", [2, 2], answers=[FIRST, SECOND], method="icarl"))
    assert details(other)["second"] == "classifier"
    assert details(other)["steps"][-1]["calibration"].keys() == {"before"}, (
        "distances are no confidences"
    )
    same = {**SECOND, "predicted": SECOND["predicted_uncorrected"]}
    plain = load(write_run(tmp_path / "distill", [2, 2], answers=[FIRST, same], method="distill"))
    assert details(plain)["second"] is None


def test_the_papers_figures_are_for_its_protocol_alone() -> None:
    def found(**changes: Any) -> list[tuple[str, float]]:
        values = {"dataset": "cifar100", "memory": MemoryBudget(images=2000), **changes}
        settled = plan([20] * 5, **values).model_dump(mode="json")
        return [(curve.method, curve.accuracies[-1]) for curve in PUBLISHED if curve.fits(settled)]

    table3 = [("finetune", 39.83), ("distill", 40.34), ("bic", 56.69), ("fc-retrain", 60.93)]
    assert found() == table3
    assert found(method="lwf", seed=3) == table3
    assert found(held_out=0.2) == [("bic", 54.31)]
    assert found(exemplars="random") == [("bic", 55.55)]
    assert (
        found(memory=MemoryBudget(images=1000))
        == found(order_seed=1)
        == found(dataset="digits")
        == []
    )
    assert {(curve.dataset, curve.metric, len(curve.accuracies)) for curve in PUBLISHED} == {
        ("imagenet1000", "top5", 10), ("celeb10000", "top1", 10), ("cifar100", "top1", 5)
    }  # fmt: skip


def test_rows_are_means_over_seeds_and_upper_bounds_are_never_best(tmp_path: Path) -> None:
    def answers(right: int) -> dict[str, list[Any]]:
        predicted = [0] * right + [1] * (10 - right)
        return {**dict.fromkeys(FIRST, predicted), "true": [0] * 10, "confidence": [0.5] * 10}

    accuracies = {("bic", 0): 6, ("bic", 1): 8, ("distill", 0): 5, ("joint", 0): 9}
    runs = [
        load(
            write_run(
                tmp_path / f"{method}{seed}",
                [2],
                answers=[answers(right)],
                method=method,
                seed=seed,
            )
        )
        for (method, seed), right in accuracies.items()
    ]
    runs.append(
        load(
            write_run(tmp_path / "part", [2, 2], answers=[answers(10)], method="lwf", steps_done=1)
        )
    )
    one_step, two_steps = compare(runs)
    assert [variant.label for variant in two_steps.variants] == ["lwf, unfinished"]
    assert two_steps.ranked == []
    found = {row["variant"].label: row for row in rows(one_step)}
    assert list(found) == ["joint", "bic", "distill"]
    assert found["bic"]["final"] == 70
    assert found["bic"]["final_spread"] == pytest.approx(math.sqrt(200))
    assert [row["best"] for row in found.values()] == [False, True, False]
    assert [row["behind"] for row in found.values()] == [20, None, -20]
    assert (
        headline(one_step)[0]
        == "bic is best: 70.0 % on 2 classes of made-up, 20.0 points ahead of distill."
    )


def test_runs_of_one_method_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    slow = plan([2]).recipe.model_copy(update={"epochs": 12})
    named = slow.model_copy(update={"name": "slow"})
    runs = [
        load(write_run(tmp_path / str(number), [2], **settings))
        for number, settings in enumerate(
            [{}, {"seed": 1}, {"recipe": slow}, {"recipe": named, "held_out": 0.2}]
        )
    ]
    (protocol,) = compare(runs[:3])
    assert sorted(variant.label for variant in protocol.variants) == [
        "bic, epochs 12",
        "bic, epochs 6",
    ]
    (protocol,) = compare([runs[0], runs[3]])
    assert sorted(each.label for each in protocol.variants) == [
        "bic, held out 0.1, fast recipe", "bic, held out 0.2, slow recipe"
    ]  # fmt: skip


def test_what_was_not_trained_alike_is_said(tmp_path: Path) -> None:
    slow = plan([2]).recipe.model_copy(update={"epochs": 12, "name": "slow"})
    write_run(tmp_path / "a", [2], recipe=slow)
    write_run(tmp_path / "b", [2], method="distill")
    page = write_report([tmp_path]).read_text()
    assert "were not trained alike, beyond their methods: recipe: " in page
    assert sorted(run["label"] for run in page_data(page)["runs"]) == [
        "bic, slow recipe, seed 0",
        "distill, fast recipe, seed 0",
    ]
    assert re.search("<h1>Best is (bic, slow|distill, fast) recipe: ", page)
    assert "trained alike" not in write_report([tmp_path / "a"], tmp_path / "one.html").read_text()


def test_data_sets_are_told_apart_by_their_names_if_these_differ(tmp_path: Path) -> None:
    def labels(*named: tuple[str, str]) -> list[str]:
        for number, (dataset, fingerprint) in enumerate(named):
            folder = write_run(
                tmp_path / named[0][0] / str(number),
                [2, 2 + number],
                dataset=dataset,
                fingerprint=fingerprint,
            )
        return [run["label"] for run in page_data(write_report([folder.parent]))["runs"]]

    assert labels(("a", "f0"), ("b", "f1")) == ["bic, seed 0, 2 × 2, a", "bic, seed 0, 2, 3, b"]
    same = labels(("c", "f0"), ("c", "f1"))
    assert same == ["bic, seed 0, 2 × 2, fingerprint f0", "bic, seed 0, 2, 3, fingerprint f1"]


def test_a_method_keeps_its_colour_beside_a_variant_of_itself(tmp_path: Path) -> None:
    slow = plan([2]).recipe.model_copy(update={"epochs": 12})
    runs = [load(write_run(tmp_path / name, [2, 2], **settings)) for name, settings in
            (("a", {}), ("b", {"recipe": slow}), ("c", {"method": "lwf"}))]  # fmt: skip
    drawn = curves(compare(runs)[0])["curves"]
    looks = {(curve["colour"], curve["dash"], curve["symbol"]) for curve in drawn}
    assert looks == {
        (COLOURS["bic"], "solid", "circle"),
        (COLOURS["bic"], "longdash", "circle-open"),
        (COLOURS["lwf"], "solid", "triangle-up"),
    }
    assert len({curve["colour"] for curve in curves(compare(runs[:2])[0])["curves"]}) == 2


def test_differences_are_named_and_runs_compared_within_each_protocol(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [2, 2])
    write_run(tmp_path / "b", [2, 2], memory=MemoryBudget(bytes=64_000))
    page = write_report([tmp_path]).read_text()
    assert "2 protocols" in page
    assert "memory: 200 images / 64,000 bytes" in page
    assert len(page_data(page)["protocols"]) == 2
    plans = [flat(load(tmp_path / name).plan) for name in "ab"]
    assert differing(plans) == ["memory"]


def test_times_by_other_means_are_not_to_be_compared(tmp_path: Path) -> None:
    for seed, threads in enumerate([2, 1, 2]):
        folder = write_run(tmp_path / str(seed), [2], seed=seed)
        result = json.loads((folder / "result.json").read_text())
        result["made_with"] |= {"device": "cpu", "threads": threads}
        (folder / "result.json").write_text(json.dumps(result))
    assert "made by different means (threads: 1 / 2)" in write_report([tmp_path]).read_text()
    assert (
        "different means"
        not in write_report([tmp_path / "0", tmp_path / "2"], tmp_path / "alike.html").read_text()
    )


def test_the_command_gives_the_same_request_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {
        "dataset": "photos/of mine",
        "method": "bic",
        "step_sizes": [3, 2],
        "recipe": {"name": "fast", "learning_rate": 0.05, "milestones": [0.5]},
        "memory": {"bytes": 64_000_000},
        "correction_penalty": 0.1,
        "classes": ["a", "b,c"],
        "skip_bad": True,
        "compile": False,
    }
    from bic.cli import app

    said: list[RunConfig] = []
    monkeypatch.setattr(
        "bic.cli.load_settings", lambda *given: said.append(load_settings(*given)) or sys.exit()
    )
    with pytest.raises(SystemExit):
        app(shlex.split(command(asked))[1:])
    assert said[0].model_dump(mode="json", exclude_unset=True) == RunConfig(**asked).model_dump(
        mode="json", exclude_unset=True
    )


def test_a_result_without_its_folder_gets_a_command_from_its_plan() -> None:
    settled = plan([2, 2], dataset="cifar100").model_dump(mode="json")
    assert command(asked_of(settled)) == (
        "bic run cifar100 --data PATH --step-sizes 2,2 --method bic --memory 200 --exemplars herding --held-out 0.1 "
        "--order-seed 1993 --seed 0 --recipe fast --epochs 6 --backbone fast"
    )
    settled["recipe"]["precision"] = "bfloat16"  # which another machine might not have chosen
    assert "--recipe fast --set 'recipe.precision=\"bfloat16\"'" in command(asked_of(settled))


def test_runs_are_found_below_a_folder_and_counted_once(tmp_path: Path) -> None:
    first = write_run(tmp_path / "runs" / "deep" / "a", [2])
    write_run(tmp_path / "runs" / "b", [2], seed=1)
    (tmp_path / "runs" / "package.json").write_text('{"name": "no run"}')
    (tmp_path / "runs" / "copy.json").write_bytes((first / "result.json").read_bytes())
    places = find([tmp_path / "runs", first])
    assert [place.name for place in places] == ["copy.json", "b", "a"]
    data = page_data(write_report([tmp_path / "runs"]))
    assert sorted(run["label"] for run in data["runs"]) == ["bic, seed 0", "bic, seed 1"]
    assert all("bins" in run for run in data["runs"]), (
        "the folder shows more than the copy of its result"
    )


def test_a_bare_result_shows_what_can_be_shown(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [2, 2])
    alone = tmp_path / "bic-seed0.json"
    alone.write_bytes((folder / "result.json").read_bytes())
    (run,) = page_data(write_report([alone], tmp_path / "page.html"))["runs"]
    assert "bins" not in run
    assert "classes" not in run
    assert run["steps"][1]["new"]["true"] == 0.5
    assert run["steps"][1]["scores"]["new"]["width"] == 0.25


def test_results_of_earlier_versions_open(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [2, 2])
    result = json.loads((folder / "result.json").read_text())
    del result["made_with"], result["config"]["classes"], result["config"]["recipe"]["later_rate"]
    (folder / "result.json").write_text(json.dumps(result))
    page = write_report([folder]).read_text()
    assert "versions not recorded" in page
    results = find([Path(__file__).parents[2] / "results"])
    assert results
    for path in results:  # folders that hold a result.json and nothing else
        run = load(path)
        assert (run.result.complete, run.problems, run.answers()) == (True, [], None)
        assert load(path / "result.json").result == run.result


def damage(folder: Path, how: str) -> None:
    result = json.loads((folder / "result.json").read_text())
    changes = {
        "steps": {"steps": []},
        "classes": {"classes": ["a"]},
        "type": {"seed": "first"},
        "settings": {"config": {}},
        "groups": {"steps": [{**step, "top1_per_group": []} for step in result["steps"]]},
        "order": {"steps": result["steps"][::-1]},
    }
    if how in changes:
        (folder / "result.json").write_text(json.dumps({**result, **changes[how]}))
    elif how == "cut":
        (folder / "result.json").write_bytes((folder / "result.json").read_bytes()[:100])
    elif how == "not begun":
        (folder / "result.json").unlink()
    elif how == "newer":
        (folder / "config.json").write_text(
            json.dumps({"format": 99, "asked": {}, "plan": {}, "version": "9"})
        )


@pytest.mark.parametrize(
    "how", ["steps", "classes", "type", "settings", "groups", "order", "cut", "not begun", "newer"]
)
def test_a_damaged_run_is_named_and_the_others_are_shown(tmp_path: Path, how: str) -> None:
    write_run(tmp_path / "good", [2, 2])
    damage(write_run(tmp_path / "bad", [2, 2]), how)
    with pytest.warns(UserWarning, match="/bad"):
        page = write_report([tmp_path], tmp_path / "out.html").read_text()
    assert [run["label"] for run in page_data(page)["runs"]] == ["bic, seed 0"]
    notes = re.search(r'<aside class="notices".*?</aside>', page, re.DOTALL)
    assert notes is not None
    assert "/bad" in notes[0]
    with pytest.raises(UserError, match=r"no run can be shown.*bad"):
        write_report([tmp_path / "bad"], tmp_path / "out.html")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no archive", None])
def test_damaged_predictions_leave_the_rest_of_a_run(tmp_path: Path, content: bytes | None) -> None:
    folder = write_run(tmp_path / "a", [2, 2])
    if content is None:
        np.savez(
            folder / "predictions-2.npz", **{**SECOND, "predicted": [0, 0, 0, 0, 4]}
        )  # there is no class 4
    else:
        (folder / "predictions-2.npz").write_bytes(content)
    page = write_report([folder]).read_text()
    assert "its predictions are damaged" in page
    assert len(page_data(page)["runs"][0]["steps"]) == 2
    assert "bins" not in page_data(page)["runs"][0]


def test_an_unfinished_run_is_shown_as_such(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [2, 2, 2], steps_done=2)
    page = write_report([folder]).read_text()
    assert "unfinished: 2 of 3 steps" in page
    assert re.search(r"<h1>bic is unfinished: [\d.]+ % on 4 classes so far.</h1>", page)
    assert page_data(page)["runs"][0]["label"] == "bic, unfinished, seed 0"


def test_exemplars_are_the_pictures_of_their_class(tmp_path: Path) -> None:
    write_run(tmp_path / "bic", [2, 2], pictures=6, classes=["a", "b", "c", "d"])
    write_run(tmp_path / "lwf", [2, 2], pictures=0, method="lwf", classes=["a", "b", "c", "d"])
    data = page_data(write_report([tmp_path]))
    assert data["pictures"][0].keys() == {"a", "b", "c", "d"}
    assert {len(pictures) for pictures in data["pictures"][0].values()} == {4}
    assert base64.b64decode(data["pictures"][0]["a"][0])[8:12] == b"WEBP"
    assert {run["pictures"] for run in data["runs"]} == {0}
    (tmp_path / "bic/model/memory.parquet").write_bytes(b"no table")
    page = write_report([tmp_path]).read_text()
    assert "its exemplars cannot be shown" in page


HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}",
    "a & b",
]


def test_class_names_and_settings_are_text(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [2, 2], classes=HOSTILE, dataset="<i>mine</i>")
    page = write_report([folder]).read_text()
    assert page_data(page)["names"] == [HOSTILE]
    assert "<img src=x" not in page
    assert "<script>alert" not in page
    assert "<i>mine" not in page
    assert "&lt;i&gt;mine" in page


def test_plotly_is_beside_the_page_or_inside_it(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [2, 2])
    page = write_report([folder]).read_text()
    (source,) = re.findall(r'<script src="(.*?)"', page)
    assert (folder / source).stat().st_size > 1_000_000
    assert len(page) < 300_000
    alone = write_report([folder], tmp_path / "alone" / "page.html", single_file=True)
    assert [path.name for path in alone.parent.iterdir()] == ["page.html"]
    assert "<script src" not in alone.read_text()


def test_pages_stay_small(tmp_path: Path) -> None:
    for number in range(10):
        write_run(
            tmp_path / "many" / str(number),
            [5] * 20,
            seed=number,
            pictures=4 if number == 0 else 0,
            per_class=2,
        )
    page = write_report([tmp_path / "many"], tmp_path / "mail.html", single_file=True)
    assert page.stat().st_size < 8e6
    big = load(write_run(tmp_path / "big", [1000] * 10, per_class=1, pictures=0))
    assert len(render([big], [], "plotly.js")) < 3e6


def test_mistakes_get_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from bic.cli import main

    def said(*arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", ["bic", "report", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert len(captured.err.strip().splitlines()) == 1
        return str(captured.err)

    folder = write_run(tmp_path / "a", [2])
    (tmp_path / "empty").mkdir()
    assert "no run was given" in said()
    assert "does not exist; give" in said(tmp_path / "nowhere")
    assert "no run was found" in said(tmp_path / "empty")
    assert "choose another --out" in said(folder, "--out", folder / "config.json" / "page.html")
    (tmp_path / "folder.html").mkdir()
    assert "choose another --out" in said(folder, "--out", tmp_path / "folder.html")
    assert "must name a page that ends in .html" in said(folder, "--out", folder / "result.json")
    assert load(folder).result.complete
    assert "no run can be shown" in said(__file__)


def test_neither_reports_nor_the_command_line_need_torch() -> None:
    code = """
import importlib, pkgutil, sys
import bic.cli, bic.report
names = [found.name for found in pkgutil.iter_modules(bic.report.__path__)]
for name in names:
    importlib.import_module("bic.report." + name)
assert "page" in names
assert "torch" not in sys.modules
for name in bic.__all__:
    assert getattr(bic, name) is not None
assert callable(bic.run) and "torch" in sys.modules and set(bic.__all__) <= set(dir(bic))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_papers_figure_stands_beside_the_run_that_it_fits(tmp_path: Path) -> None:
    paper = {
        "dataset": "cifar100",
        "memory": MemoryBudget(images=2000),
        "per_class": 2,
        "pictures": 0,
    }
    for held_out in (0.1, 0.2):
        write_run(tmp_path / str(held_out), [20] * 5, held_out=held_out, **paper)
    (protocol,) = compare([load(path) for path in find([tmp_path])])
    found = {row["variant"].label: row["paper"] for row in rows(protocol)}
    assert found == {
        "bic, held out 0.1": (56.69, "top1", "Table 3"),
        "bic, held out 0.2": (54.31, "top1", "Table 4"),
    }
