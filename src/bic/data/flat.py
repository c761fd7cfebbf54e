"""Which class each image of a flat folder has: ImageNet's validation images and the list that comes with them."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bic.errors import UserError

KAGGLE = "LOC_val_solution.csv"
# `ILSVRC2012_val_00000001,n01751748 111 108 249 365` or `ILSVRC2012_val_00000001.JPEG n01751748`
LINE = re.compile(r'\s*"?([^\s,;"]+)"?[\s,;]+"?([^\s,;"]+)')


class Answers(NamedTuple):
    """A list of images and their classes, as it was found."""

    path: Path
    classes: dict[str, str]  # by the image's name without its suffix

    def of(self, known: Sequence[str]) -> dict[str, str]:
        """The classes, if all of them are known."""
        if strange := sorted(set(self.classes.values()) - set(known)):
            raise UserError(f"{self.path} names class {strange[0]!r}, which has no train images; add some, or mend it")
        return self.classes


def find_answers(folder: Path, root: Path) -> Answers | None:
    """The list for a folder's images: Kaggle's, here or up to three folders up, or a text or CSV file beside them."""
    beside = [file for place in (folder, root) for kind in ("txt", "csv") for file in sorted(place.glob(f"*.{kind}"))]
    above = [place / KAGGLE for place in (folder, root, *root.resolve().parents[:3])]
    images = {path.stem for path in folder.iterdir() if path.is_file()}
    for path in [path for path in above if path.is_file()] + beside:
        found = read_answers(path)
        if images & found.keys():
            return Answers(path, {name: kind for name, kind in found.items() if name in images})
    return None


def read_answers(path: Path) -> dict[str, str]:
    """Names and classes line by line; nothing from a file that is something else."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, ValueError):
        return {}
    matches = [match for line in lines if (match := LINE.match(line))]
    return {Path(match[1]).stem: match[2] for match in matches}
