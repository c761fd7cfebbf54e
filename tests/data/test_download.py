"""Downloads from a local server that fails in every way we know."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bic.data import download
from bic.data.download import Archive, data_home, get
from bic.errors import UserError
from bic.progress import Progress

CONTENT = bytes(range(256)) * 4000


class Server(ThreadingHTTPServer):
    """Serves CONTENT. `cuts` are the numbers of bytes after which connections break."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = CONTENT
        self.cuts: list[int] = []
        self.knows_range = True
        self.ranges: list[str | None] = []

    def archive(self, **changes: object) -> Archive:
        fields = {
            "url": f"http://127.0.0.1:{self.server_port}/files/toy.tar.gz",
            "md5": hashlib.md5(CONTENT).hexdigest(),
            "num_bytes": len(CONTENT),
        }
        return Archive(**(fields | changes))  # type: ignore[arg-type]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.ranges.append(self.headers["Range"])
        if self.path != "/files/toy.tar.gz":
            self.send_error(404)
            return
        start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
        start = start if self.server.knows_range else 0
        self.send_response(206 if self.server.knows_range else 200)
        body = self.server.content[start:]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut = self.server.cuts.pop(0) if self.server.cuts else len(body)
        self.wfile.write(body[:cut])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def restored_archives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "ARCHIVES", dict(download.ARCHIVES))


def fetch(archive: Archive, home: Path, progress: Progress) -> Path:
    download.ARCHIVES["toy"] = archive
    return get("toy", home, progress)


@pytest.fixture
def quiet() -> Progress:
    return Progress("quiet")


def test_a_file_is_downloaded_completely(server: Server, tmp_path: Path, quiet: Progress) -> None:
    target = fetch(server.archive(), tmp_path / "new" / "home", quiet)
    assert target == tmp_path / "new" / "home" / "toy.tar.gz"
    assert target.read_bytes() == CONTENT
    assert [path.name for path in target.parent.iterdir()] == ["toy.tar.gz"]


def test_a_broken_connection_is_continued(server: Server, tmp_path: Path, quiet: Progress) -> None:
    server.cuts = [300_000, 200_000]
    assert fetch(server.archive(), tmp_path, quiet).read_bytes() == CONTENT
    assert server.ranges == ["bytes=0-", "bytes=300000-", "bytes=500000-"]


def test_a_later_call_continues_an_earlier_one(
    server: Server, tmp_path: Path, quiet: Progress
) -> None:
    server.cuts = [300_000, 0]
    with pytest.raises(
        UserError, match=r"can't download http.*toy.tar.gz \(the connection was cut"
    ):
        fetch(server.archive(), tmp_path, quiet)
    assert (tmp_path / "toy.tar.gz.part").read_bytes() == CONTENT[:300_000]
    assert not (tmp_path / "toy.tar.gz").exists()
    assert fetch(server.archive(), tmp_path, quiet).read_bytes() == CONTENT
    assert server.ranges[-1] == "bytes=300000-"


def test_a_server_that_cannot_continue_starts_again(
    server: Server, tmp_path: Path, quiet: Progress
) -> None:
    server.knows_range = False
    (tmp_path / "toy.tar.gz.part").write_bytes(b"other bytes")
    assert fetch(server.archive(), tmp_path, quiet).read_bytes() == CONTENT


def test_a_file_with_a_wrong_checksum_is_deleted(
    server: Server, tmp_path: Path, quiet: Progress
) -> None:
    server.content = CONTENT[::-1]
    with pytest.raises(UserError, match=r"is not the published one .* was deleted; run again"):
        fetch(server.archive(), tmp_path, quiet)
    assert list(tmp_path.iterdir()) == []


def test_a_complete_file_is_not_downloaded_again(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "toy.tar.gz").write_bytes(CONTENT)
    assert fetch(server.archive(), tmp_path, Progress("lines")) == tmp_path / "toy.tar.gz"
    assert "is already there and complete" in capsys.readouterr().err
    assert server.ranges == []


def test_a_damaged_file_is_replaced(server: Server, tmp_path: Path, quiet: Progress) -> None:
    (tmp_path / "toy.tar.gz").write_bytes(CONTENT[:-1])
    assert fetch(server.archive(), tmp_path, quiet).read_bytes() == CONTENT


def test_an_endless_response_is_cut(server: Server, tmp_path: Path, quiet: Progress) -> None:
    archive = server.archive(num_bytes=1000)
    with pytest.raises(UserError, match="is not the published one"):
        fetch(archive, tmp_path, quiet)


def test_a_file_that_the_server_does_not_have(
    server: Server, tmp_path: Path, quiet: Progress
) -> None:
    url = f"http://127.0.0.1:{server.server_port}/gone.tar.gz"
    with pytest.raises(UserError, match=r"gone.tar.gz \(HTTP Error 404.*put it at .*/gone.tar.gz"):
        fetch(server.archive(url=url), tmp_path, quiet)


def test_without_a_network(
    tmp_path: Path, quiet: Progress, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server() as closed:
        archive = closed.archive()
    monkeypatch.setitem(download.ARCHIVES, "cifar100", archive)
    with pytest.raises(
        UserError,
        match=rf"can't download {archive.url} .*refused.* put it at {tmp_path}/toy.tar.gz$",
    ):
        get("cifar100", tmp_path, quiet)


def test_a_home_that_cannot_be_written(server: Server, tmp_path: Path, quiet: Progress) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"can't keep data in .*set BIC_DATA to a folder"):
        fetch(server.archive(), tmp_path / "file" / "home", quiet)


def test_names_and_home(tmp_path: Path, quiet: Progress, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="unknown data set to download 'cifar10'; did you mean"):
        get("cifar10", tmp_path, quiet)
    monkeypatch.setenv("BIC_DATA", str(tmp_path))
    assert data_home() == tmp_path
    monkeypatch.delenv("BIC_DATA")
    assert data_home() == Path.home() / ".cache" / "bic"
