"""Which images a model has learned: a digest of each, so that none is learned twice by accident.

Imports no torch.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bic.data.parquet_files import read_columns
from bic.errors import UserError
from bic.model.version_files import read_stored
from bic.model.versions import DamagedError, StoredFile

if TYPE_CHECKING:
    from bic.data.images import ImageSet, Indices, Labels

DIGEST_BYTES = 16
SCHEMA = pa.schema({"class": pa.int64(), "digest": pa.binary(DIGEST_BYTES)})
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


def ordered_fingerprint(digests: Sequence[bytes], labels: Labels) -> str:
    """A checksum of images and labels in their order, on which every random draw depends."""
    total = hashlib.blake2b(np.ascontiguousarray(labels).tobytes(), digest_size=DIGEST_BYTES)
    for image in digests:
        total.update(image)
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
        "class": [int(labels[index]) for index in order],
        "digest": [digests[index] for index in order],
    }
    return _encoded(pa.table(columns, schema=SCHEMA))


def read_ledgers(folder: Path, stored: Iterable[StoredFile]) -> Seen:
    """The images in several ledgers. Raises DamagedError for a damaged one."""
    seen: Seen = {}
    for file in stored:
        table = _read(folder, file)
        labels = table["class"].to_pylist()
        for label, image in zip(labels, table["digest"].to_pylist(), strict=True):
            seen.setdefault(label, set()).add(image)
    return seen


def without_classes(folder: Path, file: StoredFile, classes: Sequence[int]) -> bytes | None:
    """A ledger without some classes; None if it has no images of them."""
    table = _read(folder, file)
    stays = ~np.isin(table["class"].to_numpy(), list(classes))
    return None if stays.all() else _encoded(table.filter(pa.array(stays)))


def _read(folder: Path, file: StoredFile) -> pa.Table:
    content = read_stored(folder, file)
    try:
        table = read_columns(content, {field.name: field.type for field in SCHEMA})
        if any(column.null_count for column in table.columns):
            raise ValueError("it has empty cells")
    except UserError as error:
        raise DamagedError(folder / file.name, f"{error.problem}; {error.remedy}") from error
    except (ValueError, TypeError, OSError, pa.ArrowException) as error:
        raise DamagedError(folder / file.name, "it is not a list of learned images") from error
    return table


def _encoded(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, compression="none")
    return out.getvalue()
