"""The learning process as the server sees it."""

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from bic.serve.job import Job
from bic.serve.learner import Request
from bic.store.learn_report import counted, listed

COMMAND = (sys.executable, "-m", "bic.serve.learner")
STOP_SECONDS = 5.0  # until a process that does not end by itself is killed
MAX_LINE = 2**20
# Shares of a job: reading, training, judging.
READ_SHARE = 0.05
TRAINED_SHARE = 0.9


class LessonProcess:
    """One run of `bic.serve.learner`. It keeps `job` up to date and notes how it ended."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.report: dict[str, Any] | None = None
        self.error: dict[str, Any] | None = None
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self, request: Request) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *COMMAND,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=MAX_LINE,
        )
        assert self._process.stdin is not None
        with suppress(ConnectionError):
            self._process.stdin.write(json.dumps(asdict(request)).encode() + b"\n")
            await self._process.stdin.drain()

    async def next_event(self) -> bool:
        """Wait for an event and put it into the job. False if there are no more."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            return False
        with suppress(ValueError):
            self._apply(json.loads(line))
        return True

    def _apply(self, event: dict[str, Any]) -> None:
        job = self.job
        kind = event["event"]
        if kind == "waiting":
            job.phase = "waiting"
        elif kind == "reading":
            job.phase = "reading"
            job.share = max(job.share, 0.01)
        elif kind == "task":
            self._apply_task(event)
        elif kind == "report":
            self.report = event["report"]
        elif kind == "error":
            self.error = event

    def _apply_task(self, event: dict[str, Any]) -> None:
        job = self.job
        if event["is_training"]:
            job.phase = "training"
            share = READ_SHARE + (TRAINED_SHARE - READ_SHARE) * event["share"]
            job.seconds_left = event["seconds_left"]
        elif job.phase == "training" and job.share >= TRAINED_SHARE - 0.01:
            job.phase = "judging"
            share = TRAINED_SHARE
            job.seconds_left = None
        else:
            share = job.share
        job.share = max(job.share, share)

    async def stop(self) -> None:
        """End the process. The model is intact whenever that happens."""
        if self._process is None or self._process.returncode is not None:
            return
        self._signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), STOP_SECONDS)
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and to the processes that decode for it."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    async def wait(self) -> str:
        """Wait for the end. Returns why the process ended, if it left no report and no error."""
        assert self._process is not None
        code = await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        if code < 0:
            name = signal.Signals(-code).name
            hint = ", most likely because memory ran out" if -code == signal.SIGKILL else ""
            return f"the learning process was killed ({name}){hint}"
        return f"the learning process ended with code {code}"


def done_message(report: dict[str, Any]) -> str:
    """What a lesson that was learned has done, in words."""
    if not report["is_changed"]:
        return f"nothing was learned: {report['note']}"
    parts = []
    for key, one, many in (
        ("new_classes", "new class", "new classes"),
        ("known_classes", "known class", "known classes"),
    ):
        names = tuple(report[key])
        if names:
            parts.append(f"{counted(len(names), one, many)} ({listed(names)})")
    parts.append(counted(report["num_images"], "image"))
    return f"version {report['version']} is live: {', '.join(parts)}"
