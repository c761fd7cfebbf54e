"""Features of a frozen network: computed once per image, and kept by the content of the image.

Features are rounded to half precision, in which they are stored. So a stored feature equals one
that is computed again.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bic.compute.distributed import gathered, world
from bic.compute.precision import computing_in
from bic.data.batches import plain_batches
from bic.data.images import Features, ImageSet, Indices
from bic.data.preprocessing import Preprocessing
from bic.errors import UserError
from bic.model.network import Network
from bic.progress import Progress, Task

Row = npt.NDArray[np.float16]  # the features of one image, [num_features]
Rows = Mapping[bytes, Row]

PLAIN = b"\0"  # the last byte of a key: the image as it is, or mirrored
MIRRORED = b"\1"
KEY_BYTES = 33
BATCH_SIZE = 128  # images that are decoded at once, by the decode pool
# Fewer images are decoded by threads: starting the pool takes as long as computing the features of
# a few hundred photographs.
FEW_IMAGES = 2048
SMALL_BATCH_SIZE = 32
KEPT_AT_ONCE = 2048  # images; so much is lost at most if the process is killed


class FeatureCache(Protocol):
    """A place where features are kept."""

    def find(self, keys: Sequence[bytes]) -> Rows:
        """The rows of those keys that are kept."""

    def keep(self, rows: Rows) -> None:
        """Keep rows. A failure must not stop the caller."""


def key_of(encoded: bytes) -> bytes:
    """What identifies an image: a checksum of its file."""
    return hashlib.sha256(encoded).digest()


def keys_of(images: ImageSet) -> list[bytes]:
    """What identifies each image: a checksum of its file, or of its pixels in memory."""
    if images.files is not None or images.pixels is None:
        return [key_of(images.encoded(index)) for index in range(len(images))]
    shape = repr(tuple(images.pixels.shape[1:])).encode()
    pixels = images.pixels.permute(0, 2, 3, 1) if images.pixels.ndim == 4 else images.pixels
    keys = []
    for row in pixels.numpy():
        keys.append(hashlib.sha256(shape + np.ascontiguousarray(row).tobytes()).digest())
    return keys


def fingerprint(network: Network, preprocessing: Preprocessing, precision: str) -> str:
    """A checksum of everything but the image that decides about features."""
    settings = {**asdict(preprocessing), "precision": precision, "torch": torch.__version__}
    total = hashlib.sha256(repr(sorted(settings.items())).encode())
    for name, tensor in network.state_dict().items():
        if name.startswith("head."):
            continue
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()[:32]


def with_features(
    network: Network,
    images: ImageSet,
    progress: Progress,
    *,
    mirrored: bool,
    precision: str = "float32",
    cache: FeatureCache | None = None,
) -> ImageSet:
    """The readable images of a set with the features of a frozen network.

    `mirrored` adds the features of the mirrored images. A network that is spread over several
    processes uses no cache: their caches may differ.
    """
    features, readable = computed_features(
        network, images, progress, mirrored=mirrored, precision=precision, cache=cache
    )
    if len(readable) < len(images):
        images = images.select(readable)
    return replace(images, features=features)


def computed_features(
    network: Network,
    images: ImageSet,
    progress: Progress,
    *,
    mirrored: bool,
    precision: str = "float32",
    cache: FeatureCache | None = None,
) -> tuple[Features, Indices]:
    """The features of the readable images, and the indices of these images."""
    flags = (PLAIN, MIRRORED) if mirrored else (PLAIN,)
    if world().size > 1:
        cache = None
    keys = [] if cache is None else keys_of(images)
    wanted = [key + flag for key in keys for flag in flags]
    found = {} if cache is None else cache.find(wanted)
    is_known = np.zeros(len(images), dtype=np.bool_)
    for index, key in enumerate(keys):
        is_known[index] = all(key + flag in found for flag in flags)
    known = np.flatnonzero(is_known)
    missing = np.flatnonzero(~is_known)
    values = np.empty((len(images), len(flags), network.num_features), dtype=np.float16)
    for index in known.tolist():
        for place, flag in enumerate(flags):
            values[index, place] = found[keys[index] + flag]
    title = "computing features"
    with progress.task(title, len(images), done=len(known)) as task:
        batch_size = SMALL_BATCH_SIZE if len(missing) < FEW_IMAGES else BATCH_SIZE
        computing = _Computing(network, mirrored, precision, batch_size, task)
        for start in range(0, len(missing), KEPT_AT_ONCE):
            part = missing[start : start + KEPT_AT_ONCE]
            computed, good = computing.rows(images.select(part))
            done = part[good]
            values[done] = computed
            is_known[done] = True
            if cache is not None:
                kept = {}
                for index in done.tolist():
                    for place, flag in enumerate(flags):
                        kept[keys[index] + flag] = values[index, place]
                cache.keep(kept)
    readable = np.flatnonzero(is_known)
    rows = torch.from_numpy(values if len(readable) == len(values) else values[readable])
    return Features(rows[:, 0], rows[:, 1] if mirrored else None), readable


class _Computing:
    """The forward passes of a frozen network."""

    def __init__(
        self, network: Network, mirrored: bool, precision: str, batch_size: int, task: Task
    ) -> None:
        self.network = network.eval()
        self.mirrored = mirrored
        self.precision = precision
        self.batch_size = batch_size
        self.task = task

    @torch.no_grad()
    def rows(self, images: ImageSet) -> tuple[npt.NDArray[np.float16], Indices]:
        """Features [readable, 1 or 2, num_features] of images, and the images' indices."""
        parts = []
        places = []
        for pixels, indices in plain_batches(images, self.batch_size):
            parts.append(self._features(pixels))
            places.append(torch.from_numpy(indices))
            self.task.advance(len(indices))
        if not parts:
            empty = torch.empty(0, 1 + self.mirrored, self.network.num_features)
            parts.append(empty.half())
            places.append(torch.empty(0, dtype=torch.int64))
        rows = gathered(torch.cat(parts))
        if not torch.isfinite(rows).all():
            raise UserError(
                "the backbone's features are NaN, or too large for half precision",
                "use another {backbone}",
            )
        return rows.numpy(), gathered(torch.cat(places)).numpy()

    def _features(self, pixels: Tensor) -> Tensor:
        pixels = pixels.to(self.network.device)
        with computing_in(self.precision, self.network.device):
            features = [self.network.features(pixels)]
            if self.mirrored:
                features.append(self.network.features(pixels.flip(3)))
        return torch.stack(features, dim=1).half().cpu()
