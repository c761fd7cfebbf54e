"""The declarations of the paper's experiments, against the numbers in its tables."""

import pytest

from bic.lab.experiments import EXPERIMENTS, experiment
from bic.lab.published import PUBLISHED


@pytest.mark.parametrize(
    ("name", "finals"),
    [
        ("table1", [39.0, 44.0, 52.0, 73.2]),
        ("table2", [65.56, 87.98]),
        ("table3", [39.83, 40.34, 56.69, 60.93]),
        ("table4", [56.69, 54.31, 53.74, 51.17]),
        ("table5", [55.55, 56.69]),
    ],
)
def test_the_final_accuracies_are_those_of_the_papers_table(name: str, finals: list[float]) -> None:
    assert [line.paper[-1] for line in EXPERIMENTS[name].lines()] == finals


def test_the_average_over_steps_is_the_papers() -> None:
    bic = EXPERIMENTS["table3"].lines()[2]
    assert sum(bic.paper) / 5 == pytest.approx(68.912)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_line_has_an_accuracy_for_each_step_or_none(name: str) -> None:
    for line in EXPERIMENTS[name].lines():
        assert len(line.paper) in (0, line.settings["steps"])


def test_results_are_compared_in_the_papers_metric() -> None:
    metrics = {(curve.dataset, curve.accuracies): curve.metric for curve in PUBLISHED}
    panels = [panel for declared in EXPERIMENTS.values() for panel in declared.panels]
    for panel in panels:
        for line in panel.lines:
            key = (line.settings["dataset"], line.paper)
            assert panel.metric == metrics.get(key, panel.metric)


def test_upper_bounds_are_those_of_the_methods() -> None:
    bounds = {line.method for line in EXPERIMENTS["fig4"].lines() if line.is_upper_bound}
    assert bounds == {"fc-retrain", "joint"}


def test_two_scales_of_cifar_replace_imagenet_with_the_fast_recipe() -> None:
    fast = experiment("fig1", "fast")
    papers = experiment("fig1", "paper-imagenet")
    assert {line.settings["first_classes"] for line in fast.panels[0].lines} == {20}
    assert {panel.metric for panel in fast.panels} == {"top1"}
    assert {panel.metric for panel in papers.panels} == {"top5"}
    assert "CIFAR-100" in fast.note
