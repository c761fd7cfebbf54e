"""The workers that predict: what they do together, and how many threads torch has for each."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest
import torch
from support.servers import test_pictures, wait_until

from bic import Model, Preprocessing, open_model
from bic.model.predict import Prediction, Scores, ranked
from bic.serve import batching
from bic.serve.batching import Predictor, Upload
from bic.serve.failures import ApiError
from bic.serve.limits import Limits
from bic.serve.metrics import Metrics
from bic.store.model_folder import LiveModel

Value = TypeVar("Value")
FIRST, SECOND = "predict_0", "predict_1"
IMAGES = [Upload(f"{number}.png", image) for number, image in enumerate(test_pictures(8))]


class Batch(NamedTuple):
    """A forward pass: the worker, the model, the number of images and torch's threads."""

    worker: str
    model: Model
    num_images: int
    num_threads: int


class Watched:
    """A predictor whose workers stop before each forward pass until their gate is open."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[Batch] = []
        self.gates = {name: threading.Event() for name in (FIRST, SECOND)}
        monkeypatch.setattr(batching, "ranked", self.ranked)
        self.predictor = Predictor(Limits(), Metrics())
        wait_until(lambda: len(self.predictor._idle) == 2)

    def ranked(self, model: Model, pixels: torch.Tensor, top: int) -> Iterator[Scores]:
        name = threading.current_thread().name
        self.batches.append(Batch(name, model, len(pixels), torch.get_num_threads()))
        assert self.gates[name].wait(60)
        return ranked(model, pixels, top)

    def open(self, *names: str) -> None:
        for name in names:
            self.gates[name].set()

    async def begin(self, num_batches: int) -> None:
        """Wait until so many forward passes have begun."""
        async with asyncio.timeout(60):
            while len(self.batches) < num_batches:
                await asyncio.sleep(0.001)

    def ask(self, live: LiveModel, *uploads: Upload) -> "asyncio.Task[list[Prediction]]":
        return asyncio.create_task(self.predictor.predict(live, uploads, top=1, threshold=0.0))


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    watched = Watched(monkeypatch)
    yield watched
    watched.open(FIRST, SECOND)
    watched.predictor.close()
    torch.set_num_threads(before)


def run(work: Coroutine[Any, Any, Value]) -> Value:
    """Run work in a thread of its own: tests in a browser keep a loop in the main thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def test_a_single_caller_gets_all_threads(model: Path, watched: Watched) -> None:
    live = open_model(model).live
    watched.open(FIRST, SECOND)

    async def ask() -> None:
        for upload in IMAGES[:3]:
            # Other threads of the server use torch with one thread; this must change nothing.
            await asyncio.to_thread(batching.use_one_thread)
            (found,) = await watched.ask(live, upload)
            assert found.answer in live.model.classes

    run(ask())
    assert watched.batches == [Batch(FIRST, live.model, 1, 2)] * 3


def test_a_thread_keeps_its_number_of_threads() -> None:
    before = torch.get_num_threads()
    found = []

    def work() -> None:
        batching.use_threads(2)
        other = threading.Thread(target=batching.use_one_thread)
        other.start()
        other.join()
        torch.ones(2) + 1  # torch looks at the number of threads
        found.append(torch.get_num_threads())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [2]
    assert torch.get_num_threads() == before


def test_workers_share_a_request(model: Path, watched: Watched) -> None:
    live = open_model(model).live

    async def ask() -> None:
        task = watched.ask(live, *IMAGES)
        await watched.begin(2)
        watched.open(FIRST, SECOND)
        assert [found.file for found in await task] == [upload.name for upload in IMAGES]

    run(ask())
    expected = [Batch(FIRST, live.model, 4, 1), Batch(SECOND, live.model, 4, 1)]
    assert sorted(watched.batches, key=lambda batch: batch.worker) == expected


