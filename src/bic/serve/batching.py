"""Predictions for requests that arrive together: decoded by threads, classified in batches."""

import asyncio
import os
import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from bic.data.decode_files import Problem, fill_rows
from bic.data.preprocessing import Preprocessing
from bic.errors import BicError
from bic.model.predict import Prediction, Scores, ranked
from bic.serve.failures import ApiError, api_error, too_many
from bic.serve.limits import Limits
from bic.serve.metrics import Metrics
from bic.store.model_folder import LiveModel

MAX_BATCH = 64  # images
MAX_BATCH_PIXELS = 2**23  # of a batch; a network needs about 100 times the memory of its input
MAX_WAIT = 0.004  # seconds that a request waits for others
NUMPY = b"\x93NUMPY"  # the memory of a model may hold arrays; callers may not send them


class Upload(NamedTuple):
    """An image that was sent, and the name that its sender gave it."""

    name: str
    content: bytes


@dataclass(eq=False)
class Request:
    """Images of one caller, on their way through the threads."""

    live: LiveModel
    pixels: Tensor  # uint8 [n, channels, size, size]
    top: int
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[list[Scores]]
    num_left: int  # images that are not decoded yet
    problems: dict[int, Problem] = field(default_factory=dict)

    def resolve(self, scores: list[Scores]) -> None:
        self.loop.call_soon_threadsafe(self._resolve, scores, None)

    def fail(self, error: Exception) -> None:
        self.loop.call_soon_threadsafe(self._resolve, [], error)

    def _resolve(self, scores: list[Scores], error: Exception | None) -> None:
        if self.answer.done():  # its caller has gone
            return
        if error is None:
            self.answer.set_result(scores)
        else:
            self.answer.set_exception(error)


