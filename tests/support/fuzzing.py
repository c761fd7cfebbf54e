"""Changes to JSON and to files that a stranger, or a broken disk, could make."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ODD_VALUES = (None, True, -1, 0, 10**30, 1e308, "", "x\x1b[2J", [], [1], [[]], {}, {"a": {}})
MISSING = object()

Place = tuple[str | int, ...]


def places(value: Any, above: Place = ()) -> Iterator[Place]:
    """The place of every value inside a JSON value, but only the first two of a list."""
    if above:
        yield above
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*above, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value[:2]):
            yield from places(inner, (*above, number))


def changed(value: Any, place: Place, new: Any) -> Any:
    """A copy with another value at one place, or without it."""
    result = copy.deepcopy(value)
    inner = result
    for key in place[:-1]:
        inner = inner[key]
    if new is MISSING:
        del inner[place[-1]]
    else:
        inner[place[-1]] = new
    return result


def odd_json(value: Any, *, seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """Every place missing once, and then `count` random odd values. Each with a title."""
    draws = np.random.default_rng(seed)
    every_place = list(places(value))
    for place in every_place:
        yield f"without {place}", json.dumps(changed(value, place, MISSING)).encode()
    for _ in range(count):
        place = every_place[draws.integers(len(every_place))]
        new = ODD_VALUES[draws.integers(len(ODD_VALUES))]
        yield f"{place} = {new!r}", json.dumps(changed(value, place, new)).encode()


def odd_bytes(content: bytes, *, seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """Flipped bits, files that end early, and files with something inserted."""
    draws = np.random.default_rng(seed)
    for number in range(count):
        # Most of a file is pixels or weights. Its structure is at its start and at its end.
        reach = min(len(content), 3000 if number % 3 else len(content))
        position = int(draws.integers(reach))
        if number % 2:
            position = len(content) - 1 - position
        damaged = bytearray(content)
        if number % 5 == 0:
            damaged = damaged[:position]
        elif number % 5 == 1:
            damaged[position:position] = draws.bytes(3)
        else:
            damaged[position] ^= 1 << int(draws.integers(8))
        yield f"damage {number} at {position}", bytes(damaged)


def contents(folder: Path) -> dict[str, bytes]:
    """The content of every file in a folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
