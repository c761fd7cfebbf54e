"""Download public data sets. An interrupted download continues, and the checksum must match."""

import hashlib
import http.client
import os
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO, NamedTuple

from bic.errors import UserError, unknown
from bic.progress import Progress, Task

TIMEOUT_SECONDS = 30.0
CHUNK_BYTES = 2**18


class Archive(NamedTuple):
    """A published file."""

    url: str
    md5: str
    num_bytes: int


CIFAR = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
ARCHIVES = {
    "cifar100": Archive(CIFAR, md5="eb9058c3a382ffc7106e4002c42a8d85", num_bytes=169_001_437)
}


def data_home() -> Path:
    """The folder of downloaded data sets: $BIC_DATA, or ~/.cache/bic."""
    return Path(os.environ.get("BIC_DATA") or "~/.cache/bic").expanduser()


def get(name: str, home: Path, progress: Progress) -> Path:
    """Download a data set into `home` and return its path.

    Continues an earlier download that was interrupted, and does nothing if the file is there.
    Raises UserError if the server cannot be reached or does not send the published file.
    """
    if name not in ARCHIVES:
        raise unknown("data set to download", name, ARCHIVES)
    archive = ARCHIVES[name]
    target = home / archive.url.rpartition("/")[2]
    part = target.with_name(f"{target.name}.part")
    try:
        if target.exists() and md5_of(target) == archive.md5:
            progress.say(f"{target} is already there and complete")
            return target
        home.mkdir(parents=True, exist_ok=True)
        download(archive, part, target, progress)
        if md5_of(part) != archive.md5:
            part.unlink()
            reason = f"its MD5 is not {archive.md5}"
            raise UserError(
                f"the file from {archive.url} is not the published one ({reason}) and was deleted",
                "run again",
            )
        return part.replace(target)
    except OSError as error:
        problem = f"can't keep data in {home} ({error})"
        raise UserError(problem, "set BIC_DATA to a folder you can write to") from error


def download(archive: Archive, part: Path, target: Path, progress: Progress) -> None:
    """Append the rest of the archive to the file `part`, with as many connections as needed.

    Raises UserError if a connection receives nothing. The error names `target`.
    """
    num_done = part.stat().st_size if part.exists() else 0
    title = f"downloading {target.name}"
    task_context = progress.task(title, archive.num_bytes, "bytes", done=num_done)
    with part.open("ab") as file, task_context as task:
        while file.tell() < archive.num_bytes:
            start = file.tell()
            reason = "the connection was cut"
            try:
                receive(archive, file, task)
            except (OSError, http.client.HTTPException) as error:
                reason = str(error)
            if file.tell() <= start:
                problem = f"can't download {archive.url} ({reason})"
                raise UserError(
                    problem, f"run again, or get the file elsewhere and put it at {target}"
                )


def receive(archive: Archive, file: BinaryIO, task: Task) -> None:
    """Append what one connection sends. If the server cannot skip bytes, start again from zero."""
    request = urllib.request.Request(archive.url, headers={"Range": f"bytes={file.tell()}-"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
        if response.status != HTTPStatus.PARTIAL_CONTENT:
            task.advance(-file.tell())
            file.truncate(0)
            file.seek(0)
        while file.tell() < archive.num_bytes:
            chunk = response.read(CHUNK_BYTES)
            if not chunk:
                return
            file.write(chunk)
            task.advance(len(chunk))


def md5_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
