"""Slow, partial, broken and idle connections do not keep others waiting."""

import contextlib
import resource
import socket
import time
from pathlib import Path

import pytest
from support.servers import Served, as_files, copied, serving, test_pictures

from bic.serve.limits import Limits

IDLE = 1000


def answer_seconds(server: Served) -> float:
    """The time of one prediction."""
    start = time.monotonic()
    with server.client(None) as client:
        answer = client.post("/v1/predict", files=as_files(test_pictures(1)))
    assert answer.status_code == 200
    return time.monotonic() - start


def test_a_thousand_idle_connections(server: Served) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2 * IDLE + 200 and hard < 2 * IDLE + 200:
        pytest.skip("too few file descriptors are allowed here")
    with contextlib.ExitStack() as stack:
        for _ in range(IDLE):
            stack.enter_context(socket.create_connection(server.place, timeout=10))
        assert answer_seconds(server) < 5
        assert server.server is not None
        assert len(server.server.server_state.connections) >= IDLE


def test_partial_requests_keep_nobody_waiting(server: Served) -> None:
    head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n"
    starts = (b"POST /v1/pre", head, head + b"Content-Length: 5000\r\n\r\nhalf", b"\x16\x03\x01")
    with contextlib.ExitStack() as stack:
        for start in starts * 8:
            connection = stack.enter_context(socket.create_connection(server.place, timeout=10))
            connection.sendall(start)
        assert answer_seconds(server) < 5


def test_broken_requests(server: Served) -> None:
    with socket.create_connection(server.place, timeout=10) as connection:
        connection.sendall(b"nonsense\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 400")
    with socket.create_connection(server.place, timeout=10) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000)
        assert connection.recv(100).startswith(b"HTTP/1.1 4")
    assert answer_seconds(server) < 5


def test_silent_connections_and_slow_bodies_end(model: Path, tmp_path: Path) -> None:
    limits = Limits(header_seconds=1.0, body_seconds=0.5)
    with serving(copied(model, tmp_path), limits=limits) as served:
        silent = socket.create_connection(served.place, timeout=10)
        slow = socket.create_connection(served.place, timeout=10)
        second = socket.create_connection(served.place, timeout=10)
        with silent, slow, second:
            second.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while not answer.endswith(b"}"):
                answer += second.recv(4000)
            assert answer.startswith(b"HTTP/1.1 200")
            second.sendall(b"GET /hea")  # and no more
            head = "POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n1"
            slow.sendall(head.encode())
            assert slow.recv(100).startswith(b"HTTP/1.1 408")
            silent.sendall(b"GET /health HT")
            assert silent.recv(100) == b""  # closed
            assert second.recv(100) == b""
        assert answer_seconds(served) < 5
