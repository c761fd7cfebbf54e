"""Servers of small models over real HTTP: in a thread of the test, or in a process of their own."""

import io
import os
import shutil
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image

from bic import HeldOutWarning
from bic.serve.run import ServeOptions, StoppableServer, prepared
from support.taught import SETTINGS, images_of, learn, test_images, toy_model

Files = list[tuple[str, tuple[str, bytes]]]
SECONDS = 150.0  # that a lesson may take on a busy machine


@dataclass
class Served:
    """A running server: where it is, its token, and the folder of its model."""

    address: str
    token: str
    folder: Path
    server: StoppableServer | None = None

    def client(self, token: str | None = "its own", **options: Any) -> httpx.Client:
        headers = dict(options.pop("headers", {}))
        if token is not None:
            headers["Authorization"] = f"Bearer {self.token if token == 'its own' else token}"
        return httpx.Client(base_url=self.address, headers=headers, timeout=120, **options)

    @property
    def place(self) -> tuple[str, int]:
        url = httpx.URL(self.address)
        assert url.port is not None
        return url.host, url.port


@contextmanager
def serving(folder: Path, **options: Any) -> Iterator[Served]:
    """A server in a thread of this process."""
    settings = options.pop("settings", SETTINGS)
    server = prepared(folder, ServeOptions(port=0, settings=settings, **options))
    thread = threading.Thread(target=server.answer, daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield Served(server.address, server.token or "", folder, server)
    finally:
        server.should_exit = True
        thread.join(timeout=30)
        assert not thread.is_alive()


def copied(model: Path, place: Path) -> Path:
    """A copy of a model folder, for a server of its own."""
    return Path(shutil.copytree(model, place / "shop"))


def taught(folder: Path, *lessons: str) -> Path:
    """A model folder that has learned classes, such as "ab" and then "c"."""
    model = toy_model(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeldOutWarning)
        for classes in lessons:
            learn(model, classes)
    return folder


def png(pixels: Any) -> bytes:
    packed = io.BytesIO()
    Image.fromarray(np.asarray(pixels, dtype=np.uint8).squeeze()).save(packed, "PNG")
    return packed.getvalue()


def pictures(classes: str, count: int = 12, *, start: int = 0) -> list[tuple[str, bytes]]:
    """Training images of each class, as class name and PNG."""
    found = []
    for name in classes:
        images, _ = images_of(name)
        found += [(name, png(image)) for image in images[start : start + count]]
    return found


def test_pictures(count: int) -> list[bytes]:
    return [png(image) for image in test_images()[0][:count]]


test_pictures.__test__ = False  # type: ignore[attr-defined]


def as_files(images: list[bytes], field: str = "images") -> Files:
    return [(field, (f"{number}.png", image)) for number, image in enumerate(images)]


def lesson(classes: str, count: int = 12, *, start: int = 0, **fields: str) -> dict[str, Any]:
    """The arguments of a request that teaches classes."""
    chosen = pictures(classes, count, start=start)
    data = {"class_name": [name for name, _ in chosen], **fields}
    return {"data": data, "files": as_files([image for _, image in chosen])}


def ended(client: httpx.Client, job_id: str) -> dict[str, Any]:
    """The job after it has ended."""
    job: dict[str, Any] = {}

    def has_ended() -> bool:
        job.update(client.get(f"/v1/jobs/{job_id}").json())
        return job["state"] not in ("queued", "running")

    wait_until(has_ended)
    return job


def wait_until(condition: Callable[[], object], seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


class ServerProcess:
    """`bic serve` in a process of its own."""

    def __init__(self, folder: Path, *flags: str) -> None:
        command = [sys.executable, "-m", "bic", "serve", str(folder), "--port", "0", *flags]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout is not None
        first = self.process.stdout.readline()
        assert first.startswith("serving at "), first
        address, _, token = first.split()[2].partition("#token=")
        self.served = Served(address, token, folder)
        wait_until(self._is_ready)

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.served.address}health", timeout=5).is_success
        except httpx.HTTPError:
            return False

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
