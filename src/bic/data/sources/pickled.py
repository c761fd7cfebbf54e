"""The pickles of CIFAR, read by a machine that only knows numbers, text, lists and arrays.

Python's own reader is not used: a file can make it hang or take any amount of memory. This one
calls nothing, imports nothing and takes little more memory than the file has bytes. It knows
the instructions that Python 2 and 3 write for such data (protocols 0 to 4).
"""

import io
import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

NUMBERS = "buif"
MAX_LINE = 1000  # bytes of a number or name that is written as text
MAX_INSTRUCTIONS = 1_000_000  # each makes one small object; the published files have 250,000
MAX_TYPE_LENGTH = 20  # characters
MAX_DIMENSIONS = 8
ARRAY = "numpy.ndarray"
DTYPE = "numpy.dtype"
NEW_ARRAY = "numpy.core.multiarray._reconstruct"
SCALAR = "numpy.core.multiarray.scalar"
KNOWN = (ARRAY, DTYPE, NEW_ARRAY, SCALAR)

MARK = object()


class Name:
    """One of the names that a file may use. It stands for itself and is never called."""

    def __init__(self, name: str) -> None:
        self.name = name


class PickledType:
    """The type of an array, before its byte order is known."""

    def __init__(self, code: Any) -> None:
        dtype = np.dtype(_text(code)[:MAX_TYPE_LENGTH])
        if dtype.kind not in NUMBERS:
            raise ValueError(f"it holds arrays of {dtype}, and only numbers are read")
        self.dtype = dtype

    def build(self, state: Any) -> None:
        order = _text(state[1])
        if order not in ("<", ">", "=", "|"):
            raise ValueError(f"it holds numbers in an unknown byte order, {order[:20]!r}")
        if self.dtype.itemsize > 1:
            self.dtype = np.dtype(order + self.dtype.str[1:])


class PickledArray:
    """An array, before its content is known."""

    def __init__(self) -> None:
        self.values: npt.NDArray[Any] | None = None

    def build(self, state: Any) -> None:
        _, shape, pickled_type, is_fortran, content = state
        if not isinstance(pickled_type, PickledType) or not isinstance(content, bytes):
            raise ValueError("it holds an array without a type or content")
        if len(shape) > MAX_DIMENSIONS or any(type(side) is not int or side < 0 for side in shape):
            raise ValueError(f"it holds an array of an impossible shape, {str(shape)[:100]}")
        dtype = pickled_type.dtype
        if len(content) != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"it holds {len(content):,} bytes for an array {list(shape)}")
        values: npt.NDArray[Any] = np.frombuffer(content, dtype)
        self.values = values.reshape(shape, order="F" if is_fortran else "C")


