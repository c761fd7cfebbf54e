"""Predictions for requests that arrive together: workers decode and classify them in batches."""

import asyncio
import math
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from bic.data.decode_files import Problem, fill_rows
from bic.data.preprocessing import Preprocessing
from bic.errors import BicError
from bic.model.model import Model
from bic.model.network import PIXELS_AT_ONCE
from bic.model.predict import Prediction, Scores, ranked
from bic.serve.failures import ApiError, api_error, too_many
from bic.serve.limits import Limits
from bic.serve.metrics import Metrics
from bic.store.model_folder import LiveModel

MIN_WORKERS = 2  # one image that takes long to decode must not keep all others waiting
MAX_BATCH = 64  # images
MAX_BATCH_PIXELS = 2**23  # on a GPU; a network needs about 100 times the memory of its input
NUMPY = b"\x93NUMPY"  # the memory of a model may hold arrays; callers may not send them


class Upload(NamedTuple):
    """An image that was sent, and the name that its sender gave it."""

    name: str
    content: bytes


@dataclass(eq=False)
class Request:
    """Images of one caller, on their way through the workers."""

    live: LiveModel
    top: int
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[None]  # done when all images are
    found: list[Scores | Problem | None]  # one for each image; None until it is known
    num_left: int  # images that are not done yet

    def finish(self, error: Exception | None = None) -> None:
        self.loop.call_soon_threadsafe(self._finish, error)

    def _finish(self, error: Exception | None) -> None:
        if self.answer.done():  # its caller has gone, or another image has failed
            return
        if error is None:
            self.answer.set_result(None)
        else:
            self.answer.set_exception(error)


class Waiting(NamedTuple):
    """An image that no worker has taken yet, the one with this `number` of its request."""

    request: Request
    number: int
    content: bytes


