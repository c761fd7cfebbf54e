"""The index of a source: facts about every image, kept between runs.

With it, a million files are not opened again at each start. A folder that has not changed is not
listed again, and an image with unchanged size and time is not opened again. The index is a cache
file: if it is damaged or cannot be written, everything works without it.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from bic.data.parquet_files import column_pieces
from bic.errors import UserError
from bic.foreign_files import read_regular_file

FORMAT = b"bic index 2\n"
DIGEST_BYTES = 32
MIN_IMAGES = 1000  # fewer images are checked in a moment and need no index
# A file that changed less than this long ago may change again without a new time stamp.
SETTLED_NS = 2 * 10**9

Numbers = npt.NDArray[np.int64]

SCHEMA = pa.schema(
    {
        "place": pa.string(),
        "changed": pa.int64(),
        "name": pa.string(),
        "size": pa.int64(),
        "time": pa.int64(),
        "mode": pa.string(),
        "width": pa.int64(),
        "height": pa.int64(),
    }
)
COLUMNS = SCHEMA.names


@dataclass(kw_only=True)
class Facts:
    """Facts about the images in a place (a folder or a Parquet file) or, joined, in several.

    `places` are (name, time of the last change, number of images). For each image: its name, its
    size in bytes, the time of its last change, Pillow's mode ("" if it has not been opened yet),
    and [width, height].
    """

    places: list[tuple[str, int, int]]
    names: list[str]
    sizes: Numbers
    times: Numbers
    modes: npt.NDArray[np.str_]
    sides: Numbers

    @classmethod
    def unknown(
        cls, place: str, changed: int, names: list[str], sizes: Iterable[int], times: Iterable[int]
    ) -> Self:
        """Images that have not been opened yet."""
        return cls(
            places=[(place, changed, len(names))],
            names=names,
            sizes=np.fromiter(sizes, np.int64, len(names)),
            times=np.fromiter(times, np.int64, len(names)),
            modes=np.zeros(len(names), dtype="U6"),
            sides=np.zeros((len(names), 2), dtype=np.int64),
        )

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        return cls(
            places=[place for part in parts for place in part.places],
            names=[name for part in parts for name in part.names],
            sizes=np.concatenate([part.sizes for part in parts]),
            times=np.concatenate([part.times for part in parts]),
            modes=np.concatenate([part.modes for part in parts]),
            sides=np.concatenate([part.sides for part in parts]),
        )

    def take_over(self, known: Self) -> None:
        """Copy modes and sides from `known` for the images that have not changed since."""
        position = {name: index for index, name in enumerate(known.names)}
        old = np.array([position.get(name, -1) for name in self.names], dtype=np.int64)
        same_size = known.sizes[old] == self.sizes
        same_time = known.times[old] == self.times
        unchanged = (old >= 0) & same_size & same_time
        self.modes[unchanged] = known.modes[old[unchanged]]
        self.sides[unchanged] = known.sides[old[unchanged]]


class Index:
    """The known facts about one source, by place."""

    def __init__(self, home: Path, source: Path) -> None:
        key = hashlib.blake2b(os.fsencode(source.resolve()), digest_size=16).hexdigest()
        self.path = home / "index" / f"{key}.parquet"
        self._table, self._rows = self._load()

    def _load(self) -> tuple[pa.Table | None, dict[str, slice]]:
        """The table of all images, and the rows of each place."""
        try:
            content = read_regular_file(self.path)
            start = len(FORMAT) + DIGEST_BYTES
            body = content[start:]
            if content[:start] != _head(body):
                return None, {}
            table = pa.table({name: _column(body, name) for name in COLUMNS}).cast(SCHEMA)
            places, starts = np.unique(table["place"].to_numpy(), return_index=True)
            sorted_starts = np.sort(starts).tolist()
            ends = dict(zip(sorted_starts, [*sorted_starts[1:], len(table)], strict=True))
            rows = {}
            for place, first in zip(places, starts.tolist(), strict=True):
                rows[str(place)] = slice(first, ends[first])
            return table, rows
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException, UserError):
            return None, {}

    def known(self, place: str) -> Facts | None:
        """The facts about one place, or None."""
        if self._table is None or place not in self._rows:
            return None
        rows = self._rows[place]
        num_images = rows.stop - rows.start
        columns: dict[str, Any] = {
            name: self._table[name].slice(rows.start, num_images)
            for name in self._table.column_names
        }
        return Facts(
            places=[(place, columns["changed"][0].as_py(), num_images)],
            names=columns["name"].to_pylist(),
            sizes=columns["size"].to_numpy(),
            times=columns["time"].to_numpy(),
            modes=columns["mode"].to_numpy().astype("U6"),
            sides=np.stack([columns["width"].to_numpy(), columns["height"].to_numpy()], axis=1),
        )

    def list_folder(self, folder: Path, place: str, is_wanted: Callable[[str], bool]) -> Facts:
        """Facts about the wanted files of a folder, sorted by name.

        Raises OSError if the folder cannot be read.
        """
        now = time.time_ns()
        changed = folder.stat().st_mtime_ns
        known = self.known(place)
        if known is not None and known.places[0][1] == changed:
            names = known.names
        else:
            names = sorted(filter(is_wanted, os.listdir(folder)))
        states = [_state(f"{folder}{os.sep}{name}") for name in names]
        sizes = [state.st_size for state in states]
        times = [state.st_mtime_ns for state in states]
        # 0 never equals the time of a folder, so a folder that changed just now is listed again.
        settled = changed if changed < now - SETTLED_NS else 0
        facts = Facts.unknown(place, settled, names, sizes, times)
        if known is not None:
            facts.take_over(known)
        return facts

    def save(self, facts: Facts) -> None:
        """Write these facts, and what was known about other places."""
        table = _as_table(facts)
        if self._table is not None:
            new_places = {name for name, _, _ in facts.places}
            tables = [table]
            for place, rows in self._rows.items():
                if place not in new_places:
                    tables.append(self._table.slice(rows.start, rows.stop - rows.start))
            table = pa.concat_tables(tables)
        is_unchanged = self._table is not None and table.equals(self._table)
        if len(table) < MIN_IMAGES or is_unchanged:
            return
        out = pa.BufferOutputStream()
        pq.write_table(table, out, compression="zstd")
        body = out.getvalue().to_pybytes()
        temporary = self.path.with_suffix(f".{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(_head(body) + body)
            os.replace(temporary, self.path)
        except OSError:
            with suppress(OSError):
                temporary.unlink()


def _head(body: bytes) -> bytes:
    """The start of an index file: its format and a checksum."""
    return FORMAT + hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest()


def _column(body: bytes, name: str) -> pa.ChunkedArray:
    return pa.chunked_array(list(column_pieces(body, name)))


def _as_table(facts: Facts) -> pa.Table:
    """One row per image. The mode of an image that changed just now is not kept."""
    latest = time.time_ns() - SETTLED_NS
    names, changed, counts = zip(*facts.places, strict=True)
    return pa.table(
        {
            "place": np.repeat(np.array(names, dtype=object), counts),
            "changed": np.repeat(np.array(changed, dtype=np.int64), counts),
            "name": facts.names,
            "size": facts.sizes,
            "time": facts.times,
            "mode": np.where(facts.times < latest, facts.modes, "").astype(object),
            "width": facts.sides[:, 0],
            "height": facts.sides[:, 1],
        }
    )


def _state(path: str) -> os.stat_result:
    """The state of a file, or of a broken link. A broken link fails later, when it is opened."""
    try:
        return os.stat(path)
    except OSError:
        return os.lstat(path)
