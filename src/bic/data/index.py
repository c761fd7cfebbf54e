"""What is known of every image of a source, kept between runs, so that a million files are not opened at each start.

The index is a file in the cache folder. A folder that has not changed is not listed again, and an image of unchanged
size and time is not opened again. It is a cache and no more: one that is damaged, or can't be written, is done without.
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

FORMAT = b"bic index 1\n"
FEW = 1000  # images that are looked at in a moment and need no index
SETTLED_NS = 2 * 10**9  # what changed later than this before we looked may change again within the clock's tick

Numbers = npt.NDArray[np.int64]


@dataclass(kw_only=True)
class Facts:
    """What is known of the images in one place (a folder, a Parquet file) or, joined, in several.

    `sizes` in bytes; `times` of their last change; `modes` as Pillow calls them, "" for an image not looked at yet;
    `sides` are width and height. `places` are (name, time of its last change, number of images).
    """

    places: list[tuple[str, int, int]]
    names: list[str]
    sizes: Numbers
    times: Numbers
    modes: npt.NDArray[np.str_]
    sides: Numbers

    @classmethod
    def unknown(cls, place: str, changed: int, names: list[str], sizes: Iterable[int], times: Iterable[int]) -> Self:
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
        """What an earlier look found, for the images that have not changed since."""
        position = {name: index for index, name in enumerate(known.names)}
        old = np.array([position.get(name, -1) for name in self.names], dtype=np.int64)
        same = (old >= 0) & (known.sizes[old] == self.sizes) & (known.times[old] == self.times) if position else old > 0
        self.modes[same], self.sides[same] = known.modes[old[same]], known.sides[old[same]]


class Index:
    """The facts about one source, by place; of those places that are asked for."""

    def __init__(self, home: Path, source: Path) -> None:
        key = hashlib.blake2b(os.fsencode(source.resolve()), digest_size=16).hexdigest()
        self.path = home / "index" / f"{key}.parquet"
        self._table, self._rows = self._load()

    def _load(self) -> tuple[pa.Table | None, dict[str, slice]]:
        try:
            content = self.path.read_bytes()
            head, body = content[: len(FORMAT) + 32], content[len(FORMAT) + 32 :]
            if head != FORMAT + hashlib.blake2b(body, digest_size=32).digest():
                return None, {}
            table = pq.read_table(pa.BufferReader(body))
            places, starts = np.unique(table["place"].to_numpy(), return_index=True)
            ends = [*np.sort(starts)[1:].tolist(), len(table)]
            rows = dict(zip(np.sort(starts).tolist(), ends, strict=True))
            return table, {str(name): slice(start, rows[start]) for name, start in zip(places, starts, strict=True)}
        except (OSError, ValueError, KeyError):
            return None, {}

    def known(self, place: str) -> Facts | None:
        if self._table is None or place not in self._rows:
            return None
        rows = self._rows[place]
        columns: dict[str, Any] = {
            name: self._table[name].slice(rows.start, rows.stop - rows.start) for name in self._table.column_names
        }
        return Facts(
            places=[(place, columns["changed"][0].as_py(), rows.stop - rows.start)],
            names=columns["name"].to_pylist(),
            sizes=columns["size"].to_numpy(),
            times=columns["time"].to_numpy(),
            modes=columns["mode"].to_numpy().astype("U6"),
            sides=np.stack([columns["width"].to_numpy(), columns["height"].to_numpy()], axis=1),
        )

    def list_folder(self, folder: Path, place: str, wanted: Callable[[str], bool]) -> Facts:
        """The files of a folder whose names are `wanted`, in order of name. Raises OSError if it can't be read."""
        now, changed, known = time.time_ns(), folder.stat().st_mtime_ns, self.known(place)
        unchanged = known is not None and known.places[0][1] == changed
        names = known.names if known is not None and unchanged else sorted(filter(wanted, os.listdir(folder)))
        states = [_state(f"{folder}{os.sep}{name}") for name in names]
        facts = Facts.unknown(
            place,
            _settled(changed, now),
            names,
            (each.st_size for each in states),
            (each.st_mtime_ns for each in states),
        )
        if known is not None:
            facts.take_over(known)
        return facts

    def save(self, found: Facts) -> None:
        """Keep what has been found, beside what was known of other places."""
        latest = time.time_ns() - SETTLED_NS
        names, changed, counts = zip(*found.places, strict=True)
        table = pa.table(
            {
                "place": np.repeat(np.array(names, dtype=object), counts),
                "changed": np.repeat(np.array(changed, dtype=np.int64), counts),
                "name": found.names,
                "size": found.sizes,
                "time": found.times,
                "mode": np.where(found.times < latest, found.modes, "").astype(object),
                "width": found.sides[:, 0],
                "height": found.sides[:, 1],
            }
        )
        asked = set(names)
        others = [rows for place, rows in self._rows.items() if place not in asked]
        if self._table is not None and len(others):
            table = pa.concat_tables([table, *(self._table.slice(r.start, r.stop - r.start) for r in others)])
        if len(table) < FEW or (self._table is not None and table.equals(self._table)):
            return
        out = pa.BufferOutputStream()
        pq.write_table(table, out, compression="zstd")
        body = out.getvalue().to_pybytes()
        temporary = self.path.with_suffix(f".{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(FORMAT + hashlib.blake2b(body, digest_size=32).digest() + body)
            os.replace(temporary, self.path)
        except OSError:
            with suppress(OSError):
                temporary.unlink()


def _state(path: str) -> os.stat_result:
    """Of a file, or of a link to one that is gone: that it can't be read is said when it is looked at."""
    try:
        return os.stat(path)
    except FileNotFoundError:
        return os.lstat(path)


def _settled(changed: int, now: int) -> int:
    """A time of change that can be trusted to change again with the next change; 0 if it is too recent for that."""
    return changed if changed < now - SETTLED_NS else 0