class Predictor:
    """Workers: threads that decode images and run the network, as many as torch has threads.

    A worker takes the images that wait, decodes them and classifies them in one forward pass. A
    worker that is busy alone lets torch use all threads. If all workers are busy, each uses one:
    threads that work together would wait for each other. Images that arrive in the meantime are
    the next batch. So batches grow with the load, and no image waits for others to come.
    """

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self.limits = limits
        self.metrics = metrics
        self.num_waiting = 0  # images that are not answered yet
        self._num_threads = torch.get_num_threads()
        self._lock = threading.Lock()  # guards the fields below, and the metrics of batches
        self._queue: deque[Waiting] = deque()
        self._is_closed = False
        self._idle: set[int] = set()  # workers that have nothing to do
        self._calls: list[threading.Condition] = []  # one for each worker
        self._workers: list[threading.Thread] = []
        for number in range(max(MIN_WORKERS, self._num_threads)):
            self._calls.append(threading.Condition(self._lock))
            name = f"predict_{number}"
            worker = threading.Thread(target=self._run, name=name, args=[number], daemon=True)
            self._workers.append(worker)
        for worker in self._workers:
            worker.start()

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
        image_size(live.model.preprocessing)
        loop = asyncio.get_running_loop()
        count = len(uploads)
        request = Request(live, top, loop, loop.create_future(), [None] * count, count)
        with self._lock:
            for number, upload in enumerate(uploads):
                self._queue.append(Waiting(request, number, upload.content))
            self._wake_worker()
        try:
            await request.answer
        finally:
            if request.num_left:
                self._forget(request)
        scores = []
        for upload, found in zip(uploads, request.found, strict=True):
            if isinstance(found, Problem):
                raise unreadable(upload.name, found.reason)
            assert found is not None
            scores.append(found)
        return scores

    def _forget(self, request: Request) -> None:
        """Drop the images of a request that has failed, or whose caller has gone."""
        with self._lock:
            self._queue = deque(image for image in self._queue if image.request is not request)

    def _wake_worker(self) -> None:
        """Wake the first worker that is idle, if images wait."""
        if self._queue and self._idle:
            number = min(self._idle)
            self._idle.remove(number)
            self._calls[number].notify()

    def _run(self, number: int) -> None:
        """What the worker with this number does until the predictor is closed."""
        num_threads = 1
        use_threads(num_threads)
        while True:
            batch, num_busy = self._next_batch(number)
            if not batch:
                return
            # Only the first worker ever uses all threads. OpenMP keeps threads for each worker
            # that uses several; with more threads than cores they wait for each other in a way
            # that takes half as much time again.
            num_sharing = num_busy if number == 0 else max(2, num_busy)
            wanted = max(1, self._num_threads // num_sharing)
            if wanted != num_threads:
                num_threads = wanted
                use_threads(num_threads)
            error = None
            try:
                self._classify(batch)
            except Exception as caught:
                error = caught
            self._finish(number, batch, error)

    def _next_batch(self, number: int) -> tuple[list[Waiting], int]:
        """Images for a worker to classify together, and how many workers are busy now.

        There are no images if the predictor is closed.
        """
        batch: list[Waiting] = []
        with self._lock:
            while not self._queue and not self._is_closed:
                self._idle.add(number)
                self._calls[number].wait()
            self._idle.discard(number)
            if self._queue:
                live = self._queue[0].request.live
                share = math.ceil(len(self._queue) / (len(self._idle) + 1))
                limit = min(share, largest_batch(live.model))
            while self._queue and len(batch) < limit and self._queue[0].request.live is live:
                batch.append(self._queue.popleft())
            self._wake_worker()
            return batch, len(self._workers) - len(self._idle)

    def _finish(self, number: int, batch: list[Waiting], error: Exception | None) -> None:
        """Answer the requests that are complete."""
        complete = []
        with self._lock:
            for image in batch:
                image.request.num_left -= 1
                if image.request.num_left == 0 or error is not None:
                    complete.append(image.request)
            # Now, and not when it waits: a caller that asks again at once gets the same worker.
            self._idle.add(number)
        for request in complete:
            request.finish(error)

    def _classify(self, batch: list[Waiting]) -> None:
        """Find the classes of images for the same model, or what is wrong with them."""
        model = batch[0].request.live.model
        pixels = empty_pixels(len(batch), model.preprocessing)
        readable = []
        for row, (request, number, content) in enumerate(batch):
            problem = decoded_into(pixels[row : row + 1], content, model.preprocessing)
            if problem is None:
                readable.append(row)
            else:
                request.found[number] = problem
        if not readable:
            return
        if len(readable) < len(batch):
            pixels = pixels[readable]
        top = max(batch[row].request.top for row in readable)
        for row, scores in zip(readable, ranked(model, pixels, top), strict=True):
            request, number, _ = batch[row]
            request.found[number] = scores
        with self._lock:
            self.metrics.batch(len(readable))

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            for call in self._calls:
                call.notify()
        for worker in self._workers:
            worker.join(timeout=5)


def use_threads(count: int) -> None:
    """Let torch use `count` threads for what the calling thread does.

    A thread takes the number that any thread has set last when it uses torch for the first time.
    This happens here, before the thread sets its own: later it would undo that.
    """
    torch.get_num_threads()
    torch.set_num_threads(count)


def use_one_thread() -> None:
    use_threads(1)


def image_size(preprocessing: Preprocessing) -> int:
    """The side of the model's images. Raises ApiError if it classifies vectors."""
    if preprocessing.size is None:
        raise ApiError(
            409, "this model classifies vectors, not images", "use Model.predict in Python"
        )
    return preprocessing.size


def empty_pixels(count: int, preprocessing: Preprocessing) -> Tensor:
    """Room for images, uint8 [count, channels, size, size] in the layout that decoders fill."""
    size = image_size(preprocessing)
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


def largest_batch(model: Model) -> int:
    """The most images that the model classifies at once."""
    num_pixels = image_size(model.preprocessing) ** 2
    is_cpu = model.network.device.type == "cpu"
    limit = PIXELS_AT_ONCE if is_cpu else MAX_BATCH_PIXELS
    return max(1, min(MAX_BATCH, limit // num_pixels))
