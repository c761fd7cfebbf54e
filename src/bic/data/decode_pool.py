"""The decode pool: processes that decode files into memory shared with their owner.

There is one pool for the whole Python process. Like torch's threads, it changes no result. A server
imports the necessary modules once and forks the pool's processes. Unlike the processes of
multiprocessing, they never run the user's own script.
"""

import math
import mmap
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection

import torch
from torch import Tensor

from bic.data.decode_files import Problem, decode_files, decode_with, fill_rows
from bic.data.image_files import File
from bic.data.preprocessing import Cut, Preprocessing
from bic.errors import LostError

HALF_BYTES = 2**21  # half of the memory shared with one process: 13 images of 224 × 224
# Fewer pixels are decoded in the calling process: it is done before another process has started.
MIN_PIXELS = 2**22
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
SERVER = (
    "import sys; sys.path[:] = sys.argv.pop(1).split('\\n'); "
    "from bic.data.decode_pool import serve; serve()"
)


class Worker:
    """One decode process, as its owner sees it.

    The process fills one half of the shared memory while the owner empties the other half. The
    next task is sent before the current one is done, so that the process is never idle.
    """

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair()
        self.connection = Connection(ours.detach())
        self.memory = memory_file()
        self.block = mmap.mmap(self.memory, 2 * HALF_BYTES)
        self.pid: int | None = None
        self._sending = threading.Lock()
        self._receiving = threading.Lock()

    def fill(
        self,
        pixels: Tensor,
        half: int,
        files: Sequence[File],
        preprocessing: Preprocessing,
        cuts: Sequence[Cut] | None,
    ) -> dict[int, Problem]:
        """As `fill_rows`, in the process. Raises LostError if the process has died."""
        try:
            with self._sending:
                if self.pid is None:
                    self.pid = self.connection.recv()
                self.connection.send((half, files, preprocessing, cuts))
                # Replies arrive in the order of the tasks: wait for the earlier sender.
                self._receiving.acquire()
            try:
                problems: dict[int, Problem] = self.connection.recv()
            finally:
                self._receiving.release()
        except (EOFError, OSError) as error:
            raise LostError(
                "a decode process was killed, most likely because memory ran out",
                "use fewer {workers} or more memory, and run again",
            ) from error
        pixels.copy_(shared_rows(self.block, half, len(files), preprocessing))
        return problems


class Pool:
    """`count` decode processes. They start when they are first needed."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.workers: list[Worker] = []
        # (worker, half of its memory) for every half that is free
        self._free: queue.SimpleQueue[tuple[Worker, int]] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(2 * count, "decode")
        self._server: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()

    def fill(
        self,
        pixels: Tensor,
        files: Sequence[File],
        preprocessing: Preprocessing,
        cuts: Sequence[Cut] | None,
    ) -> dict[int, Problem]:
        """As `fill_rows`, by all processes at the same time."""
        with self._starting:
            if self._server is None:
                self._start()
        images_per_half = HALF_BYTES // pixels[0].numel()
        images_per_process = -(-len(files) // self.count)
        length = min(images_per_half, images_per_process)

        def fill_piece(start: int) -> dict[int, Problem]:
            piece = slice(start, start + length)
            piece_cuts = cuts[piece] if cuts else None
            worker, half = self._free.get()
            try:
                problems = worker.fill(pixels[piece], half, files[piece], preprocessing, piece_cuts)
            finally:
                self._free.put((worker, half))
            return {start + row: problem for row, problem in problems.items()}

        problems: dict[int, Problem] = {}
        for piece_problems in self._threads.map(fill_piece, range(0, len(files), length)):
            problems |= piece_problems
        return problems

    def _start(self) -> None:
        self.workers = [Worker() for _ in range(self.count)]
        handles: list[int] = []
        for worker in self.workers:
            handles += [worker.theirs.fileno(), worker.memory]
        arguments = [sys.executable, "-c", SERVER, "\n".join(sys.path), *map(str, handles)]
        environment = {**os.environ, **ONE_THREAD}
        self._server = subprocess.Popen(arguments, pass_fds=handles, env=environment)
        for worker in self.workers:
            worker.theirs.close()
            os.close(worker.memory)
        for half in (0, 1):
            for worker in self.workers:
                self._free.put((worker, half))

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        for worker in self.workers:
            worker.connection.close()  # the process ends when it notices
        if self._server is not None:
            self._server.wait()


def memory_file() -> int:
    """The descriptor of an unnamed file for two halves, in memory if the system supports it."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("bic")
    else:
        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    os.truncate(handle, 2 * HALF_BYTES)
    return handle


