"""A server, and tabs of a browser on its page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.served_page import HOSTILE, SETTINGS, Tab, write_colour
from support.servers import Served, serving

from bic import open_model


@pytest.fixture(scope="package")
def images(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[Path]]:
    """Writes images of a colour; other images for another seed."""
    folder = tmp_path_factory.mktemp("images")
    return lambda name, count=1, seed=9: write_colour(folder, name, count, seed=seed)


@pytest.fixture(scope="package")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server. Its model knows lime and a red class with a hostile name."""
    folder = tmp_path_factory.mktemp("shop")
    write_colour(folder / "first" / "lime", "lime", 10)
    write_colour(folder / "first" / HOSTILE, "ruby", 10)
    open_model(folder / "shop", **SETTINGS).learn(folder / "first")
    with serving(folder / "shop", settings=SETTINGS) as server:
        yield server


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Tab]]:
    """Opens tabs. At the end nothing went wrong in any of them."""
    tabs: list[Tab] = []

    def opened(server: Served, **options: Any) -> Tab:
        tabs.append(Tab(browser, server, **options))
        return tabs[-1]

    yield opened
    for tab in tabs:
        tab.context.close()
        assert tab.problems == []