def test_images_that_arrive_in_the_meantime_are_one_batch(model: Path, watched: Watched) -> None:
    live = open_model(model).live

    async def ask() -> None:
        tasks = []
        for number, upload in enumerate(IMAGES):
            tasks.append(watched.ask(live, upload))
            await watched.begin(min(number + 1, 2))
        watched.open(FIRST)
        answers = await asyncio.gather(*tasks[2:])
        assert [found.file for (found,) in answers] == [upload.name for upload in IMAGES[2:]]
        watched.open(SECOND)
        await asyncio.gather(*tasks)

    run(ask())
    assert [batch.num_images for batch in watched.batches] == [1, 1, 6]


def test_a_batch_has_images_for_one_version(model: Path, watched: Watched) -> None:
    old = open_model(model).live
    new = open_model(model).live

    async def ask() -> None:
        tasks = []
        for number, live in enumerate((old, old, old, new, new, old)):
            tasks.append(watched.ask(live, IMAGES[number]))
            await watched.begin(min(number + 1, 2))
        watched.open(FIRST)
        await asyncio.gather(*tasks[2:])
        watched.open(SECOND)
        await asyncio.gather(*tasks)

    run(ask())
    expected = [(old.model, 1), (new.model, 2), (old.model, 1)]
    assert [(batch.model, batch.num_images) for batch in watched.batches[2:]] == expected


def test_a_broken_image_does_not_harm_its_batch(model: Path, watched: Watched) -> None:
    live = open_model(model).live

    async def ask() -> None:
        tasks = []
        broken = Upload("broken.png", b"nothing")
        for number, upload in enumerate((*IMAGES[:3], broken, IMAGES[3])):
            tasks.append(watched.ask(live, upload))
            await watched.begin(min(number + 1, 2))
        watched.open(FIRST, SECOND)
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(found[3], ApiError)
        assert "broken.png" in found[3].detail
        del found[3]
        assert [answer[0].file for answer in found] == [upload.name for upload in IMAGES[:4]]

    run(ask())
    assert sum(batch.num_images for batch in watched.batches) == 4


def test_images_that_nobody_waits_for_are_not_classified(model: Path, watched: Watched) -> None:
    live = open_model(model).live

    async def ask() -> None:
        tasks = []
        for number in range(2):  # both workers are busy
            tasks.append(watched.ask(live, IMAGES[number]))
            await watched.begin(number + 1)
        watched.predictor.limits = Limits(answer_seconds=0.01)
        with pytest.raises(ApiError, match=r"no answer within 0\.01 seconds"):
            await watched.ask(live, *IMAGES[2:7])
        watched.predictor.limits = Limits()
        tasks.append(watched.ask(live, IMAGES[7]))
        await asyncio.sleep(0)
        watched.open(FIRST, SECOND)
        for task in tasks:
            await task

    run(ask())
    assert [batch.num_images for batch in watched.batches] == [1, 1, 1]


def test_a_failure_reaches_every_caller(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(batching, "ranked", fail)
    predictor = Predictor(Limits(), Metrics())
    live = open_model(model).live

    async def ask() -> None:
        for uploads in (IMAGES[:1], IMAGES):
            with pytest.raises(RuntimeError, match="no memory"):
                await predictor.predict(live, uploads, top=1, threshold=0.0)
        predictor.close()

    run(ask())
    assert predictor.num_waiting == 0


def test_too_many_images_wait(model: Path) -> None:
    async def ask() -> None:
        predictor = Predictor(Limits(waiting_images=1), Metrics())
        with pytest.raises(Exception, match="images are waiting") as failure:
            await predictor.predict(open_model(model).live, IMAGES[:2], top=1, threshold=0.0)
        assert failure.value.status_code == 429
        predictor.close()

    run(ask())


def test_large_images_make_small_batches(model: Path) -> None:
    small = open_model(model).live.model
    assert batching.largest_batch(small) == batching.MAX_BATCH
    large = Model.fresh("fast", Preprocessing(channels=3, size=224))
    assert batching.largest_batch(large) == 10
