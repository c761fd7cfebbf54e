"""The picture of the demonstration."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from support.recorded_runs import write_run

from bic.report.plots import accuracy_curves, confusion, draw_demo
from bic.store.results import read_result


def test_the_picture_is_written(tmp_path: Path) -> None:
    methods = ("finetune", "bic", "joint")
    for method in methods:
        write_run(tmp_path / method, [2, 2], method=method, pictures=0)
    results = [read_result(tmp_path / method) for method in methods]
    picture = draw_demo(results, tmp_path)
    assert picture == tmp_path / "demo.png"
    assert picture.stat().st_size > 5000


def test_a_curve_per_method(tmp_path: Path) -> None:
    methods = ("bic", "joint")
    results = [
        read_result(write_run(tmp_path / method, [2, 2], method=method)) for method in methods
    ]
    axes = Figure().add_subplot()
    accuracy_curves(axes, results)
    bic, joint = axes.get_lines()
    assert bic.get_xdata().tolist() == [2, 4]
    assert bic.get_ydata().tolist() == results[0].top1
    assert bic.get_label() == "bic"
    assert joint.get_label() == "joint (sees old data)"
    assert joint.get_linestyle() == "--"


def test_confusions_are_shares_of_the_true_class() -> None:
    axes = Figure().add_subplot()
    true = np.array([0, 0, 1, 2])
    predicted = np.array([0, 2, 1, 2])
    confusion(axes, true, predicted, num_old=2, classes=["a", "b", "c"])
    (image,) = axes.get_images()
    assert image.get_array().tolist() == [[0.5, 0, 0.5], [0, 1, 0], [0, 0, 1]]
    (line,) = axes.get_lines()
    assert line.get_xdata() == [1.5, 1.5]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b", "c"]
