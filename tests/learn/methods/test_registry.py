"""The registry of methods: one file and one entry add a method everywhere."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table
from support.toy import toy_dataset
from torch import Tensor

import bic
from bic import METHODS, Method, Model, RunConfig, UserError
from bic.learn.losses import Losses, classification
from bic.learn.methods import ALL, find_method
from bic.report import tables
from bic.report.looks import look_of


def test_all_methods_of_the_paper_are_there() -> None:
    names = {"finetune", "distill", "bic", "lwf", "icarl", "eeil", "fc-retrain", "joint"}
    assert names <= METHODS.keys()
    upper_bounds = {name for name in names if METHODS[name].is_upper_bound}
    assert upper_bounds == {"fc-retrain", "joint"}


def test_every_method_can_be_told_apart_in_a_picture() -> None:
    for look in ("colour", "marker", "symbol", "summary"):
        values = [getattr(method, look) for method in METHODS.values()]
        assert len(set(values)) == len(values), look


def test_methods_are_found_by_their_names() -> None:
    for name, method in ALL.items():
        assert method.name == name
        assert find_method(name) is method
        assert (name in METHODS) == method.listed


def test_an_unknown_method_suggests_the_closest(tmp_path: Path) -> None:
    config = RunConfig(dataset="toy", steps=3, method="distil")
    with pytest.raises(UserError, match=r"unknown method 'distil'; did you mean 'distill'"):
        bic.run(config, tmp_path, data=toy_dataset(0.7))


def printed(table: Table) -> str:
    text = io.StringIO()
    Console(width=120, file=text).print(table)
    return text.getvalue()


def test_a_method_is_added_by_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    num_batches = 0

    def loss(
        logits: Tensor, labels: Tensor, teacher: Tensor | None, classes_per_step: Sequence[int]
    ) -> Losses:
        nonlocal num_batches
        num_batches += 1
        return {"twice": 2 * classification(logits, labels)}

    twice = Method(name="twice", summary="twice the loss", loss=loss, colour="#123456")
    for registry in (ALL, METHODS):
        monkeypatch.setitem(registry, "twice", twice)
    config = RunConfig(
        dataset="toy",
        method="twice",
        steps=3,
        memory=36,
        recipe={"name": "demo", "epochs": 2, "batch_size": 8},
    )
    result = bic.run(config, tmp_path / "run", data=toy_dataset(0.4))
    # Two epochs of 48, 84 and 84 images, in batches of 8.
    assert num_batches == 2 * (6 + 10 + 10)
    assert result.method == bic.read_result(tmp_path / "run").method == "twice"
    assert result.final_top1 > 40  # chance is 16.7
    assert len(Model.load(tmp_path / "run").classes) == 6

    assert look_of("twice").colour == "#123456"
    assert "twice on toy, seed 0" in printed(tables.steps(result))
    rows = [line.split() for line in printed(tables.comparison([result])).splitlines()]
    (row,) = [cells for cells in rows if "twice" in cells]
    assert row[:4] == ["twice", *(f"{top1:.2f}" for top1 in result.top1)]


HELP_WITH_ANOTHER_METHOD = """
from dataclasses import replace
from bic.learn import methods

twice = replace(methods.METHODS["finetune"], name="twice")
methods.METHODS["twice"] = twice

from bic.cli import app
app(["run", "--help"])
"""


def test_the_help_lists_the_methods_of_the_registry() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELP_WITH_ANOTHER_METHOD],
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=True,
    )
    for name in (*METHODS, "twice"):
        assert name in done.stdout
