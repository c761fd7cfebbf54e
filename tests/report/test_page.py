"""The page as a whole: what it says, what it needs, and runs that are odd or damaged."""

import base64
import errno
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from support.recorded_runs import RECIPE, change_result, write_run
from support.report_pages import page_data

from bic.cli import main
from bic.errors import LostError, UserError
from bic.report.page import render, write_report
from bic.report.runs import load

HOSTILE_NAMES = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}",
    "a & b",
]


def test_a_copy_of_a_result_does_not_count_as_another_seed(tmp_path: Path) -> None:
    first = write_run(tmp_path / "runs" / "deep" / "a", [2])
    write_run(tmp_path / "runs" / "b", [2], seed=1)
    (tmp_path / "runs" / "copy.json").write_bytes((first / "result.json").read_bytes())
    runs = page_data(write_report([tmp_path / "runs"]))["runs"]
    assert sorted(run["label"] for run in runs) == ["bic, seed 0", "bic, seed 1"]
    assert all("bins" in run for run in runs), "a folder shows more than a copy of its result"


def test_a_result_alone_shows_what_can_be_shown(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [2, 2])
    alone = tmp_path / "bic-seed0.json"
    alone.write_bytes((folder / "result.json").read_bytes())
    (run,) = page_data(write_report([alone], tmp_path / "page.html"))["runs"]
    assert "bins" not in run
    assert "classes" not in run
    assert run["steps"][1]["new"]["true"] == 0.5
    assert run["steps"][1]["logits"]["new"]["width"] == 0.25


def test_versions_that_were_not_recorded_are_said_to_be_missing(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [2])
    assert "made with bic 0.1.0, torch 2.13.0" in write_report([folder]).read_text()
    change_result(folder, made_with={})
    assert "versions not recorded" in write_report([folder]).read_text()


def test_protocols_are_compared_within_each_and_differences_are_named(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [2, 2])
    write_run(tmp_path / "b", [2, 2], memory="64KB")
    page = write_report([tmp_path]).read_text()
    assert "2 protocols" in page
    assert "memory: 200 images / 64,000 bytes" in page
    assert len(page_data(page)["protocols"]) == 2


def test_runs_that_were_not_trained_alike_are_named(tmp_path: Path) -> None:
    slow = RECIPE.model_copy(update={"epochs": 12, "name": "slow"})
    write_run(tmp_path / "a", [2], recipe=slow)
    write_run(tmp_path / "b", [2], method="distill")
    page = write_report([tmp_path]).read_text()
    assert "differ in their training, not only in their methods: recipe: " in page
    assert sorted(run["label"] for run in page_data(page)["runs"]) == [
        "bic, slow recipe, seed 0",
        "distill, fast recipe, seed 0",
    ]
    assert re.search("<h1>Best is (bic, slow|distill, fast) recipe: ", page)
    single = write_report([tmp_path / "a"], tmp_path / "single.html").read_text()
    assert "differ in their training" not in single


def test_times_on_different_machines_are_not_to_be_compared(tmp_path: Path) -> None:
    for seed, threads in enumerate([2, 1, 2]):
        folder = write_run(tmp_path / str(seed), [2], seed=seed)
        change_result(folder, made_with={"device": "cpu", "threads": threads})
    page = write_report([tmp_path]).read_text()
    assert "the runs used different resources (threads: 1 / 2)" in page
    alike = write_report([tmp_path / "0", tmp_path / "2"], tmp_path / "alike.html")
    assert "different resources" not in alike.read_text()


def test_settings_that_differ_and_settings_that_are_shared(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [2], held_out=0.2)
    write_run(tmp_path / "b", [2], method="eeil")
    page = write_report([tmp_path]).read_text()
    differing = re.search(r'<table class="settings">.*?</table>', page, re.DOTALL)
    shared = re.search(r'<dl class="shared">.*?</dl>', page, re.DOTALL)
    assert differing is not None
    assert shared is not None
    columns = re.findall(r'<th scope="col">(.*?)</th>', differing[0])
    assert columns == ["Run", "held_out"]
    assert "<dt>recipe.optimiser.momentum</dt><dd>0.9</dd>" in shared[0]
    # Settings that only one of the methods has.
    assert "<dt>method_settings.previous_share</dt><dd>0.0</dd>" in shared[0]
    assert "<dt>method_settings.balanced_epochs</dt>" in shared[0]


def test_an_unfinished_run_is_shown_as_such(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [2, 2, 2], steps_done=2)
    page = write_report([folder]).read_text()
    assert "unfinished: 2 of 3 steps" in page
    assert re.search(r"<h1>bic is unfinished: [\d.]+ % on 4 classes so far.</h1>", page)
    assert page_data(page)["runs"][0]["label"] == "bic, unfinished, seed 0"


