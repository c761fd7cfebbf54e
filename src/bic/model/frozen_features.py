"""Features of a frozen network: computed once per image, and kept by the content of the image.

Features are rounded to half precision, in which they are stored. So a stored feature equals one
that is computed again.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bic.compute.distributed import gathered, world
from bic.compute.precision import computing_in
from bic.data.batches import ahead, plain_batches
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
# On a CPU, each thread decodes its own images and computes their features. Threads that share the
# work on every image wait for each other, and decoding would have to wait for them.
MAX_THREADS = 8  # more would wait for Python: then each of them computes with several
# Pixels that a thread works on at once, so that they fit into its caches: four images of 224 × 224.
# In bfloat16 there are twice as many, of half the bytes.
PIXELS_AT_ONCE = 4 * 224**2
# On a GPU, so many images at once are decoded by the decode pool.
BATCH_SIZE = 128
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
        computing = _Computing(network, mirrored, precision, task)
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

    def __init__(self, network: Network, mirrored: bool, precision: str, task: Task) -> None:
        self.network = network.eval()
        self.mirrored = mirrored
        self.precision = precision
        self.task = task

    def rows(self, images: ImageSet) -> tuple[npt.NDArray[np.float16], Indices]:
        """Features [readable, 1 or 2, num_features] of images, and the images' indices."""
        empty = torch.empty(0, 1 + self.mirrored, self.network.num_features).half()
        parts = [empty]
        places = [torch.empty(0, dtype=torch.int64)]
        on_cpu = self.network.device.type == "cpu"
        for features, indices in self._by_threads(images) if on_cpu else self._by_gpu(images):
            parts.append(features)
            places.append(torch.from_numpy(indices))
            self.task.advance(len(indices))
        rows = gathered(torch.cat(parts))
        if not torch.isfinite(rows).all():
            raise UserError(
                "the backbone's features are NaN, or too large for half precision",
                "use another {backbone}",
            )
        return rows.numpy(), gathered(torch.cat(places)).numpy()

    def _by_gpu(self, images: ImageSet) -> Iterator[tuple[Tensor, Indices]]:
        batch_size = SMALL_BATCH_SIZE if len(images) < FEW_IMAGES else BATCH_SIZE
        for pixels, indices in plain_batches(images, batch_size):
            yield self._features(pixels), indices

    def _by_threads(self, images: ImageSet) -> Iterator[tuple[Tensor, Indices]]:
        num_threads = torch.get_num_threads()
        workers = min(num_threads, MAX_THREADS)
        shard = world().share(images.everything)
        side = images.preprocessing.size or 1
        num_pixels = PIXELS_AT_ONCE * (2 if self.precision == "bfloat16" else 1)
        batch_size = max(1, min(num_pixels // side**2, len(shard) // workers))
        makers = []
        for start in range(0, len(shard), batch_size):
            indices = shard[start : start + batch_size]
            makers.append(partial(self._decoded, images, indices, num_threads // workers))
        self.network.fold()
        try:
            for features, indices in ahead(makers, workers):
                if len(indices):
                    yield features, indices
        finally:
            torch.set_num_threads(num_threads)

    def _decoded(
        self, images: ImageSet, indices: Indices, num_threads: int
    ) -> tuple[Tensor, Indices]:
        """The features of readable images, computed by a thread of its own."""
        torch.set_num_threads(num_threads)  # of this thread, and of threads that start later
        pixels, readable = images.take_readable(indices)
        return self._features(pixels) if len(readable) else torch.empty(0), readable

    @torch.no_grad()
    def _features(self, pixels: Tensor) -> Tensor:
        pixels = pixels.to(self.network.device)
        with computing_in(self.precision, self.network.device):
            features = [self.network.features(pixels)]
            if self.mirrored:
                features.append(self.network.features(pixels.flip(3)))
        return torch.stack(features, dim=1).half().cpu()