def shared_rows(block: mmap.mmap, half: int, count: int, preprocessing: Preprocessing) -> Tensor:
    """Pixels [count, channels, size, size], channels last, in one half of a shared block."""
    assert preprocessing.size is not None
    shape = (count, preprocessing.size, preprocessing.size, preprocessing.channels)
    start = half * (len(block) // 2)
    values = torch.frombuffer(block, dtype=torch.uint8, count=math.prod(shape), offset=start)
    return values.view(shape).permute(0, 3, 1, 2)


def serve() -> None:
    """Fork one decode process per pair of descriptors (socket, memory) in the arguments."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner gets it too, and closes the pool
    torch.set_num_threads(1)
    handles = [int(argument) for argument in sys.argv[1:]]
    pairs = list(zip(handles[::2], handles[1::2], strict=True))
    for pair in pairs:
        if os.fork() == 0:
            for other in set(handles) - set(pair):
                os.close(other)
            socket_handle, memory_handle = pair
            work(Connection(socket_handle), mmap.mmap(memory_handle, 2 * HALF_BYTES))
            os._exit(0)
    for handle in handles:
        os.close(handle)
    for _ in pairs:
        os.wait()


def work(connection: Connection, block: mmap.mmap) -> None:
    """One decode process: do one task after another until the owner closes the connection."""
    try:
        connection.send(os.getpid())
        while True:
            half, files, preprocessing, cuts = connection.recv()
            pixels = shared_rows(block, half, len(files), preprocessing)
            connection.send(fill_rows(pixels, files, preprocessing, cuts))
    except (EOFError, OSError):
        return


_pool: Pool | None = None


@contextmanager
def decoding(count: int) -> Iterator[None]:
    """Inside this context, `count` processes decode large numbers of images; 0 means none."""
    global _pool
    outer = _pool
    inner = Pool(count) if count else None
    _pool = inner
    try:
        yield
    finally:
        _pool = outer
        if inner is not None:
            inner.close()


def decode_all(
    files: Sequence[File],
    preprocessing: Preprocessing,
    cuts: Sequence[Cut] | None = None,
    *,
    skip_bad: bool = False,
) -> tuple[Tensor, list[int]]:
    """As `decode_files`, by the pool if there is one and there are enough pixels."""
    size = preprocessing.size
    if _pool is None or size is None or len(files) * size**2 < MIN_PIXELS:
        return decode_files(files, preprocessing, cuts, skip_bad=skip_bad)
    if preprocessing.channels * size**2 > HALF_BYTES:
        return decode_files(files, preprocessing, cuts, skip_bad=skip_bad)
    return decode_with(_pool.fill, files, preprocessing, cuts, skip_bad=skip_bad)


def batches_ahead() -> int:
    """The number of threads that prepare batches: enough that decode processes are never idle."""
    return 0 if _pool is None else 2


def count_cpus() -> int:
    """The number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_processes(device: str) -> int:
    """The default number of decode processes for training on `device`."""
    num_cpus = count_cpus()
    if device == "cpu":
        # A CPU decodes ten images in the time in which it trains on one.
        return max(1, num_cpus // 4)
    return min(16, num_cpus)
