"""The version that answers, without HTTP."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bic import open_model
from bic.serve import serving
from bic.serve.metrics import Metrics
from bic.serve.serving import Serving


def test_versions_are_noticed_after_memory_ran_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[str] = []

    def fail(_: Serving) -> None:
        attempts.append("one more")
        raise MemoryError

    async def watch() -> str | None:
        path = tmp_path / "shop" / "live.json"
        path.parent.mkdir()
        found = Serving(open_model(path.parent), Metrics(), lambda: None)
        watching = asyncio.create_task(found.watch())
        for number in range(2):
            await asyncio.sleep(0.05)
            path.write_text("x" * number)
            while len(attempts) == number and not watching.done():
                await asyncio.sleep(0.01)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        found.close()
        return found.problem

    monkeypatch.setattr(serving, "WATCH_SECONDS", 0.01)
    monkeypatch.setattr(Serving, "_load", fail)
    with ThreadPoolExecutor(1) as thread:  # tests in a browser keep a loop in the main thread
        assert thread.submit(asyncio.run, watch()).result(60) == "MemoryError"
    assert len(attempts) == 2
