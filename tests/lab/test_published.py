"""The paper's numbers are shown only beside runs of its protocol."""

from typing import Any

import pytest
from support.recorded_runs import plan_settings

from bic.lab.published import PUBLISHED

TABLE_3 = [("finetune", 39.83), ("distill", 40.34), ("bic", 56.69), ("fc-retrain", 60.93)]


def fitting(**changes: Any) -> list[tuple[str, float]]:
    """The method and final accuracy of all published curves that fit a run."""
    plan = plan_settings([20] * 5, **{"dataset": "cifar100", "memory": 2000, **changes})
    return [(curve.method, curve.accuracies[-1]) for curve in PUBLISHED if curve.fits(plan)]


@pytest.mark.parametrize("changes", [{}, {"method": "lwf", "seed": 3}])
def test_method_and_seed_do_not_matter(changes: dict[str, Any]) -> None:
    assert fitting(**changes) == TABLE_3


def test_each_table_has_its_own_settings() -> None:
    assert fitting(held_out=0.2) == [("bic", 54.31)]
    assert fitting(exemplars="random") == [("bic", 55.55)]


@pytest.mark.parametrize(
    "changes", [{"memory": 1000}, {"order_seed": 1}, {"dataset": "digits"}, {"classes": ["a"]}]
)
def test_other_protocols_have_no_published_results(changes: dict[str, Any]) -> None:
    assert fitting(**changes) == []


def test_every_curve_has_an_accuracy_for_each_step() -> None:
    kinds = {(curve.dataset, curve.metric, len(curve.accuracies)) for curve in PUBLISHED}
    assert kinds == {
        ("imagenet1000", "top5", 10),
        ("celeb10000", "top1", 10),
        ("cifar100", "top1", 5),
    }
