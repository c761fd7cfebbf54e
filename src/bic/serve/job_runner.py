"""Learns the jobs of a queue, one at a time, each in a process of its own."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from bic.errors import BicError
from bic.serve.job import Job
from bic.serve.jobs import STOPPED, Jobs
from bic.serve.learner import Request
from bic.serve.lesson_process import LessonProcess, done_message
from bic.store.waiting import WaitingImage

log = logging.getLogger("uvicorn.error")


class JobRunner:
    """Takes one job after another from `jobs`. `settings` are those of a new model."""

    def __init__(self, jobs: Jobs, settings: Mapping[str, Any]) -> None:
        self.jobs = jobs
        self.settings = dict(settings)

    async def run(self) -> None:
        """Learn until cancelled."""
        while True:
            job = await self.jobs.next_queued()
            try:
                await self._learn(job)
            except asyncio.CancelledError:
                await self._stop_process()
                await self.jobs.end(job, "failed", STOPPED)
                raise
            except Exception as error:
                if not isinstance(error, BicError | OSError):
                    log.exception("a job has failed")
                await self._stop_process()
                await self.jobs.end(job, "failed", str(error) or type(error).__name__)
            self.jobs.process = None

    async def _stop_process(self) -> None:
        if self.jobs.process is not None:
            await self.jobs.process.stop()

    async def _learn(self, job: Job) -> None:
        jobs = self.jobs
        job.state = "running"
        job.phase = "starting"
        await jobs.announce()
        await jobs.serving.refresh()
        lesson = await self._taken(job)
        process = LessonProcess(job)
        jobs.process = process
        if job.id in jobs.cancelled or not lesson:
            reason = "it was cancelled" if lesson else "its images were removed"
            await jobs.end(job, "cancelled", reason)
            return
        await process.start(self._request(job, lesson))
        if job.id in jobs.cancelled:  # while the process was starting
            await process.stop()
        while await process.next_event():
            await jobs.announce()
        await self._finish(job, process, await process.wait())

    async def _taken(self, job: Job) -> list[WaitingImage]:
        """The images of a job, with those that were pending."""
        jobs = self.jobs
        if job.takes_pending:
            known = jobs.live_classes() | set(job.classes)  # later jobs bring theirs too late
            is_empty = jobs.serving.live is None
            await jobs.on_disk(lambda: jobs.boxes.take_pending(job.id, known, is_empty=is_empty))
        lesson = await jobs.on_disk(lambda: jobs.boxes.lesson(job.id))
        job.num_images = len(lesson)
        job.classes = sorted({image.class_name for image in lesson})
        return lesson

    def _request(self, job: Job, lesson: list[WaitingImage]) -> Request:
        folder = self.jobs.serving.folder
        return Request(
            model=str(folder.path),
            settings=self.settings,
            paths=[str(image.path) for image in lesson],
            labels=[image.class_name for image in lesson],
            force=job.force,
            max_drop=job.max_drop,
            device=folder.device,
            trust=folder.trust,
        )

    async def _finish(self, job: Job, process: LessonProcess, ending: str) -> None:
        """Note how a process ended. The version that it made is loaded first."""
        jobs = self.jobs
        await jobs.serving.refresh()
        report = process.report
        if report is not None:
            job.report = report
            job.version = report["version"]
            if report["refusal"] is None:
                await jobs.end(job, "done", done_message(report))
            else:
                refusal = f"version {report['version']} was refused: {report['refusal']}"
                await jobs.end(job, "refused", refusal)
        elif job.id in jobs.cancelled:
            await jobs.end(job, "cancelled", "it was cancelled; the model is as it was")
        elif process.error is not None:
            await jobs.end(job, "failed", process.error["message"])
        else:
            await jobs.end(job, "failed", f"{ending}; the model is as it was")
