"""The queue of lessons without HTTP: events, records, and what a server finds when it starts."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import get_ident
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import numpy as np
import pytest
from support.servers import pictures, png

from bic import UserError, open_model
from bic.errors import LostError
from bic.serve.job import MOST_JOBS, JobRecords, new_job
from bic.serve.job_runner import JobRunner
from bic.serve.jobs import Jobs, Options
from bic.serve.learner import Request
from bic.serve.lesson_box import readiness
from bic.serve.limits import Limits
from bic.serve.metrics import Metrics
from bic.serve.serving import Serving
from bic.store.model_folder import LiveModel

Value = TypeVar("Value")
IMAGES = {
    "a": [image for _, image in pictures("a", 3)],
    "b": [image for _, image in pictures("b", 3)],
}


def run(work: Coroutine[Any, Any, Value]) -> Value:
    """Run work in a thread of its own: tests in a browser keep a loop in the main thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def queue(folder: Path) -> Jobs:
    metrics = Metrics()
    serving = Serving(open_model(folder / "shop"), metrics, lambda: None)
    return Jobs(serving, folder / "state", Limits(), metrics)


def pretend_live(jobs: Jobs, *classes: str) -> None:
    """Let the queue believe that a version with these classes answers."""
    model = SimpleNamespace(classes=classes, active=range(len(classes)))
    jobs.serving.live = cast(LiveModel, SimpleNamespace(model=model))


class PretendedProcess:
    """A learning process that says nothing and never ends, unless it is stopped.

    With `is_broken`, it says something that the server does not understand.
    """

    def __init__(self, *, is_broken: bool = False) -> None:
        self.is_broken = is_broken
        self.started: asyncio.Queue[Request] = asyncio.Queue()
        self.stopped = asyncio.Event()

    async def start(self, request: Request) -> None:
        await self.started.put(request)

    async def next_event(self) -> bool:
        if self.is_broken:
            raise KeyError("event")
        await self.stopped.wait()
        return False

    async def stop(self) -> None:
        self.stopped.set()


def test_the_last_event_is_never_lost(tmp_path: Path) -> None:
    """Also if the job ends while its listener is busy with an earlier event."""

    async def listen() -> list[str]:
        jobs = queue(tmp_path)
        job, _ = await jobs.submit(IMAGES, Options())
        assert job is not None
        events = jobs.events(job)
        states = []
        async for state in events:
            assert state is not None
            states.append(state.state)
            if len(states) == 1:
                await jobs.end(job, "failed", "no luck")
        return states

    assert run(asyncio.wait_for(listen(), 60)) == ["queued", "failed"]


def test_a_listener_is_kept_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bic.serve.jobs.KEEP_ALIVE_SECONDS", 0.01)

    async def listen() -> None:
        jobs = queue(tmp_path)
        job, _ = await jobs.submit(IMAGES, Options())
        assert job is not None
        events = jobs.events(job)
        assert await anext(events) is job
        assert await anext(events) is None
        await events.aclose()

    run(listen())


def test_a_server_that_starts_again_finds_its_jobs(tmp_path: Path) -> None:
    async def first() -> str:
        jobs = queue(tmp_path)
        job, _ = await jobs.submit(IMAGES, Options(force=True))
        assert job is not None
        return job.id

    async def second(job_id: str) -> Jobs:
        jobs = queue(tmp_path)
        await jobs.open()
        job = jobs.find(job_id)
        assert (job.state, job.can_retry, job.force) == ("failed", True, True)
        return jobs

    job_id = run(first())
    jobs = run(second(job_id))
    jobs.boxes.clear(job_id)

    async def third() -> None:
        jobs = queue(tmp_path)
        await jobs.open()
        assert not jobs.find(job_id).can_retry

    run(third())


def test_images_of_a_forgotten_job_become_pending(tmp_path: Path) -> None:
    async def start() -> None:
        jobs = queue(tmp_path)
        job, _ = await jobs.submit(IMAGES, Options())
        assert job is not None
        jobs.records.forget(job)
        again = queue(tmp_path)
        await again.open()
        found = await again.pending()
        assert {name: len(images) for name, images in found.images.items()} == {"a": 3, "b": 3}

    run(start())


