"""Fetching public data sets: continues a broken download, and trusts a checksum only."""

from __future__ import annotations

import hashlib
import http
import http.client
import os
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from bic.errors import UserError, unknown
from bic.progress import Progress, Task

TIMEOUT_SECONDS = 30.0
CHUNK_BYTES = 2**18


@dataclass(frozen=True, kw_only=True)
class Archive:
    """A published file."""

    url: str
    md5: str
    num_bytes: int

    @property
    def file_name(self) -> str:
        return self.url.rpartition("/")[2]


ARCHIVES = {
    "cifar100": Archive(
        url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        md5="eb9058c3a382ffc7106e4002c42a8d85",
        num_bytes=169_001_437,
    ),
}


def data_home() -> Path:
    """Where data sets are kept: $BIC_DATA, or ~/.cache/bic."""
    return Path(os.environ.get("BIC_DATA") or "~/.cache/bic").expanduser()


def get(name: str, home: Path, progress: Progress) -> Path:
    """Download a data set by name into `home`, unless it is there; returns its path."""
    if name not in ARCHIVES:
        raise unknown("data set to download", name, ARCHIVES)
    return fetch(ARCHIVES[name], home, progress)


def fetch(archive: Archive, home: Path, progress: Progress) -> Path:
    """Download `archive` into `home`, going on where an earlier call was cut off.

    Raises UserError if it can't be reached, or if what came is not what was published.
    """
    target = home / archive.file_name
    part = home / f"{archive.file_name}.part"
    try:
        if target.exists() and md5_of(target) == archive.md5:
            progress.say(f"{target} is already there and whole")
            return target
        home.mkdir(parents=True, exist_ok=True)
        complete(archive, part, target, progress)
        if md5_of(part) != archive.md5:
            part.unlink()
            raise UserError(
                f"what {archive.url} sent is not the published file (its MD5 is not "
                f"{archive.md5}) and was deleted; run the command again"
            )
        os.replace(part, target)
    except OSError as problem:
        raise UserError(
            f"can't keep data in {home} ({problem}); set BIC_DATA to a folder you can write to"
        ) from problem
    return target


def complete(archive: Archive, part: Path, target: Path, progress: Progress) -> None:
    """Append to `part` until it has all bytes, for as long as each connection brings some."""
    if size_of(part) > archive.num_bytes:
        part.unlink()
    with progress.task(f"downloading {target.name}", archive.num_bytes, "bytes") as task:
        task.skip(size_of(part))
        while (start := size_of(part)) < archive.num_bytes:
            problem = "the connection was cut"
            try:
                receive(archive, part, start, task)
            except (OSError, http.client.HTTPException) as cut:
                problem = str(cut)
            if size_of(part) <= start:
                raise UserError(
                    f"can't download {archive.url} ({problem}); run the command again to go on, "
                    f"or fetch the file elsewhere and put it at {target}"
                )


def receive(archive: Archive, part: Path, start: int, task: Task) -> None:
    """One connection: from byte `start`, or from the first if the server can't skip."""
    request = urllib.request.Request(archive.url, headers={"Range": f"bytes={start}-"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
        continues = response.status == http.HTTPStatus.PARTIAL_CONTENT
        if not continues:
            task.advance(-start)
        with part.open("ab" if continues else "wb") as file:
            while file.tell() < archive.num_bytes and (chunk := response.read(CHUNK_BYTES)):
                file.write(chunk)
                task.advance(len(chunk))


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def md5_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
