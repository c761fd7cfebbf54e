"""Files that are written whole or not at all, whatever happens, and folders that are locked."""

import errno
import json
import multiprocessing
import os
import re
import shutil
import stat
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from support.memory_limit import memory_limit
from support.odd_files import NOT_FILES, put

from bic import BicError, LostError, UserError
from bic.files import (
    clear_unfinished,
    locked,
    read_folder,
    remove,
    rename,
    to_json,
    write_file,
    write_files,
    write_folder,
)

KillAt = Callable[[int], None]
CONTENTS = {"a.json": b"{}", "b.bin": b"\x00" * 1000}


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


@pytest.fixture
def kill_at(monkeypatch: pytest.MonkeyPatch) -> KillAt:
    """Raises Killed at the n-th call that changes the disk from now on."""

    def arm(number: int) -> None:
        num_calls = 0

        def counted(real: Callable[..., object]) -> Callable[..., object]:
            def call(*arguments: object, **options: object) -> object:
                nonlocal num_calls
                num_calls += 1
                if num_calls == number:
                    raise Killed
                return real(*arguments, **options)

            return call

        monkeypatch.undo()
        monkeypatch.setattr(os, "fsync", counted(os.fsync))
        monkeypatch.setattr(os, "replace", counted(os.replace))
        monkeypatch.setattr(shutil, "rmtree", counted(shutil.rmtree))

    return arm