class Machine:
    """Reads one pickle. Lists hold no lists and tuples are flat, so nothing can grow by itself."""

    def __init__(self, content: bytes) -> None:
        self._input = io.BytesIO(content)
        self._size = len(content)
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        read = self._input.read
        for _ in range(MAX_INSTRUCTIONS):
            code = read(1)
            if code == b".":
                return self._plain(self._stack.pop())
            if code not in INSTRUCTIONS:
                raise ValueError(f"it holds the instruction {code!r}, which CIFAR-100 does not")
            INSTRUCTIONS[code](self)
        raise ValueError(f"it has more than {MAX_INSTRUCTIONS:,} instructions")

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def take(self, count: int) -> bytes:
        content = self._input.read(count)
        if len(content) != count:
            raise ValueError("it ends in the middle of a value")
        return content

    def number(self, code: str) -> int:
        (value,) = struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))
        return int(value)

    def sized(self, code: str) -> bytes:
        """Bytes that follow their number."""
        count = self.number(code)
        if not 0 <= count <= self._size:
            raise ValueError(f"it promises {count:,} bytes and has {self._size:,}")
        return self.take(count)

    def line(self) -> bytes:
        line = self._input.readline(MAX_LINE)
        if not line.endswith(b"\n"):
            raise ValueError("it holds a line that does not end")
        return line[:-1]

    def above_mark(self) -> list[Any]:
        """Take everything above the last mark."""
        position = len(self._stack) - 1
        while self._stack[position] is not MARK:
            position -= 1
            if position < 0:
                raise ValueError("it has no mark")
        values = self._stack[position + 1 :]
        del self._stack[position:]
        return values

    def last(self, count: int) -> list[Any]:
        if not count:
            return []
        values = self._stack[-count:]
        if len(values) != count or any(value is MARK for value in values):
            raise ValueError("it has too few values")
        del self._stack[-count:]
        return values

    def push_tuple(self, values: list[Any]) -> None:
        for value in values:
            if isinstance(value, list | dict) or (isinstance(value, tuple) and _holds_tuple(value)):
                raise ValueError("it holds tuples that are nested too deeply")
        self.push(tuple(values))

    def push_list(self, values: list[Any]) -> None:
        self.push([])
        self.append(values)

    def push_dict(self, values: list[Any]) -> None:
        self.push({})
        self.set_items(values)

    def append(self, values: list[Any]) -> None:
        target = self._top(list)
        for value in values:
            if isinstance(value, list | dict | tuple):
                raise ValueError("it holds lists of lists")
            target.append(self._plain(value))

    def set_items(self, values: list[Any]) -> None:
        target = self._top(dict)
        if len(values) % 2:
            raise ValueError("it has a key without a value")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if isinstance(value, dict):
                raise ValueError("it holds dictionaries of dictionaries")
            target[_text(key)] = self._plain(value)

    def _top(self, kind: type) -> Any:
        if not self._stack or not isinstance(self._stack[-1], kind):
            raise ValueError(f"it has no {kind.__name__} to add to")
        return self._stack[-1]

    def push_name(self, module: str, name: str) -> None:
        full_name = f"{module}.{name}".replace("numpy._core.", "numpy.core.")
        if full_name not in KNOWN:
            raise ValueError(f"it holds {full_name[:100]}, which CIFAR-100 does not")
        self.push(Name(full_name))

    def reduce(self) -> None:
        called, arguments = self.last(2)
        name = called.name if isinstance(called, Name) else None
        if not isinstance(arguments, tuple):
            raise ValueError("it has a call without arguments")
        if name == DTYPE:
            self.push(PickledType(arguments[0]))
        elif name == NEW_ARRAY:
            self.push(PickledArray())
        elif name == SCALAR:
            pickled_type, content = arguments
            scalar = PickledArray()
            scalar.build((1, (), pickled_type, False, content))
            assert scalar.values is not None
            self.push(scalar.values[()])
        else:
            raise ValueError("it calls something that is not an array")

    def build(self) -> None:
        (state,) = self.last(1)
        target = self._stack[-1] if self._stack else None
        if not isinstance(target, PickledType | PickledArray) or not isinstance(state, tuple):
            raise ValueError("it changes something that is not an array")
        target.build(state)

    def remember(self, number: int) -> None:
        self._memo[number] = self._stack[-1]

    def memoize(self) -> None:
        self.remember(len(self._memo))

    def recall(self, number: int) -> None:
        self.push(self._memo[number])

    def _plain(self, value: Any) -> Any:
        """The value as the caller sees it."""
        if isinstance(value, PickledArray):
            if value.values is None:
                raise ValueError("it holds an array without content")
            return value.values
        if isinstance(value, tuple):
            return tuple(self._plain(part) for part in value)
        if isinstance(value, Name | PickledType) or value is MARK:
            raise ValueError("it holds something that is not data")
        return value


def _holds_tuple(values: tuple[Any, ...]) -> bool:
    return any(isinstance(value, tuple) for value in values)


