"""Tests run in parallel processes on small networks: one thread in each is fastest."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import torch

torch.set_num_threads(1)

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    # A camera that shows a test picture, without a question to the user.
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The only browser of a process: playwright cannot be started twice at the same time.

    It keeps an asyncio loop in the main thread. Tests that need a loop use a thread of their own.
    """
    sync_api = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed (Debian: apt install chromium)")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield opened
        opened.close()
