"""What several tests of the report use."""

from pathlib import Path

import pytest


@pytest.fixture
def results_folder() -> Path:
    """The runs that are recorded in this repository."""
    return Path(__file__).parents[2] / "results"