class Predictor:
    """Decode threads and one thread that runs the network.

    A request waits for others only if others are on their way: while their images are decoded, or
    if the batch before had several requests. A single caller never waits.
    """

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self.limits = limits
        self.metrics = metrics
        self.num_waiting = 0  # images that are not answered yet
        self._num_threads = torch.get_num_threads()
        num_decoders = max(2, min(8, os.cpu_count() or 1))
        self._decoders = ThreadPoolExecutor(num_decoders, "decode", _use_one_thread)
        self._queue: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._num_decoding = 0  # requests
        self._forward = threading.Thread(target=self._run, name="forward", daemon=True)
        self._forward.start()

    async def predict(
        self, live: LiveModel, uploads: Sequence[Upload], *, top: int, threshold: float
    ) -> list[Prediction]:
        """The `top` classes of each image. Raises ApiError for an image that cannot be read."""
        if self.num_waiting + len(uploads) > self.limits.waiting_images:
            raise too_many(f"{self.num_waiting:,} images are waiting to be predicted")
        self.num_waiting += len(uploads)
        try:
            scores = await asyncio.wait_for(
                self._submit(live, uploads, top), self.limits.answer_seconds
            )
        except TimeoutError:
            problem = f"no answer within {self.limits.answer_seconds:g} seconds"
            raise too_many(problem) from None
        except BicError as error:
            raise api_error(error) from error
        finally:
            self.num_waiting -= len(uploads)
        predictions = []
        for upload, found in zip(uploads, scores, strict=True):
            predictions.append(found.prediction(upload.name, top=top, threshold=threshold))
        return predictions

    async def _submit(self, live: LiveModel, uploads: Sequence[Upload], top: int) -> list[Scores]:
        loop = asyncio.get_running_loop()
        preprocessing = live.model.preprocessing
        request = Request(
            live=live,
            pixels=empty_pixels(len(uploads), preprocessing),
            top=top,
            loop=loop,
            answer=loop.create_future(),
            num_left=len(uploads),
        )
        with self._lock:
            self._num_decoding += 1
        for row, upload in enumerate(uploads):
            self._decoders.submit(self._decode, request, row, upload.content)
        scores = await request.answer
        for row, problem in sorted(request.problems.items()):
            raise unreadable(uploads[row].name, problem.reason)
        return scores

    def _decode(self, request: Request, row: int, content: bytes) -> None:
        problem = decoded_into(
            request.pixels[row : row + 1], content, request.live.model.preprocessing
        )
        with self._lock:
            if problem is not None:
                request.problems[row] = problem
            request.num_left -= 1
            is_last = request.num_left == 0
            self._num_decoding -= is_last
        if is_last and request.problems:
            request.resolve([])
        elif is_last:
            self._queue.put(request)

    def _run(self) -> None:
        torch.set_num_threads(self._num_threads)  # decode threads use one each
        num_requests = 1
        while True:
            batch = self._next_batch(num_requests)
            if not batch:
                return
            num_requests = len(batch)
            while batch:
                live = batch[0].live
                self._answer([request for request in batch if request.live is live])
                batch = [request for request in batch if request.live is not live]

    def _next_batch(self, num_before: int) -> list[Request]:
        """Requests to answer together; none if the predictor is closed.

        `num_before` requests were answered together before this.
        """
        first = self._queue.get()
        if first is None:
            return []
        batch = [first]
        num_images = len(first.pixels)
        limit = _batch_size(first.pixels)
        deadline = time.monotonic() + MAX_WAIT
        while num_images < limit:
            are_others_coming = self._num_decoding > 0 or len(batch) < num_before
            seconds = deadline - time.monotonic() if are_others_coming else 0.0
            try:
                request = (
                    self._queue.get(timeout=seconds) if seconds > 0 else self._queue.get_nowait()
                )
            except queue.Empty:
                break
            if request is None:
                self._queue.put(None)  # closed: answer what is here, then stop
                break
            batch.append(request)
            num_images += len(request.pixels)
        return batch

    def _answer(self, batch: list[Request]) -> None:
        """Classify the images of requests for the same model."""
        model = batch[0].live.model
        top = max(request.top for request in batch)
        scores: list[Scores] = []
        try:
            pixels = torch.cat([request.pixels for request in batch])
            for part in torch.split(pixels, _batch_size(pixels)):
                self.metrics.batch(len(part))
                scores += ranked(model, part, top)
        except Exception as error:
            for request in batch:
                request.fail(error)
            return
        for request in batch:
            count = len(request.pixels)
            request.resolve(scores[:count])
            scores = scores[count:]

    def close(self) -> None:
        self._queue.put(None)
        self._decoders.shutdown(wait=False, cancel_futures=True)
        self._forward.join(timeout=5)


def empty_pixels(count: int, preprocessing: Preprocessing) -> Tensor:
    """Room for images, uint8 [count, channels, size, size] in the layout that decoders fill."""
    size = preprocessing.size
    if size is None:
        raise ApiError(
            409, "this model classifies vectors, not images", "use Model.predict in Python"
        )
    shape = (count, size, size, preprocessing.channels)
    return torch.empty(shape, dtype=torch.uint8).permute(0, 3, 1, 2)


def decoded_into(row: Tensor, content: bytes, preprocessing: Preprocessing) -> Problem | None:
    """Decode an image into pixels [1, channels, size, size]. Returns what is wrong with it."""
    if content.startswith(NUMPY):
        return Problem("it is not an image", missing=False)
    return fill_rows(row, [content], preprocessing, None).get(0)


def unreadable(name: str, reason: str) -> ApiError:
    return ApiError(
        422,
        f"can't read {name} ({reason})",
        "fix it, or leave it out",
        code="unreadable_image",
        file=name,
    )


def _batch_size(pixels: Tensor) -> int:
    return max(1, min(MAX_BATCH, MAX_BATCH_PIXELS // (pixels.shape[2] * pixels.shape[3])))


def _use_one_thread() -> None:
    torch.set_num_threads(1)