def test_a_queued_lesson_has_taken_the_pending_images(tmp_path: Path) -> None:
    async def send() -> None:
        jobs = queue(tmp_path)
        await jobs.add_pending("a", IMAGES["a"])
        job, message = await jobs.submit({"b": IMAGES["b"], "thin": IMAGES["a"][:1]}, Options())
        assert job is not None
        assert message.startswith("5 images of 2 classes (b, a) will be learned")
        assert set((await jobs.pending()).images) == {"thin"}
        await jobs.cancel(job)
        found = await jobs.pending()
        assert {name: len(images) for name, images in found.images.items()} == {"a": 2, "thin": 1}

    run(send())


def test_images_of_a_class_that_a_later_lesson_brings_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def send() -> None:
        process = PretendedProcess()
        monkeypatch.setattr("bic.serve.job_runner.LessonProcess", lambda job: process)
        jobs = queue(tmp_path)
        pretend_live(jobs, "cup", "hat")
        await jobs.submit({"a": IMAGES["a"]}, Options())
        await jobs.submit({"b": IMAGES["b"][:2]}, Options())
        await jobs.add_pending("b", IMAGES["b"][2:])
        await jobs.add_pending("cup", [png(np.zeros((8, 8)))])
        runner = asyncio.create_task(JobRunner(jobs, {}).run())
        request = await process.started.get()
        assert request.labels == ["a", "a", "a", "cup"]
        found = await jobs.pending()
        assert {name: len(images) for name, images in found.images.items()} == {"b": 1}
        runner.cancel()
        await asyncio.gather(runner, return_exceptions=True)

    run(asyncio.wait_for(send(), 60))


def test_the_last_correction_of_an_image_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the lesson with the first one is queued already, and if it is given back."""

    async def send() -> None:
        process = PretendedProcess()
        monkeypatch.setattr("bic.serve.job_runner.LessonProcess", lambda job: process)
        jobs = queue(tmp_path)
        pretend_live(jobs, "cup", "hat", "mug")
        await jobs.add_pending("cup", IMAGES["a"][:1])
        job, _ = await jobs.submit({}, Options())
        assert job is not None
        await jobs.add_pending("hat", IMAGES["a"][:1])
        runner = asyncio.create_task(JobRunner(jobs, {}).run())
        request = await process.started.get()
        assert request.labels == ["hat"]
        await jobs.add_pending("mug", IMAGES["a"][:1])
        runner.cancel()
        await asyncio.gather(runner, return_exceptions=True)
        assert set((await jobs.pending()).images) == {"mug"}

    run(asyncio.wait_for(send(), 60))


def test_records_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    records = JobRecords(tmp_path)
    job = new_job(["a"], 3)
    records.save(job)
    (tmp_path / "20260101-000000-abcdef.json").write_text("{")
    (tmp_path / "20260101-000000-abcdee.json").write_text("[]")
    (tmp_path / "other.json").write_bytes((tmp_path / f"{job.id}.json").read_bytes())
    assert records.load() == [job]


def test_old_jobs_are_forgotten(tmp_path: Path) -> None:
    async def fill() -> None:
        jobs = queue(tmp_path)
        for number in range(MOST_JOBS + 3):
            job = new_job(["a"], number)
            jobs.jobs[job.id] = job
            await jobs.end(job, "failed", "no luck")
        assert len(jobs.jobs) == MOST_JOBS
        assert min(job.num_images for job in jobs.jobs.values()) == 3
        assert len(jobs.records.load()) == MOST_JOBS

    run(fill())


def test_requests_do_not_wait_while_jobs_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread deletes their images, and no other thread changes files meanwhile."""

    async def fill() -> None:
        jobs = queue(tmp_path)
        for number in range(MOST_JOBS):
            job = new_job(["a"], number)
            job.end("failed", "no luck")
            jobs.jobs[job.id] = job
        oldest = next(iter(jobs.jobs))
        last, _ = await jobs.submit(IMAGES, Options())
        assert last is not None
        cleared = []

        def clear(job_id: str) -> None:
            cleared.append((job_id, get_ident() != loop_thread, jobs._files.locked()))

        loop_thread = get_ident()
        monkeypatch.setattr(jobs.boxes, "clear", clear)
        await jobs.cancel(last)
        assert cleared == [(oldest, True, True)]
        assert jobs.cancelled == set()

    run(fill())


