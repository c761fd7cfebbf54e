"""Compare `bic serve` with the network's bare forward pass, and let many clients meet new versions.

    python benchmarks/serve.py [--seconds N] [--rounds N] [--threads N] [--case TEXT] [--json FILE]
    python benchmarks/serve.py --versions [--seconds 60]

Clients send JPEGs over HTTP, one image per request and one request at a time. The bare forward pass
classifies the same pixels, which are in memory: for 32 clients 32 images in batches as large as the
server may make them, for one client one image. Both take turns. The figures are medians over
rounds. Clients, server and everything else share the machine. Use a quiet one.

"CPU ms per image" says where the time goes with 32 clients: what the bare forward pass takes on all
threads together, what decoding takes, the server as a whole and the clients. "possible" is the
ratio of a server that spends no time on HTTP: forward pass and decoding keep all threads busy.

With --versions, 32 clients predict while the server learns twice and rolls back once. Every answer
must come from one version, and none may fail.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from input import photograph
from server import Server, ask, call
from torch import Tensor

import bic
from bic.data.batches import plain_batches
from bic.data.images import ImageSet
from bic.serve.batching import decoded_into, empty_pixels, largest_batch, use_one_thread

NUM_CLIENTS = 32
NUM_IMAGES = 64
ROUNDS_OF_DECODING = 5


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


def compare(case: Case, folder: Path, seconds: float, rounds: int) -> dict[str, Any]:
    images = write_images(folder / "images", case)
    taught(case, folder / "shop", images)
    model = bic.open_model(folder / "shop").model
    model.network.eval()
    encoded = [path.read_bytes() for path in images]
    image_set = ImageSet(
        labels=np.zeros(len(encoded), np.int64), preprocessing=model.preprocessing, files=encoded
    )
    pixels = torch.cat([batch for batch, _ in plain_batches(image_set)])[:NUM_CLIENTS].clone()
    parts = torch.split(pixels, largest_batch(model))
    many: dict[str, list[float]] = {"bare": [], "served": []}
    single: dict[str, list[float]] = {"bare": [], "served": []}
    batch_sizes: list[float] = []
    cpu: dict[str, list[float]] = {"forward pass": [], "server": [], "clients": []}
    cpu["decoding"] = [decode_seconds(model, encoded)]
    with Server(folder / "shop") as server:
        requests = [server.request(image) for image in encoded]
        for _ in range(rounds):
            bare = time_bare(model, parts, seconds)
            many["bare"].append(NUM_CLIENTS / bare.seconds)
            cpu["forward pass"].append(bare.cpu_seconds / NUM_CLIENTS)
            before = server.counts()
            called = call(server, requests, NUM_CLIENTS, seconds)
            used = server.counts() - before
            many["served"].append(len(called.latencies) / seconds)
            batch_sizes.append(used.images / used.batches)
            cpu["server"].append(used.cpu_seconds / used.images)
            cpu["clients"].append(called.cpu_seconds / used.images)
            single["bare"].append(1000 * time_bare(model, [pixels[:1]], seconds).seconds)
            latencies = call(server, requests, 1, seconds).latencies
            single["served"].append(1000 * statistics.median(latencies))
    median = statistics.median
    ratios = [a / b for a, b in zip(many["served"], many["bare"], strict=True)]
    limits = [1.2 * value + 10 for value in single["bare"]]
    cpu_ms = {name: 1000 * median(values) for name, values in cpu.items()}
    needed = cpu_ms["forward pass"] + cpu_ms["decoding"]
    possible = torch.get_num_threads() * 1000 / needed
    return {
        "bare, images/s": round(median(many["bare"]), 1),
        "32 clients, images/s": round(median(many["served"]), 1),
        "ratio": round(median(ratios), 3),
        "possible": round(possible / median(many["bare"]), 3),
        "images per batch": round(median(batch_sizes), 1),
        "CPU ms per image": {name: round(value, 2) for name, value in cpu_ms.items()},
        "one image bare, ms": round(median(single["bare"]), 2),
        "one client, ms": round(median(single["served"]), 2),
        "allowed, ms": round(median(limits), 2),
    }


class Bare(NamedTuple):
    """The median time of a forward pass, and the mean CPU time of all threads."""

    seconds: float
    cpu_seconds: float


def time_bare(model: bic.Model, parts: Sequence[Tensor], seconds: float) -> Bare:
    """The time of the forward passes of all parts."""
    times = []
    with torch.no_grad():
        for part in parts:
            model.network(part)
        cpu_start = time.process_time()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            start = time.perf_counter()
            for part in parts:
                model.network(part)
            times.append(time.perf_counter() - start)
        cpu_seconds = time.process_time() - cpu_start
    return Bare(statistics.median(times), cpu_seconds / len(times))


def decode_seconds(model: bic.Model, encoded: list[bytes]) -> float:
    """The time to decode an image, in one thread."""

    def measured() -> float:
        use_one_thread()
        times = []
        for _ in range(ROUNDS_OF_DECODING):
            start = time.perf_counter()
            for content in encoded:
                decoded_into(empty_pixels(1, model.preprocessing), content, model.preprocessing)
            times.append((time.perf_counter() - start) / len(encoded))
        return statistics.median(times)

    with ThreadPoolExecutor(1) as thread:
        seconds = thread.submit(measured).result()
    torch.set_num_threads(torch.get_num_threads())  # also for threads that are started later
    return seconds


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
