"""`bic serve` in a process of its own, and clients that take little CPU time themselves."""

import asyncio
import itertools
import json
import os
import selectors
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import torch

WARM_UP = 1.0  # seconds


class Counts(NamedTuple):
    """What a server has done since it started."""

    batches: int
    images: int
    cpu_seconds: float

    def __sub__(self, before: "Counts") -> "Counts":
        return Counts(
            self.batches - before.batches,
            self.images - before.images,
            self.cpu_seconds - before.cpu_seconds,
        )


class Server:
    """`bic serve` in a process of its own."""

    def __init__(self, folder: Path, *flags: str) -> None:
        command = [sys.executable, "-m", "bic", "serve", str(folder), "--port", "0", *flags]
        environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout is not None
        address, _, self.token = self.process.stdout.readline().split()[2].partition("#token=")
        self.address = httpx.URL(address)

    def __enter__(self) -> "Server":
        for _ in range(600):
            try:
                httpx.get(self.address.join("/ready"))
                return self
            except httpx.TransportError:
                time.sleep(0.1)
        raise TimeoutError("the server did not start")

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    def client(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.Client(base_url=self.address, headers=headers, timeout=60)

    def request(self, image: bytes, query: str = "") -> bytes:
        """A whole HTTP request, so that the client has little to do."""
        head = (
            f"POST /v1/predict{query} HTTP/1.1\r\nHost: {self.address.netloc.decode()}\r\n"
            f"Content-Type: image/jpeg\r\nContent-Length: {len(image)}\r\n\r\n"
        )
        return head.encode() + image

    def counts(self) -> Counts:
        text = httpx.get(self.address.join("/metrics")).text
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
        batches = int(values["bic_batches_total"])
        return Counts(batches, int(values["bic_predicted_images_total"]), self._cpu_seconds())

    def _cpu_seconds(self) -> float:
        """The CPU time of the server's threads, as Linux counts it."""
        nanoseconds = 0
        for file in Path(f"/proc/{self.process.pid}/task").glob("*/schedstat"):
            nanoseconds += int(file.read_text().split()[0])
        return nanoseconds / 1e9


class Called(NamedTuple):
    """The seconds of every answer, and the CPU time that all clients took."""

    latencies: list[float]
    cpu_seconds: float


class Client:
    """A connection that sends one request after another. It does as little as possible."""

    def __init__(self, server: Server, selector: selectors.BaseSelector) -> None:
        self.socket = socket.create_connection((server.address.host, server.address.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.selector = selector
        self.start = 0.0
        self.unsent = memoryview(b"")
        self.received = b""
        selector.register(self.socket, selectors.EVENT_READ, self)

    def send(self, request: bytes) -> None:
        self.start = time.perf_counter()
        self.unsent = memoryview(request)
        self.received = b""
        self.continue_sending()

    def continue_sending(self) -> None:
        with suppress(BlockingIOError):
            while self.unsent:
                self.unsent = self.unsent[self.socket.send(self.unsent) :]
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.unsent else 0)
        if self.selector.get_key(self.socket).events != events:
            self.selector.modify(self.socket, events, self)

    def has_answer(self) -> bool:
        """Receive what has arrived, and say whether the answer is complete."""
        self.received += self.socket.recv(2**16)
        head, _, body = self.received.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"{self.received[:200]!r}")
        length = head.lower().partition(b"content-length:")[2].split()
        return bool(length) and len(body) == int(length[0])


def call(server: Server, requests: list[bytes], num_clients: int, seconds: float) -> Called:
    """What clients measure that send requests at the same time, in one thread.

    The answers are those that arrive in `seconds` after a warm-up, whenever they were asked for.
    """
    latencies: list[float] = []
    turns = itertools.cycle(requests)
    with selectors.DefaultSelector() as selector:
        clients = [Client(server, selector) for _ in range(num_clients)]
        cpu_start = time.thread_time()
        begin = time.perf_counter() + WARM_UP
        end = begin + seconds
        for client in clients:
            client.send(next(turns))
        while time.perf_counter() < end:
            for key, events in selector.select(timeout=1.0):
                client = key.data
                if events & selectors.EVENT_WRITE:
                    client.continue_sending()
                if events & selectors.EVENT_READ and client.has_answer():
                    now = time.perf_counter()
                    if begin <= now <= end:
                        latencies.append(now - client.start)
                    client.send(next(turns))
        cpu_seconds = time.thread_time() - cpu_start
        for client in clients:
            client.socket.close()
    return Called(latencies, cpu_seconds)


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
) -> dict[str, Any]:
    """The answer to a request. Anything but 200 is an error."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    body = await reader.readexactly(length)
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"{head[:40]!r} {body[:200]!r}")
    content: dict[str, Any] = json.loads(body)
    return content
