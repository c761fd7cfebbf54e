"""Whatever happens during a learn, the live version answers as before and the next learn works."""

import errno
import fcntl
import multiprocessing
import os
import random
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.taught import contents, images_of, learn, probabilities, toy_model

from bic import LearnReport, LostError, Model, UserError
from bic.model import version_files
from bic.store import learn_folder

pytestmark = pytest.mark.filterwarnings("ignore::bic.HeldOutWarning")

# Children are forked from a server that has imported all that learning needs, so that few kills hit
# an import. The optimisers of torch import torch._dynamo.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(
    ["bic.lab.run", "bic.store.learn_folder", "sklearn.datasets", "torch._dynamo"]
)

OPERATIONS = (
    *((os, name) for name in ("replace", "fsync")),
    *((Path, name) for name in ("mkdir", "write_bytes", "unlink")),
    (fcntl, "flock"),
)


MODEL_FILES = ("model.json", "weights.safetensors")


@contextmanager
def failing(number: int, reason: int) -> Iterator[list[str]]:
    """File operation `number` fails. The list that is given has the names of all operations."""
    done: list[str] = []

    def counted(name: str, original: Any) -> Any:
        def operation(*arguments: Any, **options: Any) -> Any:
            done.append(name)
            if len(done) - 1 == number:
                if name == "write_bytes":  # half of it is written
                    original(arguments[0], arguments[1][: len(arguments[1]) // 2])
                raise OSError(reason, os.strerror(reason))
            return original(*arguments, **options)

        return operation

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in OPERATIONS:
            patch.setattr(owner, name, counted(name, getattr(owner, name)))
        yield done


def small_learn(folder: Path) -> LearnReport:
    images, names = images_of("c")
    return toy_model(folder, epochs=1).learn(images[:6], names[:6], keep=1)


def test_a_fault_at_any_file_operation_changes_nothing(tmp_path: Path) -> None:
    first = toy_model(tmp_path / "first", epochs=1)
    images, names = images_of("ab")
    first.learn(images[:12], names[:12])
    before = probabilities(first)
    shutil.copytree(tmp_path / "first", tmp_path / "undisturbed")
    with failing(-1, errno.EIO) as operations:
        small_learn(tmp_path / "undisturbed")
    expected = contents(tmp_path / "undisturbed")
    after = Model.load(tmp_path / "undisturbed").predict_proba(images)
    num_failed = 0
    remedies = set()
    assert len(operations) > 40
    for number in range(len(operations)):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "first", folder)
        with failing(number, (errno.EIO, errno.ENOSPC)[number % 2]):
            try:
                small_learn(folder)
            except (UserError, LostError) as error:
                remedies.add(error.remedy)
                num_failed += 1
        model = toy_model(folder, epochs=1)
        if model.version == 1:
            assert np.array_equal(probabilities(model), before)
        else:  # the fault came when the version was live already
            assert np.array_equal(model.predict_proba(images), after)
        small_learn(folder)
        assert contents(folder) == expected, operations[number]
        shutil.rmtree(folder)
    assert num_failed > 30
    for remedy in remedies:
        assert "run the same command again" in remedy


def test_a_first_learn_that_fails_leaves_what_the_next_one_continues(tmp_path: Path) -> None:
    with failing(-1, errno.EIO) as operations:
        small_learn(tmp_path / "undisturbed")
    expected = contents(tmp_path / "undisturbed")
    for number in range(0, len(operations), 5):
        folder = tmp_path / str(number)
        with (
            failing(number, errno.ENOSPC),
            pytest.raises((UserError, LostError)) if number < 20 else _either(),
        ):
            small_learn(folder)
        small_learn(folder)
        assert contents(folder) == expected, operations[number]


@contextmanager
def _either() -> Iterator[None]:
    try:
        yield
    except (UserError, LostError):
        return


def start(folder: Path) -> multiprocessing.process.BaseProcess:
    process = processes.Process(target=learn_quietly, args=(folder,))
    process.start()
    return process


def learn_quietly(folder: Path) -> None:
    import warnings

    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    model = toy_model(folder, epochs=6)
    for classes in ("ab", "cd", "e"):
        learn(model, classes)


def test_learning_that_is_killed_ends_like_an_undisturbed_one(tmp_path: Path) -> None:
    for _ in range(2):  # the second is timed, with everything loaded
        shutil.rmtree(tmp_path / "undisturbed", ignore_errors=True)
        started = time.monotonic()
        process = start(tmp_path / "undisturbed")
        process.join()
        seconds = time.monotonic() - started
        assert process.exitcode == 0
    expected = contents(tmp_path / "undisturbed")
    instants = random.Random(5)
    killed = 0
    finished = 0
    while killed < 10:
        process = start(tmp_path / f"killed-{finished}")
        process.join(instants.uniform(0.1, 0.9) * seconds)
        if process.exitcode is None:
            process.kill()  # SIGKILL
            process.join()
            killed += 1
        else:  # this model has come to its end; the next kills hit another one
            assert process.exitcode == 0
            finished += 1
    for number in range(finished + 1):
        folder = tmp_path / f"killed-{number}"
        process = start(folder)
        process.join()
        assert process.exitcode == 0
        assert contents(folder) == expected


def test_an_unfinished_learn_continues_only_with_the_same_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = toy_model(tmp_path / "m", epochs=3)
    expectations: list[int] = []

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    def announce(expected: Any) -> None:
        expectations.append(expected.epochs_done)

    for classes, done in (("ab", 0), ("ab", 3), ("abc", 0), ("abc", 3)):
        with monkeypatch.context() as patch:
            patch.setattr("bic.store.teaching.judge", interrupted)
            with pytest.raises(KeyboardInterrupt):
                learn(model, classes, announce=announce)
        assert expectations[-1] == done
        assert (tmp_path / "m" / "unfinished").exists()
    checkpoint = next((tmp_path / "m" / "unfinished").rglob("training.safetensors"))
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])  # damaged: it is not used
    report = learn(model, "abc", announce=announce)
    assert report.is_live
    assert expectations[-1] == 0
    assert not (tmp_path / "m" / "unfinished").exists()
    undisturbed = toy_model(tmp_path / "n", epochs=3)
    learn(undisturbed, "abc")
    assert contents(tmp_path / "m") == contents(tmp_path / "n")