def _text(value: Any) -> str:
    """A key or name. Python 2 wrote its text as bytes."""
    if isinstance(value, bytes):
        return value.decode("latin1")
    if not isinstance(value, str):
        raise ValueError(f"it holds {type(value).__name__} in place of text")
    return value


def _long(content: bytes) -> int:
    if len(content) > 16:
        raise ValueError("it holds a number of enormous size")
    return int.from_bytes(content, "little", signed=True)


def _integer_line(line: bytes) -> int | bool:
    if line in (b"00", b"01"):
        return line == b"01"
    return int(line.removesuffix(b"L"))


INSTRUCTIONS: dict[bytes, Callable[[Machine], None]] = {
    b"\x80": lambda machine: _nothing(machine.take(1)),  # protocol
    b"\x95": lambda machine: _nothing(machine.take(8)),  # frame
    b"(": lambda machine: machine.push(MARK),
    b"}": lambda machine: machine.push({}),
    b"]": lambda machine: machine.push([]),
    b")": lambda machine: machine.push(()),
    b"N": lambda machine: machine.push(None),
    b"\x88": lambda machine: machine.push(True),
    b"\x89": lambda machine: machine.push(False),
    b"K": lambda machine: machine.push(machine.number("B")),
    b"M": lambda machine: machine.push(machine.number("H")),
    b"J": lambda machine: machine.push(machine.number("i")),
    b"I": lambda machine: machine.push(_integer_line(machine.line())),
    b"L": lambda machine: machine.push(_integer_line(machine.line())),
    b"\x8a": lambda machine: machine.push(_long(machine.sized("B"))),
    b"U": lambda machine: machine.push(machine.sized("B")),
    b"T": lambda machine: machine.push(machine.sized("i")),
    b"C": lambda machine: machine.push(machine.sized("B")),
    b"B": lambda machine: machine.push(machine.sized("I")),
    b"V": lambda machine: machine.push(machine.line().decode("latin1")),
    b"\x8c": lambda machine: machine.push(machine.sized("B").decode()),
    b"X": lambda machine: machine.push(machine.sized("I").decode()),
    b"t": lambda machine: machine.push_tuple(machine.above_mark()),
    b"\x85": lambda machine: machine.push_tuple(machine.last(1)),
    b"\x86": lambda machine: machine.push_tuple(machine.last(2)),
    b"\x87": lambda machine: machine.push_tuple(machine.last(3)),
    b"l": lambda machine: machine.push_list(machine.above_mark()),
    b"d": lambda machine: machine.push_dict(machine.above_mark()),
    b"a": lambda machine: machine.append(machine.last(1)),
    b"e": lambda machine: machine.append(machine.above_mark()),
    b"s": lambda machine: machine.set_items(machine.last(2)),
    b"u": lambda machine: machine.set_items(machine.above_mark()),
    b"q": lambda machine: machine.remember(machine.number("B")),
    b"r": lambda machine: machine.remember(machine.number("I")),
    b"p": lambda machine: machine.remember(int(machine.line())),
    b"\x94": lambda machine: machine.memoize(),
    b"h": lambda machine: machine.recall(machine.number("B")),
    b"j": lambda machine: machine.recall(machine.number("I")),
    b"g": lambda machine: machine.recall(int(machine.line())),
    b"c": lambda machine: machine.push_name(machine.line().decode(), machine.line().decode()),
    b"\x93": lambda machine: machine.push_name(*map(_text, machine.last(2))),
    b"R": lambda machine: machine.reduce(),
    b"b": lambda machine: machine.build(),
}


def _nothing(_: bytes) -> None:
    """Part of an instruction that changes nothing."""


def load(content: bytes) -> Any:
    """The content of a pickle of numbers, text, lists and arrays. Raises ValueError for others.

    Text that Python 2 wrote is returned as bytes, except for keys.
    """
    try:
        return Machine(content).run()
    except (IndexError, KeyError, TypeError) as error:
        raise ValueError(f"its instructions contradict each other ({error})") from error