def visible(folder: Path) -> list[str]:
    """The names in a folder, except for those of unfinished work."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_file_is_replaced(tmp_path: Path) -> None:
    write_file(tmp_path / "new" / "file", b"old")
    write_file(tmp_path / "new" / "file", b"new")
    assert (tmp_path / "new" / "file").read_bytes() == b"new"
    assert visible(tmp_path / "new") == ["file"]


def test_killed_write_leaves_the_old_file_or_the_new_one(
    tmp_path: Path, kill_at: KillAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = []
    for number in range(1, 10):
        folder = tmp_path / str(number)
        write_file(folder / "file", b"old")
        kill_at(number)
        try:
            write_file(folder / "file", b"new")
        except Killed:
            monkeypatch.undo()
            contents.append((folder / "file").read_bytes())
            clear_unfinished(folder)
            assert visible(folder) == [path.name for path in folder.iterdir()] == ["file"]
        else:
            break
    # Killed before the file, before it is renamed, and before the folder is synced.
    assert contents == [b"old", b"old", b"new"]


def test_killed_write_of_many_files_leaves_each_old_or_new(
    tmp_path: Path, kill_at: KillAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = []
    for number in range(1, 20):
        folder = tmp_path / str(number)
        write_files(folder, {"a": b"old", "b": b"old"})
        kill_at(number)
        try:
            write_files(folder, {"a": b"new", "b": b"new"})
        except Killed:
            monkeypatch.undo()
            clear_unfinished(folder)
            assert sorted(path.name for path in folder.iterdir()) == ["a", "b"]
            outcomes.append(((folder / "a").read_bytes(), (folder / "b").read_bytes()))
        else:
            break
    # Both files are synced before the first one is renamed; the folder is synced at the end.
    old, new = b"old", b"new"
    assert outcomes == [(old, old)] * 3 + [(new, old), (new, new)]


def test_killed_write_leaves_no_folder_or_a_whole_one(
    tmp_path: Path, kill_at: KillAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = []
    for number in range(1, 20):
        place = tmp_path / str(number)
        place.mkdir()
        kill_at(number)
        try:
            write_folder(place / "model", CONTENTS)
        except Killed:
            monkeypatch.undo()
            exists = (place / "model").exists()
            outcomes.append(exists)
            if exists:
                assert read_folder(place / "model") == CONTENTS
            clear_unfinished(place)
            assert [path.name for path in place.iterdir()] == (["model"] if exists else [])
        else:
            break
    # Two files, the checksums, the folder and the renaming; then the sync of the parent.
    assert outcomes == [False] * 5 + [True]


def test_killed_removal_leaves_all_or_nothing(
    tmp_path: Path, kill_at: KillAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = []
    for number in range(1, 10):
        place = tmp_path / str(number)
        write_folder(place / "model", CONTENTS)
        kill_at(number)
        try:
            remove(place / "model")
        except Killed:
            monkeypatch.undo()
            exists = (place / "model").exists()
            outcomes.append(exists)
            if exists:
                assert read_folder(place / "model") == CONTENTS
            clear_unfinished(place)
            assert [path.name for path in place.iterdir()] == (["model"] if exists else [])
        else:
            break
    assert outcomes == [True, False]
    monkeypatch.undo()


def test_remove_takes_files_folders_and_nothing(tmp_path: Path) -> None:
    write_file(tmp_path / "file", b"content")
    write_folder(tmp_path / "folder", CONTENTS)
    remove(tmp_path / "file")
    remove(tmp_path / "folder")
    remove(tmp_path / "nothing")
    assert list(tmp_path.iterdir()) == []


def test_clearing_touches_only_unfinished_work(tmp_path: Path) -> None:
    write_file(tmp_path / "kept", b"content")
    (tmp_path / ".writing-file").write_bytes(b"half")
    (tmp_path / ".writing-folder" / "inner").mkdir(parents=True)
    (tmp_path / ".writing-folder" / "inner" / "file").write_bytes(b"half")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / ".writing-file").write_bytes(b"half")
    clear_unfinished(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inner", "kept"]
    assert (tmp_path / "inner" / ".writing-file").exists()
    clear_unfinished(tmp_path / "nowhere")


def test_folder_is_read_back_with_its_checksums(tmp_path: Path) -> None:
    def large(path: Path) -> None:
        path.write_bytes(b"large")

    write_folder(tmp_path / "folder", {**CONTENTS, "large": large})
    assert read_folder(tmp_path / "folder") == {**CONTENTS, "large": b"large"}
    assert read_folder(tmp_path / "folder", ["a.json"]) == {"a.json": b"{}"}


def test_changed_missing_and_foreign_files_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    write_folder(folder, CONTENTS)
    with pytest.raises(UserError, match=r"folder is not complete \('c'\); restore it from a copy"):
        read_folder(folder, ["c"])
    (folder / "a.json").write_bytes(b"[]")
    with pytest.raises(UserError, match=r"folder/a\.json is damaged; restore it from a copy"):
        read_folder(folder)
    assert read_folder(folder, ["b.bin"])
    (folder / "a.json").unlink()
    with pytest.raises(UserError, match=r"folder is not complete \(.*No such file"):
        read_folder(folder)


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "inner/file", "..", ""])
def test_checksums_do_not_lead_outside_of_the_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "folder").mkdir()
    checksums = json.dumps({name: "0" * 64})
    (tmp_path / "folder" / "checksums.json").write_text(checksums)
    with pytest.raises(UserError, match="is not complete"):
        read_folder(tmp_path / "folder")


@pytest.mark.parametrize("text", ["", "[]", "5", "null", '{"a.json": 5}'])
def test_odd_checksums_are_refused(tmp_path: Path, text: str) -> None:
    write_folder(tmp_path / "folder", CONTENTS)
    (tmp_path / "folder" / "checksums.json").write_text(text)
    with pytest.raises(UserError, match=r"is not complete|is damaged"):
        read_folder(tmp_path / "folder", ["a.json"])


def test_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(tmp_path / "file", b"old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LostError) as caught:
        write_file(tmp_path / "file", b"new")
    assert caught.value.problem == (f"cannot write {tmp_path / 'file'} (No space left on device)")
    assert caught.value.remedy.endswith("(existing files are intact)")
    assert (tmp_path / "file").read_bytes() == b"old"
    with pytest.raises(LostError, match="No space left on device"):
        write_folder(tmp_path / "folder", CONTENTS)
    for contents in ({"file": b"new"}, {"file": b"new", "other": b"new"}):
        with pytest.raises(LostError, match="No space left on device"):
            write_files(tmp_path, contents)
    assert (tmp_path / "file").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_writers_of_the_same_file_leave_each_other_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not every folder is locked: reports, exports and the cache of features are not."""
    replace = os.replace
    contents = [b"second", b"third"]

    def meanwhile(temporary: Path, path: Path) -> None:
        if contents:
            write_files(tmp_path, {"file": contents.pop()})
        replace(temporary, path)

    monkeypatch.setattr(os, "replace", meanwhile)
    write_file(tmp_path / "file", b"first")  # it is renamed after the two others
    assert (tmp_path / "file").read_bytes() == b"first"
    assert contents == []
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("error", [OSError(28, "No space left"), ValueError, KeyboardInterrupt])
def test_a_failing_writer_removes_only_its_own_work(
    tmp_path: Path, error: BaseException | type[BaseException]
) -> None:
    def fail(path: Path) -> None:
        raise error

    def meanwhile(path: Path) -> None:
        path.write_bytes(b"large")
        with pytest.raises((LostError, ValueError, KeyboardInterrupt)):
            write_folder(tmp_path / "other", {**CONTENTS, "file": fail})

    write_folder(tmp_path / "model", {**CONTENTS, "large": meanwhile})
    assert read_folder(tmp_path / "model") == {**CONTENTS, "large": b"large"}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def hold(folder: Path, connection: Connection) -> None:
    """Lock a folder until told to stop."""
    with locked(folder):
        connection.send("locked")
        connection.recv()


