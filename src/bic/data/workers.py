"""Decode processes: files go in, pixels come out through memory that both sides share.

A pool belongs to the whole process, like torch's threads, and like them it changes no result. Its processes are forked
by a server that imports what they need once and never runs the user's own script, as multiprocessing's would.
"""

import mmap
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from bic.data.decode import Cut, View
from bic.data.files import File, name_of, read
from bic.errors import LostError, UserError

HALF_BYTES = 2**21  # of the memory shared with one process: 13 images of 224 × 224
WORTH_IT = 2**22  # pixels; fewer are decoded in line before a process has begun
LIBRARIES_THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Problem(NamedTuple):
    """Why an image can't be read; `gone` if its file or shard is the reason, and not its own content."""

    reason: str
    gone: bool


def reason_of(problem: Exception) -> str:
    """A reader's words for people: Pillow's own name a BytesIO object where a file is no image."""
    if isinstance(problem, UnidentifiedImageError):
        return "it is not an image"
    if isinstance(problem, Image.DecompressionBombError):
        return f"it has more than {2 * (Image.MAX_IMAGE_PIXELS or 0):,} pixels"
    return problem.strerror or str(problem) if isinstance(problem, OSError) else str(problem)


def fill(pixels: Tensor, files: Sequence[File], view: View, cuts: Sequence[Cut] | None) -> dict[int, Problem]:
    """Decode files into rows of pixels [n, channels, size, size]; the rows that failed, and why."""
    problems = {}
    for row, file in enumerate(files):
        try:
            encoded = read(file)
        except Exception as problem:  # a file that is gone, or a shard that was cut short under us
            problems[row] = Problem(reason_of(problem), gone=True)
            continue
        try:
            pixels[row] = view.decode(encoded, cuts[row] if cuts else None)
        except Exception as problem:  # Pillow's readers raise nearly anything
            problems[row] = Problem(reason_of(problem), gone=False)
    return problems


