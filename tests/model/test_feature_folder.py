"""The folder that keeps features: checked, bounded, and never in the way."""

import os
from pathlib import Path

import numpy as np
import pytest

from bic.model.feature_folder import FeatureFolder, user_cache
from bic.progress import Progress

QUIET = Progress("quiet")


def key(number: int) -> bytes:
    return number.to_bytes(33, "big")


def row(value: float) -> np.ndarray:
    return np.full(4, value, dtype=np.float16)


def test_rows_are_found_again(tmp_path: Path) -> None:
    folder = FeatureFolder(tmp_path, "net", QUIET)
    folder.keep({key(1): row(1.5), key(2): row(2.5)})
    folder.keep({key(3): row(3.5)})
    found = FeatureFolder(tmp_path, "net", QUIET).find([key(3), key(1), key(9)])
    assert {name: values.tolist() for name, values in found.items()} == {
        key(1): [1.5] * 4,
        key(3): [3.5] * 4,
    }
    assert FeatureFolder(tmp_path, "other", QUIET).find([key(1)]) == {}


@pytest.mark.parametrize("damage", ["changed", "cut", "link", "foreign"])
def test_a_damaged_file_is_removed_and_not_used(tmp_path: Path, damage: str) -> None:
    folder = FeatureFolder(tmp_path, "net", QUIET)
    folder.keep({key(1): row(1.5)})
    (file,) = (tmp_path / "net").iterdir()
    content = file.read_bytes()
    if damage == "changed":
        file.write_bytes(content[:-1] + b"\0")
    elif damage == "cut":
        file.write_bytes(content[:20])
    elif damage == "link":
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
    else:
        file.write_bytes(b"hello")
    assert folder.find([key(1)]) == {}
    assert list((tmp_path / "net").iterdir()) == []
    folder.keep({key(1): row(1.5)})
    assert list(folder.find([key(1)])) == [key(1)]


def test_the_files_used_least_recently_are_removed(tmp_path: Path) -> None:
    folder = FeatureFolder(tmp_path, "net", QUIET, max_bytes=0)
    folder.keep({key(1): row(1.0)})
    assert folder.find([key(1)]) == {}
    roomy = FeatureFolder(tmp_path, "net", QUIET)
    for number in (1, 2, 3):
        roomy.keep({key(number): row(number)})
    files = sorted((tmp_path / "net").iterdir())
    size = files[0].stat().st_size
    for age, file in enumerate(files):
        os.utime(file, (1000 - age, 1000 - age))
    kept = {name for name in (1, 2, 3) if roomy.find([key(name)]) and name == 2}
    assert kept == {2}  # finding a row makes its file the newest
    FeatureFolder(tmp_path, "other", QUIET, max_bytes=2 * size).keep({key(7): row(7.0)})
    assert len(list(tmp_path.glob("*/*"))) == 2


def test_what_another_process_is_writing_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = FeatureFolder(tmp_path, "net", Progress("lines"))
    replace = os.replace

    def meanwhile(temporary: Path, path: Path) -> None:
        assert folder.find([key(9)]) == {}
        replace(temporary, path)

    monkeypatch.setattr(os, "replace", meanwhile)
    folder.keep({key(1): row(1.5)})
    assert list(folder.find([key(1)])) == [key(1)]
    assert capsys.readouterr().err == ""
    (tmp_path / "net" / ".writing-x.safetensors-0a1b2c3d").touch()  # of a killed process
    FeatureFolder(tmp_path, "net", QUIET, max_bytes=0).keep({key(2): row(2.5)})
    assert list((tmp_path / "net").iterdir()) == []


def test_a_folder_that_cannot_be_written_to_is_not_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    folder = FeatureFolder(tmp_path / "file", "net", Progress("lines"))
    folder.keep({key(1): row(1.0)})
    folder.keep({key(2): row(2.0)})
    assert folder.find([key(1)]) == {}
    said = capsys.readouterr().err
    assert said.count("features are not kept in") == 1


def test_the_user_chooses_where_features_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIC_CACHE", str(tmp_path))
    assert user_cache() == tmp_path / "features"
    monkeypatch.delenv("BIC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert user_cache() == tmp_path / "xdg" / "bic" / "features"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_cache() == tmp_path / ".cache" / "bic" / "features"