def test_two_writers_and_any_number_of_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = toy_model(tmp_path / "m")
    learn(model, "ab")
    before = probabilities(model)
    seen = []
    judge = learn_folder.Teaching.learn

    def learn_while_others_try(*arguments: Any) -> Any:
        other = toy_model(tmp_path / "m")
        seen.append(np.array_equal(probabilities(other), before))
        for action in (
            lambda: learn(other, "d"),
            lambda: other.retire("a"),
            lambda: other.rename("a", "x"),
            lambda: other.rollback(1),
        ):
            with pytest.raises(UserError, match="m is in use by another process; wait"):
                action()
        return judge(*arguments)

    monkeypatch.setattr(learn_folder.Teaching, "learn", learn_while_others_try)
    learn(model, "c")
    assert seen == [True]
    assert model.version == 2


def test_readers_never_see_a_mixture_of_versions(tmp_path: Path) -> None:
    """A reader and a writer that keeps one version, at the same time."""
    folder = tmp_path / "m"
    model = toy_model(folder, epochs=1)
    images, names = images_of("abcdef")
    order = np.argsort(names, kind="stable")
    written = []
    read = []
    is_over = threading.Event()

    def reader() -> None:
        while not is_over.is_set():
            read.append(version_files.read_live(folder, MODEL_FILES)[1])

    thread = threading.Thread(target=reader)
    for number in range(6):
        chosen = order[24 * number : 24 * number + 8]
        model.learn(images[chosen], [names[index] for index in chosen], keep=1)
        written.append(version_files.read_live(folder, MODEL_FILES)[1])
        if number == 0:
            thread.start()
    is_over.set()
    thread.join()
    assert len({content["model.json"] for content in read}) > 1
    assert all(contents in written for contents in read)


def test_a_reader_that_misses_a_file_opens_the_new_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = toy_model(tmp_path / "m")
    learn(model, "ab")
    read_stored = version_files.read_stored
    calls = []

    def late(folder: Path, file: Any) -> bytes:
        calls.append(file.suffix)
        if len(calls) == 2:  # between model.json and the weights, all is replaced
            monkeypatch.setattr(version_files, "read_stored", read_stored)
            learn(toy_model(folder), "c", keep=1)
        return read_stored(folder, file)

    monkeypatch.setattr(version_files, "read_stored", late)
    assert Model.load(tmp_path / "m").classes == ("a", "b", "c")
    assert calls == [".json", ".safetensors"]


def test_a_check_during_a_learn_finds_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = toy_model(tmp_path / "m")
    learn(model, "ab")
    read_stored = version_files.read_stored

    def late(folder: Path, file: Any) -> bytes:
        monkeypatch.setattr(version_files, "read_stored", read_stored)
        learn(toy_model(folder), "c", keep=1)  # removes what only version 1 needs
        return read_stored(folder, file)

    monkeypatch.setattr(version_files, "read_stored", late)
    found = model.check()
    assert (found.versions, found.damages, found.newest_good) == ((2,), (), 2)
