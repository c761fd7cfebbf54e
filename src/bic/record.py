"""What is left on disk: written whole or not at all, checksummed, never pickled."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.torch

from bic.errors import UserError
from bic.train import Tensors

CHECKSUMS = "checksums.json"
TEMPORARY = ".writing-"


class DamagedError(UserError):
    """A folder whose content is not what its checksums say."""


def write_file(path: Path, content: bytes) -> None:
    """Replace a file in one instant: after a crash it is the old one or the new one."""
    with _saying_what_failed(path):
        temporary = path.with_name(TEMPORARY + path.name)
        _write_synced(temporary, content)
        os.replace(temporary, path)
        _sync_folder(path.parent)


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Make a folder appear in one instant, with a checksum of every file in it."""
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    temporary = path.with_name(TEMPORARY + path.name)
    with _saying_what_failed(path):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        for name, content in {**files, CHECKSUMS: to_json(sums)}.items():
            _write_synced(temporary / name, content)
        _sync_folder(temporary)
        if path.exists():
            shutil.rmtree(path)
        os.replace(temporary, path)
        _sync_folder(path.parent)


def read_folder(path: Path) -> dict[str, bytes]:
    """All files of a folder that `write_folder` made; DamagedError if any has changed."""
    try:
        sums = json.loads((path / CHECKSUMS).read_bytes())
        files = {name: (path / name).read_bytes() for name in sums}
    except (OSError, ValueError) as error:
        raise DamagedError(f"{path} is not whole ({error}); delete it and run again") from error
    for name, content in files.items():
        if hashlib.sha256(content).hexdigest() != sums[name]:
            raise DamagedError(f"{path / name} is damaged; delete {path} and run again")
    return files


def clear_unfinished(folder: Path) -> None:
    """Remove what a killed process was writing."""
    for leftover in folder.glob(f"{TEMPORARY}*"):
        if leftover.is_dir():
            shutil.rmtree(leftover)
        else:
            leftover.unlink()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder; the lock goes with the process, however it ends."""
    with _saying_what_failed(folder):
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / ".lock").open("w")
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"{folder} is in use by another process; wait for it or choose another --out"
            ) from error
        yield


def to_json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def tensors_to_bytes(tensors: Tensors) -> bytes:
    return safetensors.torch.save(
        {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    )


def bytes_to_tensors(content: bytes) -> Tensors:
    return safetensors.torch.load(content)


def arrays_to_bytes(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, allow_pickle=False, **arrays)
    return out.getvalue()


def table_to_bytes(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, compression="none")  # the images are compressed already
    return out.getvalue()


def bytes_to_table(content: bytes) -> pa.Table:
    return pq.read_table(io.BytesIO(content))


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _saying_what_failed(path: Path) -> Iterator[None]:
    """A full disk or a forbidden folder is the user's to mend; what was there before stays."""
    try:
        yield
    except OSError as error:
        temporary = path.with_name(TEMPORARY + path.name)
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)
        raise UserError(
            f"cannot write {path} ({error.strerror}); what was there before is intact: "
            "mend that and run the same command again"
        ) from error