def rows_of(count: int, view: View, block: mmap.mmap | None = None, half: int = 0) -> Tensor:
    """Pixels [count, channels, size, size] to be filled, a pixel's channels side by side; in a shared block, or new."""
    assert view.size is not None
    shape = (count, view.size, view.size, view.channels)
    if block is None:
        return torch.empty(shape, dtype=torch.uint8).permute(0, 3, 1, 2)
    length, start = int(np.prod(shape)), half * (len(block) // 2)
    return torch.frombuffer(block, dtype=torch.uint8, count=length, offset=start).view(shape).permute(0, 3, 1, 2)


def memory_file() -> int:
    """The handle of a nameless file for two halves, in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("bic")
    else:
        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    os.truncate(handle, 2 * HALF_BYTES)
    return handle


class Worker:
    """One decode process, as its owner sees it.

    It fills one half of the memory that they share while the owner empties the other, and its next task is sent before
    it has done the last: it is never idle.
    """

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair()
        self.connection = Connection(ours.detach())
        self.memory = memory_file()
        self.block = mmap.mmap(self.memory, 2 * HALF_BYTES)
        self.pid: int | None = None
        self._sending, self._receiving = threading.Lock(), threading.Lock()

    def fill(self, pixels: Tensor, half: int, files: Sequence[File], *how: Any) -> dict[int, Problem]:
        """As `fill`, in the process. Raises LostError if that has died."""
        try:
            with self._sending:
                if self.pid is None:
                    self.pid = self.connection.recv()
                self.connection.send((half, files, *how))
                self._receiving.acquire()  # after the thread whose task was sent before this one
            try:
                problems: dict[int, Problem] = self.connection.recv()
            finally:
                self._receiving.release()
        except (EOFError, OSError) as died:
            what = "a process that decodes images was killed, most likely because the memory ran out"
            then = "give fewer --workers or more memory, and run the same command again"
            raise LostError(f"{what}; {then}") from died
        pixels.copy_(rows_of(len(files), how[0], self.block, half))
        return problems


class Pool:
    """A number of decode processes, started when they are first needed."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.workers: list[Worker] = []
        self._free: queue.SimpleQueue[tuple[Worker, int]] = queue.SimpleQueue()  # and which half
        self._threads = ThreadPoolExecutor(2 * count, "decode")
        self._server: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()

    def fill(self, pixels: Tensor, files: Sequence[File], view: View, cuts: Sequence[Cut] | None) -> dict[int, Problem]:
        """As `fill`, by all processes at once."""
        with self._starting:
            if self._server is None:
                self._start()
        length = min(HALF_BYTES // pixels[0].numel(), -(-len(files) // self.count))

        def piece(start: int) -> dict[int, Problem]:
            part = slice(start, start + length)
            worker, half = self._free.get()
            try:
                problems = worker.fill(pixels[part], half, files[part], view, cuts[part] if cuts else None)
            finally:
                self._free.put((worker, half))
            return {start + row: problem for row, problem in problems.items()}

        pieces = list(self._threads.map(piece, range(0, len(files), length)))
        return {row: problem for part in pieces for row, problem in part.items()}

    def _start(self) -> None:
        self.workers = [Worker() for _ in range(self.count)]
        handles = [handle for one in self.workers for handle in (one.theirs.fileno(), one.memory)]
        command = "import sys; sys.path[:] = sys.argv.pop(1).split('\\n'); from bic.data.workers import serve; serve()"
        arguments = [sys.executable, "-c", command, "\n".join(sys.path), *map(str, handles)]
        self._server = subprocess.Popen(arguments, pass_fds=handles, env={**os.environ, **LIBRARIES_THREADS})
        for worker in self.workers:
            worker.theirs.close()
            os.close(worker.memory)
        for half in (0, 1):
            for worker in self.workers:
                self._free.put((worker, half))

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        for worker in self.workers:
            worker.connection.close()  # at which it ends
        if self._server is not None:
            self._server.wait()


def serve() -> None:
    """The server: one process forked for each pair of handles in the arguments, served until its owner is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner is told, and ends us
    torch.set_num_threads(1)
    handles = [int(each) for each in sys.argv[1:]]
    pairs = list(zip(handles[::2], handles[1::2], strict=True))
    for pair in pairs:
        if os.fork() == 0:
            for other in set(handles) - set(pair):
                os.close(other)
            work(Connection(pair[0]), mmap.mmap(pair[1], 2 * HALF_BYTES))
            os._exit(0)
    for handle in handles:
        os.close(handle)
    for _ in pairs:
        os.wait()


def work(connection: Connection, block: mmap.mmap) -> None:
    """One decode process: a task at a time, until the owner closes the connection."""
    try:
        connection.send(os.getpid())
        while True:
            half, files, view, cuts = connection.recv()
            connection.send(fill(rows_of(len(files), view, block, half), files, view, cuts))
    except (EOFError, OSError):
        return


_pool: Pool | None = None


@contextmanager
def decoding(count: int) -> Iterator[None]:
    """Within, large numbers of images are decoded by so many processes; 0: in line."""
    global _pool
    before, ours = _pool, Pool(count) if count else None
    _pool = ours
    try:
        yield
    finally:
        _pool = before
        if ours is not None:
            ours.close()


def num_processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usual_processes(device: str) -> int:
    """How many processes should decode where nobody says."""
    num_cpus = num_processors()
    # A processor that also trains decodes ten images in the time in which it learns from one.
    return max(1, num_cpus // 4) if device == "cpu" else min(16, num_cpus)


def batches_ahead() -> int:
    """How many threads should ask for batches, so that the processes are never idle between two."""
    return 0 if _pool is None else 2


def decode_all(
    files: Sequence[File], view: View, cuts: Sequence[Cut] | None = None, *, skip_bad: bool = False
) -> tuple[Tensor, list[int]]:
    """Pixels [n, channels, size, size] of the files that can be read, and which those are.

    Raises UserError for a file that is broken, unless `skip_bad`, and for one that is gone in any case: a disk that is
    not there is no reason to learn from what is left.
    """
    if view.size is None:
        pixels = torch.stack([view.decode(read(file)) for file in files])
        layout = torch.channels_last if pixels.ndim == 4 else torch.contiguous_format
        return pixels.contiguous(memory_format=layout), list(range(len(files)))
    pixels = rows_of(len(files), view)
    if _pool is not None and len(files) * view.size**2 >= WORTH_IT and pixels[0].numel() <= HALF_BYTES:
        problems = _pool.fill(pixels, files, view, cuts)
    else:
        problems = fill(pixels, files, view, cuts)
    for row, problem in sorted(problems.items()):
        what = f"{name_of(files[row])} ({problem.reason})"
        if problem.gone:
            raise UserError(f"can't read {what}; put it back and run the same command again")
        if not skip_bad:
            raise UserError(f"can't read {what}; mend it, or leave it out with --skip-bad")
        warnings.warn(f"left out {what}", stacklevel=2)
    good = [row for row in range(len(files)) if row not in problems]
    return pixels if not problems else pixels[good], good
