"""Which images a model has learned: a digest of each, so that none is learned twice by accident.

Imports no torch.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from bic.data.images import ImageSet, Indices, Labels

DIGEST_BYTES = 16
Seen = dict[int, set[bytes]]  # by the position of the class


def digest(encoded: bytes) -> bytes:
    return hashlib.blake2b(encoded, digest_size=DIGEST_BYTES).digest()


def digests_of(images: ImageSet) -> list[bytes]:
    """The digest of each image, of the bytes that the memory would store."""
    return [digest(images.encoded(index)) for index in range(len(images))]


def fingerprint(digests: Sequence[bytes], labels: Labels, names: Sequence[str]) -> str:
    """A checksum of images and their classes, whatever their order."""
    pairs = sorted(zip((names[label] for label in labels), digests, strict=True))
    total = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for name, image in pairs:
        total.update(name.encode() + b"\0" + image)
    return total.hexdigest()


def unseen(digests: Sequence[bytes], labels: Labels, seen: Mapping[int, set[bytes]]) -> Indices:
    """The indices of images that are not in `seen`. Of equal images of a class, the first."""
    known = {label: set(images) for label, images in seen.items()}
    chosen = []
    for index, (label, image) in enumerate(zip(labels.tolist(), digests, strict=True)):
        of_class = known.setdefault(label, set())
        if image not in of_class:
            of_class.add(image)
            chosen.append(index)
    return np.array(chosen, dtype=np.int64)


def encoded_ledger(digests: Sequence[bytes], labels: Labels) -> bytes:
    """The file of the images that one version has learned, by class."""
    order = sorted(range(len(digests)), key=lambda index: (labels[index], digests[index]))
    columns = {
        "class": pa.array([int(labels[index]) for index in order], pa.int64()),
        "digest": pa.array([digests[index] for index in order], pa.binary(DIGEST_BYTES)),
    }
    return _encoded(pa.table(columns))


def read_ledgers(contents: Iterable[bytes]) -> Seen:
    """The images in several ledgers. Raises ValueError for a damaged one."""
    seen: Seen = {}
    for content in contents:
        table = _decoded(content)
        for label, image in zip(
            table["class"].to_pylist(), table["digest"].to_pylist(), strict=True
        ):
            seen.setdefault(int(label), set()).add(bytes(image))
    return seen


def without_classes(content: bytes, classes: Sequence[int]) -> bytes | None:
    """A ledger without some classes; None if it has no images of them."""
    table = _decoded(content)
    labels = table["class"].to_numpy()
    stays = ~np.isin(labels, list(classes))
    return None if stays.all() else _encoded(table.filter(pa.array(stays)))


def _decoded(content: bytes) -> pa.Table:
    return pq.read_table(io.BytesIO(content), use_threads=False, pre_buffer=False)


def _encoded(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, compression="none")
    return out.getvalue()
