"""How many images a run trains on, counted by hand."""

from __future__ import annotations

import pytest
from support.training import plain_recipe

from bic import METHODS
from bic.learn.effort import images_trained_on, update_cost


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("bic", 3 * 200 + 2 * (800 + 4 * 100)),  # 100 exemplars in each of four later steps
        ("lwf", 3 * 200 + 2 * 800),
        ("joint", 3 * (200 + 400 + 600 + 800 + 1000)),
    ],
)
def test_images_are_counted_over_all_epochs_of_all_steps(method: str, expected: int) -> None:
    recipe = plain_recipe(epochs=2, first_epochs=3)
    count = images_trained_on(
        recipe, METHODS[method], num_images=1000, num_exemplars=100, num_steps=5
    )
    assert count == expected


def test_there_are_never_more_exemplars_than_images() -> None:
    recipe = plain_recipe(epochs=1)
    count = images_trained_on(
        recipe, METHODS["bic"], num_images=1000, num_exemplars=5000, num_steps=2
    )
    assert count == 500 + 500 + 1000


def test_a_teacher_adds_a_third_to_the_cost_of_an_update() -> None:
    assert update_cost(METHODS["bic"]) == pytest.approx(4 / 3)
    assert update_cost(METHODS["finetune"]) == 1