def test_a_damaged_run_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    write_run(tmp_path / "good", [2, 2])
    change_result(write_run(tmp_path / "bad", [2, 2]), classes=["a"])
    with pytest.warns(UserWarning, match="/bad"):
        page = write_report([tmp_path], tmp_path / "out.html").read_text()
    assert [run["label"] for run in page_data(page)["runs"]] == ["bic, seed 0"]
    notices = re.search(r'<aside class="notices".*?</aside>', page, re.DOTALL)
    assert notices is not None
    assert "/bad" in notices[0]


def test_damaged_runs_alone_are_refused(tmp_path: Path) -> None:
    for name in "ab":
        change_result(write_run(tmp_path / name, [2, 2]), classes=["a"])
    with pytest.raises(UserError, match=r"no run can be shown \(and 1 more\): .*; run it again"):
        write_report([tmp_path])


def test_damaged_predictions_leave_the_rest_of_a_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [2, 2])
    (folder / "predictions-2.npz").write_bytes(b"")
    page = write_report([folder]).read_text()
    assert "its predictions are damaged" in page
    (run,) = page_data(page)["runs"]
    assert len(run["steps"]) == 2
    assert "bins" not in run


def test_exemplars_are_the_pictures_of_their_class(tmp_path: Path) -> None:
    classes = ["a", "b", "c", "d"]
    write_run(tmp_path / "bic", [2, 2], pictures=6, classes=classes)
    write_run(tmp_path / "lwf", [2, 2], pictures=0, method="lwf", classes=classes)
    data = page_data(write_report([tmp_path]))
    (pictures,) = data["pictures"]
    assert pictures.keys() == set(classes)
    assert {len(of_class) for of_class in pictures.values()} == {4}
    assert base64.b64decode(pictures["a"][0])[8:12] == b"WEBP"
    assert {run["pictures"] for run in data["runs"]} == {0}


def test_damaged_exemplars_leave_the_rest_of_a_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [2, 2])
    (folder / "model/memory.parquet").write_bytes(b"no table")
    page = write_report([folder]).read_text()
    assert "its exemplars cannot be shown" in page
    assert "bins" in page_data(page)["runs"][0]


def test_class_names_and_settings_are_plain_text(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [2, 2], classes=HOSTILE_NAMES, dataset="<i>mine</i>")
    page = write_report([folder]).read_text()
    assert page_data(page)["names"] == [HOSTILE_NAMES]
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
    single = write_report([folder], tmp_path / "single" / "page.html", single_file=True)
    assert [path.name for path in single.parent.iterdir()] == ["page.html"]
    assert "<script src" not in single.read_text()


def test_pages_stay_small(tmp_path: Path) -> None:
    for seed in range(10):
        pictures = 4 if seed == 0 else 0
        folder = tmp_path / "many" / str(seed)
        write_run(folder, [5] * 20, seed=seed, pictures=pictures, per_class=2)
    page = write_report([tmp_path / "many"], tmp_path / "mail.html", single_file=True)
    assert page.stat().st_size < 8e6
    large = load(write_run(tmp_path / "large", [1000] * 10, per_class=1, pictures=0))
    assert len(render([large], [], "plotly.js")) < 3e6


def test_a_step_without_new_classes_is_on_the_page(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [2, 2])
    steps = json.loads((folder / "result.json").read_text())["steps"]
    third = {**steps[-1], "step": 3, "top1_per_group": [*steps[-1]["top1_per_group"], None]}
    change_result(folder, steps=[*steps, third])
    (run,) = page_data(write_report([folder]))["runs"]
    assert run["sizes"] == [2, 2, 0]


def test_a_full_disk_is_a_failure_and_leaves_the_page_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(tmp_path / "a", [2])
    page = write_report([folder])
    before = page.read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("bic.files._write_synced", full)
    with pytest.raises(LostError, match=r"cannot write .* \(No space left on device\)"):
        write_report([folder])
    assert page.read_bytes() == before


def test_mistakes_get_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def message(*arguments: object) -> str:
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
    (tmp_path / "folder.html").mkdir()
    inside_a_file = folder / "config.json" / "page.html"
    assert "no run was given; give a folder" in message()
    assert "does not exist; give a folder" in message(tmp_path / "nowhere")
    assert "no run was found there; give a folder" in message(tmp_path / "empty")
    assert "choose another --out" in message(folder, "--out", inside_a_file)
    assert "choose another --out" in message(folder, "--out", tmp_path / "folder.html")
    assert "ends in .html" in message(folder, "--out", folder / "result.json")
    assert load(folder).result.complete
    assert "no run can be shown" in message(__file__)
