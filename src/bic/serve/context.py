"""What the routes share: the model, the queue of lessons, the rules and the counters."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, Request

from bic.serve.access import Access
from bic.serve.batching import Predictor
from bic.serve.failures import no_model
from bic.serve.job_runner import JobRunner
from bic.serve.jobs import Jobs
from bic.serve.limits import Limits
from bic.serve.metrics import Metrics
from bic.serve.pictures import Pictures
from bic.serve.serving import Serving
from bic.store.model_folder import LiveModel, ModelFolder

log = logging.getLogger("uvicorn.error")


class Context:
    """Everything behind the routes. It is made before the event loop and opened inside it."""

    def __init__(
        self,
        folder: ModelFolder,
        settings: Mapping[str, Any],
        state: Path,
        access: Access,
        limits: Limits,
    ) -> None:
        self.folder = folder
        self.access = access
        self.limits = limits
        self.metrics = Metrics()
        self.pictures = Pictures(folder.path)
        self.serving = Serving(folder, self.metrics, self.pictures.clear)
        self.predictor = Predictor(limits, self.metrics)
        self.jobs = Jobs(self.serving, state, limits, self.metrics)
        self.runner = JobRunner(self.jobs, settings)
        self.stopping = asyncio.Event()  # set when the server has been told to stop
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        await self.serving.refresh()
        await self.jobs.open()
        for work in (self.serving.watch(), self.runner.run()):
            task = asyncio.create_task(work)
            task.add_done_callback(_log_failure)
            self._tasks.append(task)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.predictor.close()
        self.serving.close()

    @property
    def has_failed(self) -> bool:
        """Whether the server learns no lessons or notices no versions any more."""
        return any(task.done() for task in self._tasks)

    def live(self) -> LiveModel:
        """The version that answers. Raises ApiError if there is none."""
        if self.serving.live is None:
            raise no_model()
        return self.serving.live


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        log.error("a part of the server has failed", exc_info=task.exception())


async def _context(request: Request) -> Context:  # a plain function would run in a thread
    context: Context = request.app.state.context
    return context


WithContext = Annotated[Context, Depends(_context)]
