"""Images that wait in a model folder until a version learns them. Imports no torch.

`waiting/` has boxes, and a box has one folder for each class: `class.txt` with its name, and the
images, each named by its digest. A class that is retired is removed from every box.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from bic import files
from bic.foreign_files import read_regular_file
from bic.model.versions import is_class_name
from bic.store.seen_images import digest
from bic.store.version_writer import WAITING

NAME = "class.txt"
SUFFIX = ".image"
BOX_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,60}")
MAX_NAME_BYTES = 2000


class WaitingImage(NamedTuple):
    """An image that waits, and the name of its class."""

    path: Path
    class_name: str


class Box:
    """Images that wait together, each with its class. An image has one class in a box."""

    def __init__(self, model_folder: Path, name: str) -> None:
        assert BOX_NAME.fullmatch(name)
        self.path = model_folder / WAITING / name

    def add(self, class_name: str, images: Sequence[bytes]) -> None:
        """Store images of a class. Of equal images the last one counts, whatever its class."""
        named = {f"{digest(image).hex()}{SUFFIX}": image for image in images}
        if not named:
            return
        place = self.path / _folder_name(class_name)
        files.write_files(place, {NAME: class_name.encode(), **named})
        self._remove_elsewhere(place, named.keys())

    def images(self) -> list[WaitingImage]:
        """All images, in the same order every time."""
        found = []
        for class_name, folder in sorted(self._classes().items()):
            for path in sorted(folder.glob(f"*{SUFFIX}")):
                found.append(WaitingImage(path, class_name))
        return found

    def digests(self) -> dict[str, set[str]]:
        """The digests of the images of each class."""
        found: dict[str, set[str]] = {}
        for image in self.images():
            found.setdefault(image.class_name, set()).add(image.path.stem)
        return found

    def num_bytes(self) -> int:
        return sum(image.path.stat().st_size for image in self.images())

    def move(
        self,
        class_name: str,
        other: "Box",
        new_name: str | None = None,
        *,
        without: Set[str] = frozenset(),
    ) -> None:
        """Move the images of a class to another box, or to another class.

        An image that waits there as another class loses that one. The files named in `without` are
        deleted instead.
        """
        folder = self._classes().get(class_name)
        if folder is None:
            return
        new_name = new_name or class_name
        place = other.path / _folder_name(new_name)
        names = {path.name for path in folder.glob(f"*{SUFFIX}")} - without
        if names:
            files.write_files(place, {NAME: new_name.encode()})
            for name in names:
                files.rename(folder / name, place / name)
            other._remove_elsewhere(place, names)
        files.remove(folder)
        self._tidy()

    def move_all(self, other: "Box") -> None:
        """Move everything to another box, and remove this one.

        An image that waits there already keeps the class that it has there.
        """
        present = {image.path.name for image in other.images()}
        for class_name in self._classes():
            self.move(class_name, other, without=present)
        self.clear()

    def _remove_elsewhere(self, place: Path, names: Set[str]) -> None:
        """Remove images of a class that has just got them from the other classes."""
        for folder in self._folders():
            if folder != place:
                for name in names & set(os.listdir(folder)):
                    (folder / name).unlink()

    def remove(self, class_name: str) -> None:
        """Delete the images of a class."""
        folder = self._classes().get(class_name)
        if folder is not None:
            files.remove(folder)
            self._tidy()

    def clear(self) -> None:
        """Remove the box with everything in it."""
        files.remove(self.path)
        self._tidy()

    def _tidy(self) -> None:
        """Remove folders in which nothing is left."""
        with suppress(OSError):
            self.path.rmdir()
        with suppress(OSError):
            self.path.parent.rmdir()

    def _classes(self) -> Mapping[str, Path]:
        """The folder of each class. Folders that are not ours are left out."""
        found = {}
        for folder in self._folders():
            with suppress(OSError, ValueError):
                content = read_regular_file(folder / NAME, MAX_NAME_BYTES, follow_links=False)
                class_name = content.decode()
                if is_class_name(class_name) and folder.name == _folder_name(class_name):
                    found[class_name] = folder
        return found

    def _folders(self) -> Iterator[Path]:
        if not self.path.is_dir() or self.path.is_symlink():
            return
        for folder in sorted(self.path.iterdir()):
            is_ours = not folder.name.startswith(files.TEMPORARY) and not folder.is_symlink()
            if is_ours and folder.is_dir():
                yield folder


def boxes(model_folder: Path) -> list[Box]:
    """All boxes of a model folder."""
    place = model_folder / WAITING
    if not place.is_dir() or place.is_symlink():
        return []
    names = sorted(path.name for path in place.iterdir() if path.is_dir())
    return [Box(model_folder, name) for name in names if BOX_NAME.fullmatch(name)]


def remove_waiting(model_folder: Path, class_names: Sequence[str]) -> None:
    """Delete the images of some classes from every box."""
    for box in boxes(model_folder):
        for class_name in class_names:
            box.remove(class_name)


def rename_waiting(model_folder: Path, old: str, new: str) -> None:
    """Give the images of a class another class name, in every box."""
    for box in boxes(model_folder):
        if old != new:
            box.move(old, box, new)


def _folder_name(class_name: str) -> str:
    """A class name can be too long for a file system, or mean another folder, as `..` does."""
    return hashlib.sha256(class_name.encode()).hexdigest()[:32]
