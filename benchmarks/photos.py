"""Photographs: accuracy and time of `bic learn` with its defaults, beside what else could be done.

    python benchmarks/photos.py PHOTOS [--accuracy | --cost] [--threads 2]

PHOTOS has train/CLASS/*.jpg and test/CLASS/*.jpg.

--accuracy learns the classes in five lessons, and prints the accuracy on the test photographs of
all classes learned so far and the time of each lesson. Beside it: scikit-learn's
LogisticRegression, fitted again after every lesson on the features of all photographs, which needs
all old data; and `--backbone fast`, a network that is trained from scratch.

--cost teaches ten classes of up to 50 photographs to models that know 10, 100 and 1,000 classes. It
prints the time of the whole command, the time of the backbone's forward passes and the rest. The
known classes are made up, with three images each. Run it on a quiet machine.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from sklearn.linear_model import LogisticRegression

from bic import open_model
from bic.learn.learner import Learner
from bic.model.features import extract

LESSONS = 5
NEW_CLASSES = 10
NEW_PHOTOS = 50
KNOWN = (10, 100, 1000)
KNOWN_IMAGES = 3
SIDE = 96


def linked(folder: Path, classes: list[Path]) -> Path:
    """A folder with links to some class folders."""
    folder.mkdir(parents=True)
    for path in classes:
        (folder / path.name).symlink_to(path.resolve())
    return folder


def paths_of(classes: list[Path]) -> tuple[list[str], list[str]]:
    """The photographs of class folders, and the class of each."""
    paths = [path for folder in classes for path in sorted(folder.iterdir())]
    return [str(path) for path in paths], [path.parent.name for path in paths]


def features_of(model: Any, paths: list[str]) -> Any:
    """Features of photographs, as the exact head sees them."""
    from bic.data.from_python import as_model_input

    images = as_model_input(paths, model.model.preprocessing)
    features, _ = extract(model.model.network, images, model.progress)
    return torch.nn.functional.normalize(features, dim=1).numpy()


def accuracy(photos: Path, place: Path) -> None:
    """Print the accuracy after each lesson, and its time."""
    train = sorted((photos / "train").iterdir())
    test = sorted((photos / "test").iterdir())
    size = -(-len(train) // LESSONS)
    ours = open_model(place / "ours")
    scratch = open_model(place / "scratch", backbone="fast")
    all_features: list[Any] = []
    all_names: list[str] = []
    print(f"{'lesson':8}{'ours':>8}{'s':>8}{'refitted':>10}{'s':>8}{'scratch':>10}{'s':>8}")
    for number in range(LESSONS):
        lesson = linked(place / f"lesson-{number}", train[number * size : (number + 1) * size])
        paths, names = paths_of(test[: (number + 1) * size])
        figures: list[float] = []
        for model in (ours, scratch):
            start = time.perf_counter()
            model.learn(lesson, force=True)
            seconds = time.perf_counter() - start
            right = np.mean(np.array(model.predict(paths)) == np.array(names))
            figures += [100 * float(right), seconds]
        new_paths, new_names = paths_of(sorted(lesson.iterdir()))
        all_features.append(features_of(ours, new_paths))
        all_names += new_names
        start = time.perf_counter()
        head = LogisticRegression(C=100.0, max_iter=2000)
        head.fit(np.concatenate(all_features), all_names)
        seconds = time.perf_counter() - start
        right = np.mean(head.predict(features_of(ours, paths)) == np.array(names))
        print(
            f"{number + 1:<8}{figures[0]:8.1f}{figures[1]:8.1f}{100 * right:10.1f}{seconds:8.1f}"
            f"{figures[2]:10.1f}{figures[3]:8.1f}",
            flush=True,
        )


def made_up(folder: Path, num_classes: int) -> Path:
    """Folders of noisy images, a pattern for each class."""
    draws = np.random.default_rng(num_classes)
    for label in range(num_classes):
        own = folder / f"class {label:04}"
        own.mkdir(parents=True)
        pattern = draws.integers(0, 256, (6, 6, 3))
        for number in range(KNOWN_IMAGES):
            noisy = np.clip(pattern + draws.integers(-25, 26, pattern.shape), 0, 255)
            image = Image.fromarray(noisy.astype(np.uint8)).resize((SIDE, SIDE))
            image.save(own / f"{number}.png")
    return folder


def new_photos(photos: Path, folder: Path) -> Path:
    """Ten classes of up to 50 photographs."""
    for path in sorted((photos / "train").iterdir())[:NEW_CLASSES]:
        own = folder / path.name
        own.mkdir(parents=True)
        found = [*sorted(path.iterdir()), *sorted((photos / "test" / path.name).iterdir())]
        for number, photo in enumerate(found[:NEW_PHOTOS]):
            (own / f"{number}{photo.suffix}").write_bytes(photo.read_bytes())
    return folder


def timed_learn(model: Path, images: Path) -> None:
    """Learn in this process, and print the seconds of features and of everything after imports."""
    spent = 0.0
    featured: Callable[..., Any] = Learner.featured

    def timed(*arguments: Any, **options: Any) -> Any:
        nonlocal spent
        start = time.perf_counter()
        try:
            return featured(*arguments, **options)
        finally:
            spent += time.perf_counter() - start

    Learner.featured = timed  # type: ignore[method-assign]
    start = time.perf_counter()
    open_model(model).learn(images, force=True)
    print(spent, time.perf_counter() - start)


def cost(photos: Path, place: Path, threads: int) -> None:
    """Print what learning ten classes costs a model that knows more and more classes."""
    lesson = new_photos(photos, place / "new")
    num_photos = len(list(lesson.glob("*/*")))
    print(f"{num_photos} photographs of {NEW_CLASSES} classes")
    print(f"{'known':>8}{'command':>12}{'features':>12}{'rest':>12}")
    for known in KNOWN:
        folder = place / f"model-{known}"
        open_model(folder).learn(made_up(place / f"known-{known}", known))
        start = time.perf_counter()
        command = [sys.executable, __file__, str(photos), "--learn", str(folder), str(lesson)]
        command += ["--threads", str(threads)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        whole = time.perf_counter() - start
        features, learning = map(float, done.stdout.split()[-2:])
        print(f"{known:8,}{whole:12.1f}{features:12.1f}{learning - features:12.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("photos", type=Path)
    parser.add_argument("--accuracy", action="store_true")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--learn", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.learn:
        timed_learn(*options.learn)
        return
    with tempfile.TemporaryDirectory() as folder:
        if options.accuracy or not options.cost:
            accuracy(options.photos, Path(folder))
        if options.cost or not options.accuracy:
            cost(options.photos, Path(folder), options.threads)


if __name__ == "__main__":
    main()
