"""Many callers while versions change: no errors, and every answer comes from one version."""

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
from support.servers import as_files, ended, lesson, serving, taught, test_pictures

NUM_CLIENTS = 32
SECONDS = 8.0
PAUSE = 0.5  # seconds between two requests of a caller, so that the lessons get some time too
# The classes of each version.
CLASSES = {1: "ab", 2: "abc", 3: "abcd"}


class Caller(threading.Thread):
    """Predicts until told to stop, and notes what is wrong."""

    def __init__(self, address: str, images: list[bytes], stop: threading.Event) -> None:
        super().__init__()
        self.address = address
        self.images = images
        self.stop = stop
        self.versions: Counter[int] = Counter()
        self.problems: list[str] = []

    def run(self) -> None:
        with httpx.Client(base_url=self.address, timeout=30) as client:
            while not self.stop.is_set():
                try:
                    self.ask(client)
                except Exception as error:
                    self.problems.append(f"{type(error).__name__}: {error}")
                self.stop.wait(PAUSE)

    def ask(self, client: httpx.Client) -> None:
        answer = client.post("/v1/predict?top=9", files=as_files(self.images))
        if answer.status_code != 200:
            self.problems.append(f"{answer.status_code}: {answer.text[:200]}")
            return
        content = answer.json()
        version = content["version"]
        self.versions[version] += 1
        for prediction in content["predictions"]:
            names = sorted(entry["name"] for entry in prediction["classes"])
            if "".join(names) != CLASSES[version]:
                self.problems.append(f"version {version} has answered with {names}")


def test_callers_see_whole_versions_and_no_errors(tmp_path: Path) -> None:
    folder = taught(tmp_path / "shop", "ab")
    stop = threading.Event()
    images = test_pictures(2)
    with serving(folder) as served, served.client() as client:
        callers = [Caller(served.address, images, stop) for _ in range(NUM_CLIENTS)]
        start = time.monotonic()
        for caller in callers:
            caller.start()
        try:
            for classes in ("c", "d"):
                job = _taught(client, classes)
                assert job["state"] == "done", job
            assert client.post("/v1/rollback", json={"version": 2}).json() == {"version": 2}
            time.sleep(max(0.5, SECONDS - (time.monotonic() - start)))
        finally:
            stop.set()
            for caller in callers:
                caller.join()
        problems = [problem for caller in callers for problem in caller.problems]
        assert problems == []
        versions = sum((caller.versions for caller in callers), Counter[int]())
        assert set(versions) == {1, 2, 3}
        assert client.get("/ready").json()["version"] == 2


def _taught(client: httpx.Client, classes: str) -> dict[str, Any]:
    return ended(client, client.post("/v1/learn", **lesson(classes)).json()["job"]["id"])
