"""The version that answers now. A new one takes its place once it is loaded."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bic.errors import BicError
from bic.model.version_files import is_versioned
from bic.model.versions import LIVE
from bic.serve.batching import use_one_thread
from bic.serve.metrics import Metrics
from bic.store.model_folder import LiveModel, ModelFolder

WATCH_SECONDS = 0.25  # between two looks at live.json

log = logging.getLogger("uvicorn.error")


class Serving:
    """Holds the live model, and notices when any process makes another version live.

    A request takes `live` once and uses it to its end. So an answer comes from one version, and a
    version that is replaced still answers the requests that began with it.
    """

    def __init__(
        self, folder: ModelFolder, metrics: Metrics, on_change: Callable[[], None]
    ) -> None:
        self.folder = folder
        self.metrics = metrics
        self.on_change = on_change
        self.live: LiveModel | None = None
        self.problem: str | None = None  # why the present version could not be loaded
        self._lock = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, "load", use_one_thread)

    async def refresh(self) -> None:
        """Load the live version, unless it is loaded already.

        If that fails, the version that answers stays.
        """
        async with self._lock:
            loop = asyncio.get_running_loop()
            try:
                live = await loop.run_in_executor(self._thread, self._load)
            except Exception as error:  # also those of torch, when memory runs out
                if not isinstance(error, BicError | OSError):
                    log.exception("a version cannot be loaded")
                self.problem = str(error) or type(error).__name__
                return
            self.problem = None
            if live is not None and live is not self.live:
                self.metrics.num_loads += 1
                self.live = live
                self.on_change()

    def _load(self) -> LiveModel | None:
        return self.folder.live if is_versioned(self.folder.path) else None

    async def watch(self) -> None:
        """Look for changes until cancelled."""
        path = self.folder.path / LIVE
        seen = _signature(path)
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            present = _signature(path)
            if present != seen:
                await self.refresh()
                seen = present

    def close(self) -> None:
        self._thread.shutdown(wait=False)


def _signature(path: Path) -> tuple[int, int, int] | None:
    """What changes when the file is replaced."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_ino, state.st_mtime_ns, state.st_size
