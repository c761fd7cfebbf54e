"""A server that tests share as long as they do not change its model."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.servers import Served, serving, taught


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with two versions, to be copied or only read."""
    return taught(tmp_path_factory.mktemp("served") / "shop", "ab", "c")


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(model, state=tmp_path_factory.mktemp("state")) as served:
        yield served
