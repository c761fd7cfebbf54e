"""Fetching public data sets: continues a broken download, and trusts a checksum only."""

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
    url: str
    md5: str
    num_bytes: int


CIFAR = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
ARCHIVES = {"cifar100": Archive(CIFAR, md5="eb9058c3a382ffc7106e4002c42a8d85", num_bytes=169_001_437)}


def data_home() -> Path:
    """Where data sets are kept: $BIC_DATA, or ~/.cache/bic."""
    return Path(os.environ.get("BIC_DATA") or "~/.cache/bic").expanduser()


def get(name: str, home: Path, progress: Progress) -> Path:
    """Download a data set into `home`, unless it is there, going on where an earlier call was cut off.

    Returns its path. Raises UserError if it can't be reached, or is not what was published.
    """
    if name not in ARCHIVES:
        raise unknown("data set to download", name, ARCHIVES)
    archive = ARCHIVES[name]
    target = home / archive.url.rpartition("/")[2]
    part = target.with_name(f"{target.name}.part")
    try:
        if target.exists() and md5_of(target) == archive.md5:
            progress.say(f"{target} is already there and whole")
            return target
        home.mkdir(parents=True, exist_ok=True)
        size = part.stat().st_size if part.exists() else 0
        task = progress.task(f"downloading {target.name}", archive.num_bytes, "bytes", done=size)
        with part.open("ab") as file, task as done:
            while (start := file.tell()) < archive.num_bytes:
                problem = "the connection was cut"
                try:
                    receive(archive, file, done)
                except (OSError, http.client.HTTPException) as cut:
                    problem = str(cut)
                if file.tell() <= start:
                    elsewhere = f"or fetch the file elsewhere and put it at {target}"
                    raise UserError(f"can't download {archive.url} ({problem}); run the command again, {elsewhere}")
        if md5_of(part) != archive.md5:
            part.unlink()
            problem = f"is not the published file (its MD5 is not {archive.md5}) and was deleted"
            raise UserError(f"what {archive.url} sent {problem}; run the command again")
        return part.replace(target)
    except OSError as error:
        raise UserError(f"can't keep data in {home} ({error}); set BIC_DATA to a folder you can write to") from error


def receive(archive: Archive, file: BinaryIO, task: Task) -> None:
    """Append what one connection brings; a server that can't skip makes us begin again."""
    request = urllib.request.Request(archive.url, headers={"Range": f"bytes={file.tell()}-"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
        if response.status != HTTPStatus.PARTIAL_CONTENT:
            task.advance(-file.tell())
            file.truncate(0)
            file.seek(0)
        while file.tell() < archive.num_bytes and (chunk := response.read(CHUNK_BYTES)):
            file.write(chunk)
            task.advance(len(chunk))


def md5_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
