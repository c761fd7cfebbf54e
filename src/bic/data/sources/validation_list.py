"""The classes of images in one flat folder: ImageNet's validation images come with such a list."""

import io
import re
from collections.abc import Container, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from bic.errors import UserError
from bic.foreign_files import read_regular_file

MAX_LIST_BYTES = 2**27  # ImageNet's list has 2 MB
MAX_LINE = 10_000  # characters
KAGGLE = "LOC_val_solution.csv"
# `ILSVRC2012_val_00000001,n01751748 111 108 249 365` or `ILSVRC2012_val_00000001.JPEG n01751748`
LINE = re.compile(r'\s*"?([^\s,;"]+)"?[\s,;]+"?([^\s,;"]+)')


class ValidationList(NamedTuple):
    """A list of images and their classes, and the file it comes from."""

    path: Path
    classes: dict[str, str]  # by the image's name without its suffix

    def checked(self, known: Sequence[str]) -> dict[str, str]:
        """The classes by image. Raises UserError if one of them is not `known`."""
        unknown_classes = sorted(set(self.classes.values()) - set(known))
        if unknown_classes:
            name = unknown_classes[0]
            problem = f"{self.path} names class {name!r}, which has no train images"
            raise UserError(problem, "add some, or fix the list")
        return self.classes


def find_list(folder: Path, root: Path) -> ValidationList | None:
    """The list for a folder's images, or None.

    It is Kaggle's file in the folder, in `root` or up to three folders above, or any text or CSV
    file in the folder or in `root`.
    """
    candidates = [place / KAGGLE for place in (folder, root, *root.resolve().parents[:3])]
    for place in (folder, root):
        for suffix in ("txt", "csv"):
            candidates += sorted(place.glob(f"*.{suffix}"))
    images = {path.stem for path in folder.iterdir() if path.is_file()}
    for path in candidates:
        classes = read_list(path, images) if path.is_file() else {}
        if classes:
            return ValidationList(path, classes)
    return None


def read_list(path: Path, images: Container[str]) -> dict[str, str]:
    """The class of each of the images, by its name without suffix.

    Empty for any other kind of file.
    """
    classes = {}
    try:
        content = io.BytesIO(read_regular_file(path, MAX_LIST_BYTES))
        for line in io.TextIOWrapper(content, encoding="utf-8"):
            match = LINE.match(line[:MAX_LINE])
            name = PurePath(match[1]).stem if match else ""
            if match and name in images:
                classes[name] = match[2]
    except (OSError, ValueError):
        return {}
    return classes