def test_a_server_starts_with_as_many_ended_jobs_as_it_remembers(tmp_path: Path) -> None:
    """And one more that did not end: the oldest of them is forgotten."""

    async def start() -> None:
        jobs = queue(tmp_path)
        for number in range(MOST_JOBS + 1):
            job = replace(new_job(["a"], number), id=f"20260101-{number:06}-abcdef")
            if number < MOST_JOBS:
                job.end("failed", "no luck")
            jobs.records.save(job)
        await jobs.open()
        assert len(jobs.jobs) == MOST_JOBS
        assert {job.state for job in jobs.jobs.values()} == {"failed"}
        assert min(job.num_images for job in jobs.jobs.values()) == 1

    run(start())


def full_disk(*_: Any) -> None:
    raise LostError("the disk is full", "make room")


def test_a_full_disk_does_not_end_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def learn() -> None:
        jobs = queue(tmp_path)
        first, _ = await jobs.submit(IMAGES, Options())
        second, _ = await jobs.submit(IMAGES, Options())
        assert first is not None
        assert second is not None
        broken = PretendedProcess(is_broken=True)
        processes = {first.id: broken, second.id: PretendedProcess()}
        monkeypatch.setattr("bic.serve.job_runner.LessonProcess", lambda job: processes[job.id])
        monkeypatch.setattr(jobs.records, "save", full_disk)
        monkeypatch.setattr(jobs.boxes, "give_back", full_disk)
        runner = asyncio.create_task(JobRunner(jobs, {}).run())
        await processes[second.id].started.get()
        assert (first.state, first.can_retry, second.state) == ("failed", True, "running")
        assert broken.stopped.is_set()
        runner.cancel()
        await asyncio.gather(runner, return_exceptions=True)
        assert second.state == "failed"

    run(asyncio.wait_for(learn(), 60))


def test_a_job_that_cannot_be_recorded_is_not_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def send() -> None:
        jobs = queue(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(jobs.records, "save", full_disk)
            with pytest.raises(LostError):
                await jobs.submit(IMAGES, Options())
        (job,) = jobs.jobs.values()
        assert (job.state, job.message) == ("failed", "the disk is full; make room")
        assert jobs.active() == []
        later, _ = await jobs.submit(
            IMAGES, Options()
        )  # the same images wait, so they are sent again
        assert (await jobs.next_queued()) is later

    run(asyncio.wait_for(send(), 60))


def test_the_names_of_classes_must_fit_each_other(tmp_path: Path) -> None:
    async def send() -> None:
        jobs = queue(tmp_path)
        await jobs.add_pending("a", IMAGES["a"])
        for other in ("A", "a/b", ""):
            with pytest.raises(UserError):
                await jobs.add_pending(other, IMAGES["b"])
        with pytest.raises(UserError):
            await jobs.submit({"A": IMAGES["b"]}, Options())

    run(send())


def test_readiness() -> None:
    images = {"a": {"1", "2"}, "b": {"3"}}
    first = readiness(images, set(), is_empty=True)
    assert first.ready == ()
    assert first.problem == "the first lesson needs two classes with 2 different images each"
    later = readiness(images, set(), is_empty=False)
    assert (later.ready, later.problem) == (("a",), "b needs 2 different images")
    known = readiness(images, {"b"}, is_empty=False)
    assert (known.ready, known.problem) == (("a", "b"), "")
