"""The machine that reads CIFAR's pickles: only numbers and text, little memory, at once."""

import io
import pickle
import pickletools
import struct
import time
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.memory_limit import memory_limit

from bic.data.sources import pickled
from bic.data.sources.pickled import load

ALLOWED = (int, str, bytes, float, type(None), np.generic)


def array_pickle(dtype: str, shape: tuple[int, ...], content: bytes) -> bytes:
    """A pickle of an array that need not make sense."""
    out = b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
    out += pickle.dumps((0,), 2)[2:-1] + pickle.dumps(b"b", 3)[2:-1] + b"\x87R("
    out += pickle.dumps(1, 2)[2:-1] + pickle.dumps(shape, 2)[2:-1]
    out += b"cnumpy\ndtype\n" + pickle.dumps((dtype, 0, 1), 2)[2:-1] + b"R("
    out += (
        pickle.dumps(3, 2)[2:-1] + b"X\x01\x00\x00\x00<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    return out + b"\x89B" + struct.pack("<I", len(content)) + content + b"tb."


def test_crafted_arrays_are_those_of_pickle() -> None:
    content = array_pickle("f8", (2, 3), np.arange(6.0).tobytes())
    assert load(content).tolist() == pickle.loads(content).tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("dtype", "shape", "size", "message"),
    [
        ("O", (20,), 160, "arrays of object, and only numbers are read"),
        ("O8", (20,), 160, "only numbers are read"),
        ("V8", (20,), 160, "only numbers are read"),
        ("f8,O", (20,), 320, "only numbers are read"),
        ("(4,)f8", (1,), 32, "only numbers are read"),
        ("M8", (20,), 160, "only numbers are read"),
        ("nonsense", (20,), 160, "nonsense"),
        ("f8", (10**12,), 8, r"it holds 8 bytes for an array \[1000000000000\]"),
        ("f8", (-1, -1), 8, "impossible shape"),
        ("f8", (2**31,) * 3, 8, "it holds 8 bytes"),
        ("f8", (1,) * 40, 8, "impossible shape"),
    ],
)
def test_odd_arrays_are_refused(dtype: str, shape: Any, size: int, message: str) -> None:
    with memory_limit(2**26), pytest.raises(ValueError, match=message):
        load(array_pickle(dtype, shape, b"A" * size))


# What Python's reader needs a gigabyte or for ever for.
BOMBS = {
    "doubling tuples": b"\x80\x02)q\x00" + b"".join(
        b"h%ch%c\x86q%c" % (number, number, number + 1) for number in range(60)
    ) + b".",
    "doubling keys": b"\x80\x02}K\x01" + b"\x85q\x00" + b"".join(
        b"h%ch%c\x86q%c" % (number, number, number + 1) for number in range(60)
    ) + b"K\x01s.",
    "deep tuples": b"\x80\x02)" + b"\x85" * 10**6 + b".",
    "deep lists": b"\x80\x02" + b"]" * 10**5 + b"a" * (10**5 - 1) + b".",
    "lists in lists": b"\x80\x02]q\x00(h\x00h\x00h\x00e.",
    "dictionaries in dictionaries": b"\x80\x02}K\x01}s.",
    "a promise of four gigabytes": b"\x80\x02B\xff\xff\xff\xffabc.",
    "a frame of any size": b"\x80\x04\x95" + b"\xff" * 8 + b".",
    "millions of empty lists": b"\x80\x02" + b"]" * 1_200_000,
    "a long number": b"\x80\x02\x8b\xff\xff\xff\x7f" + b"\xff" * 100,
    "marks": b"\x80\x02" + b"(" * 10**6 + b"t" * 10**6 + b".",
    "nothing": b"",
    "stop": b".",
    "no mark": b"\x80\x02Nt.",
    "a key without a value": b"\x80\x02}(K\x01u.",
    "a call of nothing": b"\x80\x02NNR.",
    "a call of an array": b"\x80\x02cnumpy\nndarray\n)R.",
    "a change of a list": b"\x80\x02]}b.",
    "a name": b"\x80\x02cnumpy\nndarray\n.",
    "a mark": b"\x80\x02(.",
    "a type": b"\x80\x02cnumpy\ndtype\nX\x02\x00\x00\x00f8\x85R.",
    "an array without content": (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n\x85R."
    ),
    "an extension": b"\x80\x02\x82\x01.",
    "a persistent name": b"\x80\x02Pabc\n.",
    "a new object": b"\x80\x02cnumpy\nndarray\n)\x81.",
    "an instance": b"(iposix\nsystem\n.",
}  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_are_refused_at_once_and_in_little_memory(bomb: str) -> None:
    start = time.process_time()
    with memory_limit(2**28), pytest.raises(ValueError, match=r"^(it|its) |descr"):
        load(BOMBS[bomb])
    assert time.process_time() - start < 5


def test_memo_takes_no_more_places_than_are_used() -> None:
    with memory_limit(2**26):
        assert load(b"\x80\x02Nr\xff\xff\xff\xffr\xfe\xff\xff\xff.") is None


def test_each_instruction_is_one_of_pickle() -> None:
    known = {opcode.code.encode("latin1") for opcode in pickletools.opcodes}
    assert pickled.INSTRUCTIONS.keys() <= known


plain = st.one_of(st.integers(-(2**31), 2**31), st.text(max_size=5), st.binary(max_size=5))
values = st.dictionaries(st.text(max_size=5), plain | st.lists(plain, max_size=5), max_size=4)


@settings(max_examples=50, deadline=None)
@given(values, st.sampled_from([2, 3, 4]))
def test_plain_data_is_that_of_pickle(value: dict[str, Any], protocol: int) -> None:
    if protocol == 2 and any(isinstance(item, bytes) for item in flat(value)):
        return  # Python 3 writes bytes as a call of a function in protocol 2
    content = pickle.dumps(value, protocol)
    assert load(content) == pickle.loads(content)


def flat(value: dict[str, Any]) -> list[Any]:
    items: list[Any] = []
    for item in value.values():
        items += item if isinstance(item, list) else [item]
    return items


def is_plain(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "buif"
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return isinstance(value, ALLOWED)


OUT = io.BytesIO()
LABELS = [np.int64(3), 1, 70000, True, None]
pickle.dump({"data": np.arange(6, dtype=np.uint8).reshape(2, 3), "labels": LABELS}, OUT, 4)


def test_the_type_of_an_array_inside_a_tuple_is_not_data() -> None:
    end = OUT.getvalue().index(b"\x94\x86") + 2  # after the arguments of a number's constructor
    with pytest.raises(ValueError, match="it holds something that is not data"):
        load(OUT.getvalue()[:end] + b".")


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(OUT.getvalue()) - 1), st.binary(min_size=1, max_size=3), st.booleans())
def test_damage_is_harmless(position: int, change: bytes, insert: bool) -> None:
    content = OUT.getvalue()
    end = position if insert else position + len(change)
    with memory_limit(2**26), suppress(ValueError):
        assert is_plain(load(content[:position] + change + content[end:]))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([*pickled.INSTRUCTIONS, b"\x00", b"\x01", b"\x02"]), max_size=40))
def test_any_program_ends(codes: list[bytes]) -> None:
    with memory_limit(2**26), suppress(ValueError):
        assert is_plain(load(b"".join(codes) + b"."))
