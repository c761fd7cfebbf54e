"""Settings: checked when they are built, with one sentence that names the path."""

from typing import Any

import pytest
from pydantic import Field, ValidationError, field_validator

from bic import RunConfig, UserError
from bic.settings import Settings, checked, known_paths


class Inner(Settings):
    rate: float = Field(0.1, gt=0)
    sizes: tuple[int, ...] = ()

    @field_validator("sizes")
    @classmethod
    def _rise(cls, sizes: tuple[int, ...]) -> tuple[int, ...]:
        if list(sizes) != sorted(sizes):
            raise ValueError(f"must rise, got {sizes}")
        return sizes


class Outer(Settings):
    name: str
    count: int = Field(1, ge=1)
    inner: Inner = Inner()


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"name": "a", "count": 0}, "count must be greater than or equal to 1, got 0"),
        ({"name": "a", "count": "x"}, "count must be a valid integer, got 'x'"),
        ({"name": "a", "inner": {"rate": -1}}, "inner.rate must be greater than 0, got -1"),
        ({"name": "a", "inner": {"rate": float("nan")}}, "inner.rate must be a finite number"),
        ({"name": "a", "inner": {"sizes": [1, "x"]}}, "inner.sizes must be a valid integer"),
        ({"name": "a", "inner": {"sizes": [2, 1]}}, "inner.sizes must rise, got (2, 1)"),
        ({"name": 5}, "name must be a valid string, got 5"),
    ],
)
def test_first_complaint_is_one_sentence(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError) as caught:
        checked(Outer, values)
    assert caught.value.problem.startswith(problem)
    assert "\n" not in str(caught.value)
    assert caught.value.remedy.startswith("change {")


def test_missing_setting_is_named() -> None:
    with pytest.raises(UserError) as caught:
        checked(Outer, {"count": 2})
    assert caught.value.problem == "the setting name is missing"
    assert caught.value.remedy == "pass {name}"
    with pytest.raises(UserError, match=r"^the setting dataset is missing; pass dataset$"):
        RunConfig()


def test_unknown_setting_suggests_the_closest_path() -> None:
    with pytest.raises(UserError) as caught:
        checked(Outer, {"name": "a", "inner": {"rte": 1}})
    assert caught.value.problem == "unknown setting 'inner.rte'"
    known = "name, count, inner.rate, inner.sizes"
    assert caught.value.remedy == f"did you mean 'inner.rate'? Known: {known}"


def test_path_of_nested_settings_is_kept() -> None:
    with pytest.raises(UserError, match=r"recipe\.rate must be greater than 0, got -1"):
        checked(Inner, {"rate": -1}, under="recipe.")
    assert known_paths(Inner, "recipe.") == ["recipe.rate", "recipe.sizes"]


def test_settings_are_frozen() -> None:
    settings = checked(Outer, {"name": "a"})
    with pytest.raises(ValidationError, match="frozen"):
        settings.count = 2  # type: ignore[misc]
