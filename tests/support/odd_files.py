"""Files that are no regular files, and files that claim more than they hold."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path


def fifo(path: Path) -> None:
    """A pipe without a writer: opening it to read waits for ever."""
    os.mkfifo(path)


def endless(path: Path) -> None:
    """A link to a device that can be read for ever."""
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()


def broken_link(path: Path) -> None:
    path.symlink_to("nowhere")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def hole(path: Path) -> None:
    """A file of 1 TB that takes no space."""
    with path.open("wb") as file:
        file.truncate(2**40)


NOT_FILES: dict[str, Callable[[Path], None]] = {
    "fifo": fifo,
    "endless": endless,
    "folder": folder,
    "broken link": broken_link,
    "loop": loop,
    "hole": hole,
}


def put(kind: str, path: Path) -> None:
    """Put one of these in the place of a file."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    NOT_FILES[kind](path)
