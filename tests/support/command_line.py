"""What tests of the command line share: its outcome, and small data to run it on."""

from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from PIL import Image


class Outcome(NamedTuple):
    """What a command left: its exit code, standard output and standard error."""

    code: int
    out: str
    err: str


class Command(Protocol):
    def __call__(self, *arguments: object) -> Outcome: ...


def assert_refused(outcome: Outcome, *texts: str, code: int = 2) -> None:
    """Check the exit code, and for one sentence on standard error that contains the texts."""
    assert outcome.code == code
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    assert outcome.err.startswith("bic: ")
    assert len(outcome.err.strip().splitlines()) == 1
    for text in texts:
        assert text in outcome.err


def write_arrays(path: Path, *, per_class: int = 12, num_classes: int = 4) -> Path:
    """An .npz file of 8 × 8 images. Classes differ in brightness."""
    draws = np.random.default_rng(0)
    labels = np.repeat(np.arange(num_classes), per_class)
    noise = draws.integers(0, 60, (len(labels), 8, 8))
    images = (noise + 40 * labels[:, None, None]).astype(np.uint8)
    np.savez(path, x_train=images, y_train=labels, x_test=images[::3], y_test=labels[::3])
    return path


def write_photos(folder: Path) -> Path:
    """A folder of four classes of random PNG files: six to train and two to test on."""
    draws = np.random.default_rng(1)
    for part, count in (("train", 6), ("test", 2)):
        for number in range(4):
            place = folder / part / f"kind{number}"
            place.mkdir(parents=True)
            for index in range(count):
                pixels = draws.integers(0, 256, (20, 24, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(place / f"{index}.png")
    return folder
