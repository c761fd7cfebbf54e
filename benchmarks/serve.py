"""Compare `bic serve` with the network's bare forward pass, and let many clients meet new versions.

    python benchmarks/serve.py [--seconds N] [--rounds N] [--threads N] [--case TEXT] [--json FILE]
    python benchmarks/serve.py --versions [--seconds 60]

Clients send JPEGs over HTTP, one image per request and one request at a time. The bare forward pass
classifies the same pixels, which are in memory: in batches of 32 for 32 clients, one by one for one
client. Both take turns. The figures are medians over rounds. Clients, server and everything else
share the machine. Use a quiet one.

With --versions, 32 clients predict while the server learns twice and rolls back once. Every answer
must come from one version, and none may fail.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import torch
from input import photograph
from torch import Tensor

import bic
from bic.data.batches import plain_batches
from bic.data.images import ImageSet

NUM_CLIENTS = 32
NUM_IMAGES = 64
WARM_UP = 1.0  # seconds


class Case(NamedTuple):
    """A network, the size of its images, and the size of the files."""

    name: str
    backbone: str
    size: int
    width: int
    height: int


CASES = (
    Case("photographs, resnet18 at 224", "resnet18", 224, 500, 375),
    Case("photographs, fast at 64", "fast", 64, 500, 375),
    Case("small images, resnet32 at 32", "resnet32", 32, 32, 32),
    Case("small images, fast at 32", "fast", 32, 32, 32),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--case", default="", help="only cases with this in their names")
    parser.add_argument("--versions", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    figures = {}
    for case in CASES:
        if arguments.case not in case.name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            if arguments.versions:
                figures[case.name] = meet_versions(case, Path(folder), arguments.seconds)
            else:
                figures[case.name] = compare(
                    case, Path(folder), arguments.seconds, arguments.rounds
                )
        print(case.name, json.dumps(figures[case.name]), flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


def compare(case: Case, folder: Path, seconds: float, rounds: int) -> dict[str, float]:
    images = write_images(folder / "images", case)
    taught(case, folder / "shop", images)
    model = bic.open_model(folder / "shop").model
    model.network.eval()
    encoded = [path.read_bytes() for path in images]
    image_set = ImageSet(
        labels=np.zeros(len(encoded), np.int64), preprocessing=model.preprocessing, files=encoded
    )
    pixels = torch.cat([batch for batch, _ in plain_batches(image_set)])[:NUM_CLIENTS].clone()
    many: dict[str, list[float]] = {"bare": [], "served": []}
    single: dict[str, list[float]] = {"bare": [], "served": []}
    batch_sizes: list[float] = []
    with Server(folder / "shop") as server:
        requests = [server.request(image) for image in encoded]
        for _ in range(rounds):
            many["bare"].append(NUM_CLIENTS / bare_seconds(model, pixels, seconds))
            before = server.counts()
            latencies = call(server, requests, NUM_CLIENTS, seconds)
            used = server.counts() - before
            many["served"].append(len(latencies) / seconds)
            batch_sizes.append(used.images / used.batches)
            single["bare"].append(1000 * bare_seconds(model, pixels[:1], seconds))
            latencies = call(server, requests, 1, seconds)
            single["served"].append(1000 * statistics.median(latencies))
    median = statistics.median
    ratios = [a / b for a, b in zip(many["served"], many["bare"], strict=True)]
    limits = [1.2 * value + 10 for value in single["bare"]]
    return {
        "bare, images/s": round(median(many["bare"]), 1),
        "32 clients, images/s": round(median(many["served"]), 1),
        "ratio": round(median(ratios), 3),
        "images per batch": round(median(batch_sizes), 1),
        "one image bare, ms": round(median(single["bare"]), 2),
        "one client, ms": round(median(single["served"]), 2),
        "allowed, ms": round(median(limits), 2),
    }


def bare_seconds(model: bic.Model, pixels: Tensor, seconds: float) -> float:
    """The median time of a forward pass."""
    times = []
    with torch.no_grad():
        model.network(pixels)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            start = time.perf_counter()
            model.network(pixels)
            times.append(time.perf_counter() - start)
    return statistics.median(times)


class Counts(NamedTuple):
    """What a server has done since it started."""

    batches: int
    images: int

    def __sub__(self, before: "Counts") -> "Counts":
        return Counts(*(now - then for now, then in zip(self, before, strict=True)))


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
        return Counts(int(values["bic_batches_total"]), int(values["bic_predicted_images_total"]))


def call(server: Server, requests: list[bytes], num_clients: int, seconds: float) -> list[float]:
    """The seconds of every answer that clients get at the same time."""
    latencies: list[float] = []

    async def client(number: int, begin: float) -> None:
        reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
        turn = number
        while (start := time.perf_counter()) < begin + seconds:
            await ask(reader, writer, requests[turn % len(requests)])
            end = time.perf_counter()
            turn += 1
            if begin <= start and end <= begin + seconds:
                latencies.append(end - start)
        writer.close()

    async def all_clients() -> None:
        begin = time.perf_counter() + WARM_UP
        await asyncio.gather(*(client(number, begin) for number in range(num_clients)))

    asyncio.run(all_clients())
    return latencies


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


def meet_versions(case: Case, folder: Path, seconds: float) -> dict[str, Any]:
    """What 32 clients see while the server learns twice and rolls back once."""
    images = write_images(folder / "images", case)
    taught(case, folder / "shop", images)
    stop = asyncio.Event()
    versions: Counter[int] = Counter()

    with Server(folder / "shop") as server, server.client() as teacher:
        requests = [server.request(path.read_bytes(), "?top=99") for path in images]

        async def client(number: int) -> None:
            reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
            turn = number
            while not stop.is_set():
                answer = await ask(reader, writer, requests[turn % len(requests)])
                turn += 1
                version = answer["version"]
                if len(answer["predictions"][0]["classes"]) != version + 1:
                    raise RuntimeError(f"version {version} has answered with other classes")
                versions[version] += 1
            writer.close()

        def learn(name: str, start: int) -> None:
            files = [("images", path.read_bytes()) for path in images[start : start + 8]]
            answer = teacher.post("/v1/learn", data={"class_name": name}, files=files).json()
            state = "queued"
            while state in ("queued", "running"):
                time.sleep(0.2)
                job = teacher.get(f"/v1/jobs/{answer['job']['id']}").json()
                state = job["state"]
            if state != "done":
                raise RuntimeError(job["message"])

        def change_versions(begin: float) -> None:
            learn("third", 16)
            learn("fourth", 24)
            teacher.post("/v1/rollback", json={"version": 1}).raise_for_status()
            time.sleep(max(1.0, begin + seconds - time.perf_counter()))
            stop.set()

        async def everything() -> None:
            begin = time.perf_counter()
            clients = [asyncio.create_task(client(number)) for number in range(NUM_CLIENTS)]
            await asyncio.gather(asyncio.to_thread(change_versions, begin), *clients)

        start = time.perf_counter()
        asyncio.run(everything())
    return {
        "seconds": round(time.perf_counter() - start, 1),
        "answers": sum(versions.values()),
        "answers of each version": dict(sorted(versions.items())),
        "errors": 0,  # the first one ends this program
    }


def taught(case: Case, folder: Path, images: list[Path]) -> None:
    """A model that has learned two classes a little: predicting takes the same time."""
    recipe = {"name": "fast", "backbone": case.backbone, "precision": "float32"}
    model = bic.open_model(folder, recipe=recipe, image_size=case.size, epochs=1)
    model.learn([str(path) for path in images[:16]], ["first", "second"] * 8)


def write_images(folder: Path, case: Case) -> list[Path]:
    folder.mkdir()
    draws = np.random.default_rng(0)
    paths = []
    for number in range(NUM_IMAGES):
        path = folder / f"{number:03}.jpg"
        photograph(draws, case.width, case.height).save(path, quality=90)
        paths.append(path)
    return paths


if __name__ == "__main__":
    main()