def test_lock_keeps_other_processes_out_and_ends_with_its_process(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=hold, args=(tmp_path / "run", theirs))
    process.start()
    assert ours.recv() == "locked"
    message = "is in use by another process; wait for it, stop it, or choose another out"
    with pytest.raises(UserError, match=message), locked(tmp_path / "run"):
        pass
    process.kill()
    process.join()
    with locked(tmp_path / "run"):
        assert (tmp_path / "run" / ".lock").exists()


def test_places_that_cannot_be_locked_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="is a file and not a folder"), locked(tmp_path / "file"):
        pass
    place = tmp_path / "file" / "run"
    with (
        pytest.raises(UserError, match=r"cannot write to .*run \(Not a directory\)"),
        locked(place),
    ):
        pass


def test_written_files_have_the_usual_modes(tmp_path: Path) -> None:
    mask = os.umask(0o022)
    try:
        write_file(tmp_path / "file", b"")
        write_folder(tmp_path / "folder", CONTENTS)
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o755


def test_json_is_readable_and_strict() -> None:
    assert to_json({"name": "ä", "values": [1, None]}).decode() == (
        '{\n "name": "ä",\n "values": [\n  1,\n  null\n ]\n}\n'
    )
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json({"value": float("nan")})


@pytest.mark.parametrize("kind", [*NOT_FILES, "link"])
@pytest.mark.parametrize("name", ["checksums.json", "b.bin"])
def test_folder_with_something_else_in_place_of_a_file_is_refused(
    tmp_path: Path, kind: str, name: str
) -> None:
    write_folder(tmp_path / "folder", CONTENTS)
    path = tmp_path / "folder" / name
    if kind == "link":
        path.rename(tmp_path / "outside")
        path.symlink_to(tmp_path / "outside")
    else:
        put(kind, path)
    with memory_limit(2**28), pytest.raises(UserError, match="folder is not complete"):
        read_folder(tmp_path / "folder")


def test_leftover_link_is_removed_and_its_target_stays(tmp_path: Path) -> None:
    for name in ("precious", "folder/inner"):
        (tmp_path / "home" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "home" / name).write_bytes(b"precious")
    run = tmp_path / "run"
    run.mkdir()
    (run / ".writing-file").symlink_to(tmp_path / "home" / "precious")
    (run / ".writing-folder").symlink_to(tmp_path / "home" / "folder")
    write_file(run / "file", b"content")
    write_folder(run / "folder", CONTENTS)
    assert (run / "file").read_bytes() == b"content"
    (run / "checkpoint").symlink_to(tmp_path / "home" / "folder")
    remove(run / "checkpoint")
    assert visible(run) == sorted(path.name for path in run.iterdir()) == ["file", "folder"]
    assert (tmp_path / "home" / "precious").read_bytes() == b"precious"
    assert (tmp_path / "home" / "folder" / "inner").read_bytes() == b"precious"


@pytest.mark.parametrize("kind", ["fifo", "endless", "folder", "broken link", "loop"])
def test_strange_lock_is_refused(tmp_path: Path, kind: str) -> None:
    put(kind, tmp_path / ".lock")
    with pytest.raises(UserError, match="cannot write to"), locked(tmp_path):
        pass


def failing(number: int) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOSPC, LostError), (errno.EIO, LostError), (errno.EROFS, UserError)],
)
def test_failing_rename_is_one_sentence_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[BicError]
) -> None:
    write_file(tmp_path / "file", b"old")
    monkeypatch.setattr(os, "replace", failing(number))
    calls: list[Callable[[], None]] = [
        lambda: write_file(tmp_path / "file", b"new"),
        lambda: remove(tmp_path / "file"),
        lambda: rename(tmp_path / "file", tmp_path / "other"),
    ]
    for call in calls:
        with pytest.raises(BicError, match=re.escape(f"({os.strerror(number)})")) as caught:
            call()
        assert type(caught.value) is kind
        assert caught.value.remedy.endswith("(existing files are intact)")
        assert visible(tmp_path) == ["file"]
        assert (tmp_path / "file").read_bytes() == b"old"


def test_failing_lock_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fcntl.flock", failing(errno.ENOLCK))
    message = r"cannot lock .* \(No locks available\); choose another out, on a local disk"
    with pytest.raises(UserError, match=message), locked(tmp_path):
        pass
