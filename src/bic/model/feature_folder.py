"""A folder that keeps features of images, so that they are not computed again.

Everything in it can be deleted at any time. A file is named after its content, written whole or not
at all, and checked when it is read; a damaged one is removed.
"""

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import safetensors.torch
import torch

from bic import files
from bic.errors import BicError
from bic.foreign_files import read_regular_file
from bic.model.frozen_features import KEY_BYTES, Row, Rows
from bic.model.tensor_files import read_tensors
from bic.progress import Progress

SUFFIX = ".safetensors"
MAX_BYTES = 4 * 10**9  # of all features in the user's cache; the oldest are removed first
MAX_FILE_BYTES = 2**30


def user_cache() -> Path:
    """The user's own folder for features: in BIC_CACHE if it is set, else in ~/.cache/bic."""
    own = os.environ.get("BIC_CACHE")
    if own:
        return Path(own).expanduser() / "features"
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "bic" / "features"


class FeatureFolder:
    """The features that one frozen network computes, in a folder below `root`.

    `fingerprint` identifies the network, its preprocessing and its precision. With `max_bytes`, the
    oldest files of all networks are removed when there are more bytes.
    """

    def __init__(
        self, root: Path, fingerprint: str, progress: Progress, *, max_bytes: int | None = None
    ) -> None:
        self.root = root
        self.path = root / fingerprint
        self.progress = progress
        self.max_bytes = max_bytes
        self.is_usable = True

    def find(self, keys: Sequence[bytes]) -> Rows:
        """The rows of those keys that are kept."""
        wanted = set(keys)
        found: dict[bytes, Row] = {}
        try:
            parts = sorted(self.path.glob(f"*{SUFFIX}"))
        except OSError:
            return found
        for part in parts:
            try:
                rows = _read(part)
            except (OSError, ValueError, KeyError) as error:
                self.progress.say(f"{part} is damaged and not used ({error})")
                with suppress(OSError):
                    part.unlink()
                continue
            useful = {key: row for key, row in rows.items() if key in wanted}
            if useful:
                found |= useful
                with suppress(OSError):
                    os.utime(part)  # it was used: it is not the oldest any more
        return found

    def keep(self, rows: Rows) -> None:
        """Write rows to a new file. A folder that cannot be written to is not used any more."""
        if not rows or not self.is_usable:
            return
        keys = np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(-1, KEY_BYTES)
        tensors = {
            "keys": torch.from_numpy(keys.copy()),
            "features": torch.from_numpy(np.stack(list(rows.values()))),
        }
        content = safetensors.torch.save(tensors)
        name = hashlib.sha256(content).hexdigest() + SUFFIX
        try:
            files.write_file(self.path / name, content)
            if self.max_bytes is not None:
                self._trim(self.max_bytes)
        except (OSError, BicError) as error:
            self.is_usable = False
            self.progress.say(f"features are not kept in {self.root} ({error})")

    def _trim(self, max_bytes: int) -> None:
        """Remove the files that were used least recently, until the rest fits."""
        states = []
        for path in self.root.glob(f"*/*{SUFFIX}*"):  # also what killed processes were writing
            with suppress(FileNotFoundError):  # another process has just renamed or removed it
                states.append((path, path.stat()))
        states.sort(key=lambda item: item[1].st_mtime_ns, reverse=True)
        total = 0
        for path, state in states:
            total += state.st_size
            if total > max_bytes:
                path.unlink(missing_ok=True)


def _read(path: Path) -> dict[bytes, Row]:
    """The rows in a file. Raises ValueError if it is not what was written."""
    content = read_regular_file(path, MAX_FILE_BYTES, follow_links=False)
    if hashlib.sha256(content).hexdigest() != path.name.removesuffix(SUFFIX):
        raise ValueError("its checksum does not fit")
    tensors = read_tensors(content)
    keys = tensors["keys"]
    features = tensors["features"]
    is_whole = keys.dtype == torch.uint8 and features.dtype == torch.float16
    if not is_whole or keys.ndim != 2 or features.ndim != 2 or len(keys) != len(features):
        raise ValueError("it holds no features")
    if keys.shape[1] != KEY_BYTES or not torch.isfinite(features).all():
        raise ValueError("it holds other keys or numbers")
    rows = features.numpy()
    return {bytes(key): row for key, row in zip(keys.numpy(), rows, strict=True)}
