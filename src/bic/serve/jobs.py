"""The queue of lessons: one is learned at a time, in a process of its own."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from bic.errors import BicError
from bic.serve.failures import ApiError, too_many
from bic.serve.job import MOST_JOBS, Job, JobRecords, State, new_job
from bic.serve.lesson_box import Digests, LessonBoxes, Readiness, in_words, readiness
from bic.serve.lesson_process import LessonProcess
from bic.serve.limits import Limits
from bic.serve.metrics import Metrics
from bic.serve.serving import Serving
from bic.store.class_names import checked_names
from bic.store.learn_report import counted

STOPPED = "the server was stopped; try the job again, and it continues where it was"
KEEP_ALIVE_SECONDS = 15.0  # between two events about a job that does not change

Value = TypeVar("Value")
log = logging.getLogger("uvicorn.error")


@dataclass(frozen=True)
class Options:
    """How to learn, beside the images."""

    force: bool = False
    max_drop: float = 10.0


@dataclass(frozen=True)
class Pending:
    """The images that wait for the next lesson."""

    images: Digests
    ready: Readiness


class Jobs:
    """Jobs and the images that wait for them. Used by the event loop; files by a thread."""

    def __init__(self, serving: Serving, state: Path, limits: Limits, metrics: Metrics) -> None:
        self.serving = serving
        self.limits = limits
        self.metrics = metrics
        self.boxes = LessonBoxes(serving.folder.path)
        self.records = JobRecords(state / "jobs")
        self.jobs: dict[str, Job] = {}
        self.num_streams = 0
        self._files = asyncio.Lock()
        self._changed = asyncio.Condition()
        self.wake = asyncio.Event()
        self.process: LessonProcess | None = None
        self.cancelled: set[str] = set()

    async def open(self) -> None:
        """Read the jobs of earlier servers. Those that did not end have failed."""
        for job in await self.on_disk(self.records.load):
            self.jobs[job.id] = job
        for job in self.active():
            await self.end(job, "failed", STOPPED)
        for job in self.jobs.values():
            job.can_retry = await self.on_disk(partial(self._has_images, job))
        await self.on_disk(lambda: self.boxes.adopt_strays(set(self.jobs)))

    def _has_images(self, job: Job) -> bool:
        return bool(self.boxes.lesson(job.id))

    async def on_disk(self, work: Callable[[], Value]) -> Value:
        """Run work with files in a thread, one at a time."""
        async with self._files:
            return await asyncio.to_thread(work)

    def active(self) -> list[Job]:
        """The jobs that wait or run, oldest first."""
        return [job for job in self.jobs.values() if not job.has_ended]

    def find(self, job_id: str) -> Job:
        job = self.jobs.get(job_id)
        if job is None:
            raise ApiError(404, "there is no such job", "see /v1/jobs")
        return job

    def live_classes(self) -> set[str]:
        """The classes that the version that answers can predict."""
        if self.serving.live is None:
            return set()
        model = self.serving.live.model
        return {model.classes[position] for position in model.active}

    def known(self) -> set[str]:
        """The classes that a lesson that is sent now will find."""
        names = self.live_classes()
        for job in self.active():
            names |= set(job.classes)
        return names

    @property
    def is_empty(self) -> bool:
        """Whether a lesson that is sent now will be the first one."""
        return self.serving.live is None and not self.active()

    async def pending(self) -> Pending:
        images = await self.on_disk(self.boxes.pending.digests)
        return Pending(images, readiness(images, self.known(), is_empty=self.is_empty))

    async def add_pending(self, class_name: str, images: Sequence[bytes]) -> str:
        """Keep images for the next lesson. Returns the name of their class."""
        (name,) = await self._checked([class_name])
        await self._refuse_too_much(images)
        await self.on_disk(lambda: self.boxes.pending.add(name, images))
        return name

    async def _checked(self, names: Sequence[str]) -> tuple[str, ...]:
        """Class names that fit each other and all known names. Raises UserError."""
        waiting = await self.on_disk(self.boxes.pending.digests)
        return checked_names(names, self.known() | set(waiting))

    async def _refuse_too_much(self, images: Sequence[bytes]) -> None:
        found = await self.on_disk(self.boxes.pending.images)
        num_bytes = await self.on_disk(self.boxes.pending.num_bytes)
        num_bytes += sum(map(len, images))
        is_full = len(found) + len(images) > self.limits.pending_images
        if is_full or num_bytes > self.limits.pending_bytes:
            raise too_many(f"{counted(len(found), 'image')} wait for the next lesson already")

    async def remove_pending(self, class_name: str | None) -> None:
        box = self.boxes.pending
        if class_name is None:
            await self.on_disk(box.clear)
        else:
            await self.on_disk(lambda: box.remove(class_name))

    async def submit(
        self, images: Mapping[str, Sequence[bytes]], options: Options
    ) -> tuple[Job | None, str]:
        """Queue a lesson with these images and the pending ones.

        Classes that cannot be learned yet become pending. Returns no job if that is all of them,
        and what happened in words.
        """
        self._refuse_full_queue()
        names = await self._checked(list(images))
        await self._refuse_too_much([image for contents in images.values() for image in contents])
        self._refuse_full_queue()
        is_empty = self.is_empty
        known = self.known()
        job = new_job([], 0, force=options.force, max_drop=options.max_drop)

        def store() -> tuple[Digests, Digests, Readiness]:
            own = self.boxes.own(job.id)
            for name, contents in zip(names, images.values(), strict=True):
                own.add(name, contents)
            found = own.digests()
            together = self.boxes.with_pending(job.id)
            ready = readiness(together, known, is_empty=is_empty)
            for name in found:
                if name not in ready.ready:
                    own.move(name, self.boxes.pending)
            self.boxes.take_pending(job.id, known, is_empty=is_empty)
            lesson = {name: together[name] for name in ready.ready}
            return found, lesson, ready

        sent, lesson, ready = await self.on_disk(store)
        if not lesson:
            await self.on_disk(lambda: self.boxes.clear(job.id))
            return None, _waiting_message(sent, ready)
        job.classes = list(lesson)
        job.num_images = sum(map(len, lesson.values()))
        await self._enqueue(job)
        message = f"{in_words(lesson)} will be learned"
        return job, f"{message}; {ready.problem}" if ready.problem else message

    def _refuse_full_queue(self) -> None:
        if len(self.active()) >= self.limits.queued_jobs:
            raise too_many(f"{len(self.active())} lessons wait already")

    async def _enqueue(self, job: Job) -> None:
        self.jobs[job.id] = job
        try:
            await self.on_disk(lambda: self.records.save(job))
        except BicError as error:
            if (
                job.state == "queued"
            ):  # its caller is told that it failed, so it must not be learned
                self.cancelled.add(job.id)
                await self.end(job, "failed", str(error))
            raise
        self.wake.set()
        await self.announce()

    async def retry(self, old: Job, options: Options) -> Job:
        """Queue the images of a job again. A refused version needs exactly the same images."""
        if not old.can_retry:
            raise ApiError(409, f"the images of job {old.id} are gone", "send them again")
        self._refuse_full_queue()
        old.can_retry = False
        job = new_job(list(old.classes), old.num_images, **vars(options))
        job.takes_pending = old.state != "refused"
        await self.on_disk(lambda: self.boxes.hand_over(old.id, job.id))
        await self.on_disk(lambda: self.records.save(old))
        await self._enqueue(job)
        return job

    async def cancel(self, job: Job) -> None:
        """Take a job from the queue, or stop it."""
        if job.has_ended:
            raise ApiError(409, f"job {job.id} has ended", "roll back to undo a lesson")
        self.cancelled.add(job.id)
        if job.state == "queued":
            await self.end(job, "cancelled", "it was cancelled before it started")
            return
        if self.process is not None and self.process.job is job:
            await self.process.stop()
        await self.ended(job)

    async def next_queued(self) -> Job:
        """Wait for a job to learn."""
        while True:
            for job in self.jobs.values():
                if job.state == "queued" and job.id not in self.cancelled:
                    return job
            self.wake.clear()
            await self.wake.wait()

    async def end(self, job: Job, state: State, message: str) -> None:
        """The only place where a job ends: its images stay, wait again, or are deleted."""

        ended = [job, *(other for other in self.jobs.values() if other.has_ended)]

        def settle() -> None:
            if state == "done":
                for other in ended:
                    self.boxes.clear(other.id)
            elif state != "refused":
                self.boxes.give_back(job.id)

        await self._tried(self.on_disk(settle))
        has_images = await self._tried(self.on_disk(partial(self._has_images, job)))
        if state == "done":
            for other in self.jobs.values():
                other.can_retry = False
        job.end(state, message)
        self.cancelled.discard(job.id)
        job.can_retry = state != "done" and bool(has_images)
        self.metrics.jobs[state] += 1
        await self._tried(self.on_disk(lambda: self.records.save(replace(job))))
        await self._tried(self._forget_old())
        await self.announce()

    async def _tried(self, work: Coroutine[Any, Any, Value]) -> Value | None:
        """Do a part of ending a job. The job ends also if it fails, as with a full disk."""
        try:
            return await work
        except Exception:
            log.exception("the files of a job that has ended cannot be read or changed")
            return None

    async def _forget_old(self) -> None:
        old = [job for job in self.jobs.values() if job.has_ended][:-MOST_JOBS]
        for job in old:
            del self.jobs[job.id]

        def forget() -> None:
            for job in old:
                self.boxes.clear(job.id)
                self.records.forget(job)

        await self.on_disk(forget)

    async def announce(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def ended(self, job: Job) -> None:
        """Wait until a job has ended."""
        async with self._changed:
            await self._changed.wait_for(lambda: job.has_ended)

    async def events(self, job: Job) -> AsyncIterator[Job | None]:
        """The job whenever it has changed, until it has ended. None: it has not changed."""
        is_changed = True
        while True:
            is_last = job.has_ended
            yield job if is_changed or is_last else None
            if is_last:
                return
            is_changed = job.has_ended or await self._changes_soon()

    async def _changes_soon(self) -> bool:
        """Wait for a change, but not for long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(KEEP_ALIVE_SECONDS), self._changed:
                await self._changed.wait()
                return True
        return False


def _waiting_message(sent: Digests, ready: Readiness) -> str:
    if not sent:
        return f"there is nothing to learn{': ' + ready.problem if ready.problem else ''}"
    return f"kept for the next lesson: {in_words(sent)}; {ready.problem}"
