"""CIFAR-100 as published, in pickles, and pickles that hold something else."""

from __future__ import annotations

import io
import os
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bic.data.class_choice import NUM_CLASSES
from bic.data.images import Dataset
from bic.data.open import open_dataset
from bic.data.sources import cifar
from bic.errors import UserError


class Python2Pickler(pickle._Pickler):  # type: ignore[name-defined, misc]
    """Writes bytes and text as Python 2 wrote its str, like the published files."""

    def save_text(self, text: str) -> None:
        self.save_string(text.encode("ascii"))

    def save_string(self, text: bytes) -> None:
        self.write(pickle.BINSTRING + struct.pack("<i", len(text)) + text)

    dispatch = {**pickle._Pickler.dispatch, str: save_text, bytes: save_string}  # noqa: RUF012


def as_published(value: Any) -> bytes:
    out = io.BytesIO()
    Python2Pickler(out, protocol=2).dump(value)
    return out.getvalue().replace(b"cnumpy._core.", b"cnumpy.core.")


def part(num_images: int) -> dict[str, Any]:
    data = np.random.default_rng(num_images).integers(0, 256, (num_images, 3072), dtype=np.uint8)
    labels = [number % 3 for number in range(num_images)]
    coarse = [0 if label < 2 else 1 for label in labels]
    return {"data": data, "fine_labels": labels, "coarse_labels": coarse, "filenames": ["x.png"]}


META = {"fine_label_names": ["apple", "bear", "can"], "coarse_label_names": ["fruit", "things"]}


def write(home: Path, **changes: bytes) -> Path:
    folder = home / "cifar-100-python"
    folder.mkdir()
    files = {
        "train": as_published(part(6)),
        "test": as_published(part(4)),
        "meta": as_published(META),
    }
    for name, content in (files | changes).items():
        (folder / name).write_bytes(content)
    return folder


def pack(folder: Path) -> Path:
    archive = folder.parent / "cifar-100-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, arcname="cifar-100-python")
    return archive


def check(data: Dataset) -> None:
    """The data set is the one that `write` writes."""
    assert data.classes == ("apple", "bear", "can")
    assert data.train.labels.tolist() == [0, 1, 2, 0, 1, 2]
    pixels = data.test.take(np.array([3]))[0]
    assert pixels.shape == (3, 32, 32)
    assert pixels.flatten().tolist() == part(4)["data"][3].tolist()


def test_a_folder(tmp_path: Path) -> None:
    data = open_dataset(str(write(tmp_path)))
    assert data.name == "cifar-100-python"
    check(data)
    red = part(6)["data"][0][:32].tolist()
    assert data.train.take(np.array([0]))[0, 0, 0].tolist() == red


def test_an_archive_is_read_without_unpacking(tmp_path: Path) -> None:
    folder = write(tmp_path)
    archive = pack(folder).rename(tmp_path / "renamed")
    before = sorted(tmp_path.rglob("*"))
    check(open_dataset(str(archive)))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("packed", [False, True])
def test_the_name_finds_it_in_the_data_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    monkeypatch.setenv("BIC_DATA", str(tmp_path))
    monkeypatch.setitem(NUM_CLASSES, "cifar100", 3)
    with pytest.raises(UserError, match='run `bic data get cifar100`, or pass data="PATH"'):
        open_dataset("cifar100")
    folder = write(tmp_path)
    if packed:
        pack(folder)
        folder.rename(tmp_path / "elsewhere")
    data = open_dataset("cifar100")
    assert data.name == "cifar100"
    check(data)


def test_super_classes(tmp_path: Path) -> None:
    data = open_dataset("cifar100", write(tmp_path), label="coarse_label")
    assert data.classes == ("fruit", "things")
    assert data.train.labels.tolist() == [0, 0, 1, 0, 0, 1]
    with pytest.raises(UserError, match="did you mean 'coarse_label'"):
        open_dataset("cifar100", tmp_path, label="coarse")


@pytest.mark.parametrize("protocol", [3, 4])
def test_pickles_of_python_3(tmp_path: Path, protocol: int) -> None:
    train = part(6) | {"fine_labels": [np.int64(number % 3) for number in range(6)]}
    check(open_dataset(str(write(tmp_path, train=pickle.dumps(train, protocol)))))


class Attack:
    """Runs a command when unpickled by something that trusts it."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_malicious_pickle_is_not_run(tmp_path: Path, protocol: int) -> None:
    victim = tmp_path / "victim"
    attack = pickle.dumps(part(4) | {"data": Attack(f"touch {victim}")}, protocol)
    folder = write(tmp_path, test=attack)
    for path in (folder, pack(folder)):
        with pytest.raises(UserError, match=r"can't read .*: it holds posix.system"):
            open_dataset(str(path))
    assert not victim.exists()
    pickle.loads(attack)
    assert victim.exists(), "the attack does not work, so the test shows nothing"


@pytest.mark.parametrize(
    "value", [np.random.default_rng(0), Path("x"), np.zeros, getattr, {1, 2}.__class__, object()]
)
def test_other_objects_are_refused(tmp_path: Path, value: Any) -> None:
    folder = write(tmp_path, meta=pickle.dumps(META | {"more": value}))
    with pytest.raises(UserError, match=r"can't read .*: it holds .*which CIFAR-100"):
        open_dataset(str(folder))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": b"\x80\x02}q"}, "can't read .*cifar-100-python "),
        ({"train": b""}, "can't read .*cifar-100-python "),
        ({"train": as_published([1])}, "can't read .*TypeError"),
        ({"meta": as_published({})}, "KeyError: 'fine_label_names'"),
        ({"train": as_published({})}, "KeyError: 'data'"),
        (
            {"train": as_published(part(4) | {"data": np.zeros((4, 3072))})},
            r"its images are float64 \[4, 3072\], with 4 labels",
        ),
        (
            {"train": as_published(part(4) | {"fine_labels": [0]})},
            r"uint8 \[4, 3072\], with 1 labels",
        ),
        (
            {"train": as_published(part(4) | {"fine_labels": ["a", "b", "c", "d"]})},
            "its labels are not whole numbers",
        ),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, changes: dict[str, bytes], message: str) -> None:
    with pytest.raises(UserError, match=message):
        open_dataset(str(write(tmp_path, **changes)))


def test_bad_archives_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path)
    archive = pack(folder)
    content = archive.read_bytes()
    archive.write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=r"can't read .*tar.gz .*download it again"):
        open_dataset(str(archive))
    damaged = bytearray(content)
    damaged[len(content) // 2] ^= 1
    archive.write_bytes(damaged)
    with pytest.raises(UserError, match=r"can't read .*tar.gz .*download it again"):
        open_dataset(str(archive))
    (folder / "meta").unlink()
    with pytest.raises(UserError, match="KeyError: 'meta'"):
        open_dataset(str(pack(folder)))
    monkeypatch.setattr(cifar, "MAX_BYTES", 1000)
    with pytest.raises(UserError, match="bytes, more than 1,000"):
        open_dataset(str(archive))


def test_a_member_of_enormous_size_is_not_read(tmp_path: Path) -> None:
    """The header promises 8 TB, and nothing follows."""
    archive = tmp_path / "big.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        member = tarfile.TarInfo("cifar-100-python/train")
        member.size = 2**43
        tar.fileobj.write(member.tobuf(tarfile.GNU_FORMAT))  # type: ignore[union-attr]
    with pytest.raises(UserError, match="has 8,796,093,022,208 bytes"):
        open_dataset(str(archive))
