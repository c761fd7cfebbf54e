"""`bic serve` as a process: killed, started again, and stopped."""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.servers import ServerProcess, as_files, ended, lesson, test_pictures, wait_until


@pytest.fixture
def started() -> Iterator[list[ServerProcess]]:
    """Servers that are killed at the end of the test."""
    servers: list[ServerProcess] = []
    yield servers
    for server in servers:
        server.stop()


def children(pid: int) -> set[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return set(map(int, found.stdout.split()))


def is_running(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", str(pid)], capture_output=True, text=True)
    return bool(state.stdout.strip()) and not state.stdout.startswith("Z")


def test_a_killed_server_starts_again_with_the_last_version(
    model: Path, tmp_path: Path, started: list[ServerProcess]
) -> None:
    folder = Path(shutil.copytree(model, tmp_path / "shop"))
    first = ServerProcess(folder)
    started.append(first)
    with first.served.client() as client:
        job_id = client.post("/v1/learn", **lesson("d")).json()["job"]["id"]
        wait_until(lambda: children(first.process.pid))
        (learner,) = children(first.process.pid)
    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait()
    wait_until(lambda: not is_running(learner))  # it does not outlive its server

    second = ServerProcess(folder)
    started.append(second)
    assert second.served.token == ""  # it is printed only once
    second.served.token = first.served.token
    with second.served.client() as client:
        answer = client.post("/v1/predict", files=as_files(test_pictures(1)))
        assert answer.json()["version"] == 2
        job = client.get(f"/v1/jobs/{job_id}").json()
        assert (job["state"], job["can_retry"]) == ("failed", True)
        assert job["message"].startswith("the server was stopped")
        again = client.post(f"/v1/jobs/{job_id}/retry").json()["job"]["id"]
        assert ended(client, again)["version"] == 3

        # SIGTERM: a request that has begun is still answered, and the process ends.
        slow = socket.create_connection(second.served.place, timeout=30)
        with slow:
            (image,) = test_pictures(1)
            head = (
                "POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n"
                f"Content-Length: {len(image)}\r\n\r\n"
            )
            slow.sendall(head.encode() + image[:20])
            wait_until(lambda: client.get("/health").is_success)
            second.process.terminate()
            wait_until(lambda: not _accepts(second.served.place))
            slow.sendall(image[20:])
            assert slow.recv(4000).startswith(b"HTTP/1.1 200")
        assert second.process.wait(timeout=30) in (0, -signal.SIGTERM)


def _accepts(place: tuple[str, int]) -> bool:
    try:
        socket.create_connection(place, timeout=1).close()
    except OSError:
        return False
    return True
