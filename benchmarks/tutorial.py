"""Run the commands of docs/guide/tutorial.md, and write their output and times into the page.

    python benchmarks/tutorial.py --cifar PATH [--images 500] [--page PAGE]

PATH is the folder with the Parquet files of CIFAR-100. The script writes image folders for twenty
of its classes, runs every command of the page in its order, and replaces the output below the
commands and the tables between `<!-- tutorial: NAME -->` and `<!-- end -->`. The rest of the page
is written by hand. Without --cifar the images are made up and the network is small; this takes
seconds and is for trying out the page.
"""

import argparse
import io
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

from bic.data.sources.parquet import find_columns, find_shards, read_column, read_images

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "guide" / "tutorial.md"

# The folders that the page learns from, in this order, and their classes.
MONTHS = {
    "january": ("apple", "bottle", "bus", "chair", "lion"),
    "february": ("bicycle", "clock", "dolphin", "mushroom", "rose"),
    "march": (
        *("cloud", "cup", "elephant", "keyboard", "orange"),
        *("rabbit", "sunflower", "tractor", "train", "wolf"),
    ),
}
CLASSES = sorted(name for names in MONTHS.values() for name in names)
# Most images of these classes arrive later, in this folder.
LATER = ("lion", "rabbit")
LATER_FOLDER = "april"
EARLY_SHARE = 0.25

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"<!-- tutorial: (\w+) -->.*?<!-- end -->", re.DOTALL)
PROGRESS = re.compile(r": \d+ %, .* left, |: done in ")
RIGHT = re.compile(r"^([\d.]+) % of [\d,]+ images? (?:is|are) right", re.MULTILINE)
COLUMNS = 100
MOST_LINES = 14  # of the output of a command
SMALL = "--epochs 1 --backbone small"  # for images that are made up

Encoded = dict[str, list[bytes]]  # image files of each class
# Runs a command in a folder; returns what it prints and its seconds of CPU time.
Run = Callable[[str, Path], tuple[str, float]]


@dataclass
class Transcript:
    """What the commands printed: the page is filled with it."""

    folder: Path
    run: Run
    added_flags: str = ""
    seconds: dict[str, list[float]] = field(default_factory=dict)  # of each command
    accuracies: list[str] = field(default_factory=list)  # after each learn, in percent
    _has_learned: bool = False

    def block(self, content: str) -> str:
        """A console block with the present output of its commands."""
        lines = []
        for shown in commands(content):
            lines += [f"$ {shown}", *shortened(self._output(shown))]
        return "\n".join(lines) + "\n"

    def _output(self, shown: str) -> str:
        command = shown.replace("\\\n", " ")
        if command.startswith(("bic learn ", "bic run ")) and self.added_flags:
            command += f" {self.added_flags}"
        output, seconds = self.run(command, self.folder)
        name = " ".join(shown.split(" --")[0].replace("\\", "").split())
        self.seconds.setdefault(name, []).append(seconds)
        if command.startswith("bic learn "):
            self._has_learned = True
        if command.startswith("bic evaluate ") and self._has_learned:
            self._has_learned = False
            self.accuracies.append(accuracy_in(output))
        return output


def commands(content: str) -> Iterator[str]:
    """The commands of a console block, without its output.

    >>> list(commands("$ bic a \\\\\\n    --b\\nprinted\\n$ bic c\\n"))
    ['bic a \\\\\\n    --b', 'bic c']
    """
    command: list[str] = []
    for line in content.splitlines():
        continues = bool(command) and command[-1].endswith("\\")
        if line.startswith("$ ") and command:
            yield "\n".join(command)
        if line.startswith("$ "):
            command = [line.removeprefix("$ ")]
        elif continues:
            command.append(line)
    if command:
        yield "\n".join(command)


def accuracy_in(output: str) -> str:
    found = RIGHT.search(output)
    if found is None:
        raise SystemExit(f"bic evaluate prints no accuracy, but:\n{output}")
    return found[1]


def shortened(output: str) -> list[str]:
    """The lines of an output as the page shows them: without progress, and not too many."""
    lines: list[str] = []
    for line in output.rstrip().splitlines():
        if PROGRESS.search(line):
            continue
        lines += textwrap.wrap(line, COLUMNS) if len(line) > COLUMNS else [line.rstrip()]
    while lines and not lines[0]:
        del lines[0]
    return [*lines[:MOST_LINES], "…"] if len(lines) > MOST_LINES else lines


def filled(page: str, transcript: Transcript, data: str) -> str:
    """Run the commands of the page. Returns it with their output, and with its tables."""

    def fill_block(match: re.Match[str]) -> str:
        return f"```console\n{transcript.block(match[1])}```"

    def fill_table(match: re.Match[str]) -> str:
        texts = {"data": data, "accuracy": accuracy_table, "times": times_table}
        text = texts[match[1]]
        content = text if isinstance(text, str) else text(transcript)
        return f"<!-- tutorial: {match[1]} -->\n\n{content}\n\n<!-- end -->"

    page = BLOCK.sub(fill_block, page)
    return TABLE.sub(fill_table, page)


def accuracy_table(transcript: Transcript) -> str:
    """The accuracy on test images after each learn, beside that of `bic run`."""
    result = json.loads((transcript.folder / "runs" / "all" / "result.json").read_bytes())
    of_run = [f"{step['top1']:.1f}" for step in result["steps"]]
    rows = [("learned", "classes", "`bic learn`", "`bic run`"), ("---",) * 4]
    num_classes = 0
    pairs = zip(MONTHS.items(), transcript.accuracies, of_run, strict=False)
    for (month, names), of_model, accuracy in pairs:
        num_classes += len(names)
        rows.append((f"{month}/", str(num_classes), of_model, accuracy))
    rows.append((f"{LATER_FOLDER}/", str(num_classes), transcript.accuracies[-1], ""))
    return table(rows)


def times_table(transcript: Transcript) -> str:
    rows = [("command", "CPU time"), ("---", "---")]
    total = 0.0
    for command, seconds in transcript.seconds.items():
        total += sum(seconds)
        times = f", {len(seconds)} times" if len(seconds) > 1 else ""
        rows.append((f"`{command}`{times}", f"{sum(seconds):,.0f} s"))
    rows.append(("all", f"{total:,.0f} s"))
    return table(rows)


def table(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def in_shell(command: str, folder: Path) -> tuple[str, float]:
    """Run a command with the `bic` of this environment. It must succeed."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "BIC_DATA": str(folder / "cache"),
        "COLUMNS": str(COLUMNS),
        "OMP_NUM_THREADS": "1",
    }
    print(f"$ {command}", file=sys.stderr, flush=True)
    before = children_seconds()
    done = subprocess.run(
        shlex.split(command),
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(done.stdout, file=sys.stderr, flush=True)
    if done.returncode:
        raise SystemExit(f"{command} ended with exit code {done.returncode}:\n{done.stdout}")
    return done.stdout, children_seconds() - before


def children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cifar_images(path: Path, split: str, most: int) -> Encoded:
    """The first images of each class in the Parquet files of CIFAR-100, as PNG files."""
    shards = find_shards(path, split)
    if not shards:
        raise SystemExit(f"{path} has no {split}-*.parquet")
    columns = find_columns(shards[0], None)
    if columns.class_names is None:
        raise SystemExit(f"{shards[0]} has no class names")
    images: Encoded = {name: [] for name in CLASSES}
    labels = read_column(shards, columns.label)
    for label, content in zip(labels, read_images(shards, columns), strict=True):
        of_class = images.get(columns.class_names[label])
        if of_class is not None and len(of_class) < most:
            assert isinstance(content, bytes)
            of_class.append(content)
    return images


def made_up_images(draws: np.random.Generator, count: int) -> Encoded:
    """Noise around a colour of each class."""
    colours = np.random.default_rng(1).integers(0, 256, (len(CLASSES), 3))
    images: Encoded = {}
    for name, colour in zip(CLASSES, colours, strict=True):
        noise = draws.integers(0, 256, (count, 12, 12, 3))
        pixels = ((2 * colour + noise) // 3).astype(np.uint8)
        images[name] = [png(picture) for picture in pixels]
    return images


def png(pixels: np.ndarray) -> bytes:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    return content.getvalue()


def write_folders(folder: Path, train: Encoded, test: Encoded) -> None:
    """Write one folder per month, test/, and all/ with what `bic run` needs."""
    for month, names in MONTHS.items():
        for name in names:
            images = train[name]
            early = round(EARLY_SHARE * len(images)) if name in LATER else len(images)
            write_images(folder / month / name, images[:early])
            shutil.copytree(folder / month / name, folder / "all" / "train" / name)
            if name in LATER:
                write_images(folder / LATER_FOLDER / name, images[early:], first=early + 1)
    for name, images in test.items():
        write_images(folder / "test" / name, images)
    shutil.copytree(folder / "test", folder / "all" / "test")


def write_images(folder: Path, images: Sequence[bytes], first: int = 1) -> None:
    folder.mkdir(parents=True)
    for number, content in enumerate(images, start=first):
        (folder / f"{number:04}.png").write_bytes(content)


def tutorial(
    page: str, folder: Path, *, cifar: Path | None, num_images: int, run: Run = in_shell
) -> str:
    """The page with the present output of its commands, run in an empty folder."""
    if cifar is None:
        draws = np.random.default_rng(0)
        train, test = made_up_images(draws, num_images), made_up_images(draws, 4)
        transcript = Transcript(folder, run, added_flags=SMALL)
    else:
        train = cifar_images(cifar, "train", num_images)
        test = cifar_images(cifar, "test", 100)
        transcript = Transcript(folder, run)
    write_folders(folder, train, test)
    num_train, num_test = len(train[CLASSES[0]]), len(test[CLASSES[0]])
    num_early = len(list((folder / "january" / LATER[0]).iterdir()))
    data = (
        f"There are {num_train} training images of each class and {num_test} test images. Of "
        f"{LATER[0]} and {LATER[1]} there are only {num_early} at first; the others are in "
        f"`{LATER_FOLDER}/`."
    )
    return filled(page, transcript, textwrap.fill(data, COLUMNS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cifar", type=Path, help="folder with CIFAR-100 as Parquet files")
    parser.add_argument("--images", type=int, help="training images of each class")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to write")
    arguments = parser.parse_args()
    is_made_up = arguments.cifar is None
    if is_made_up and arguments.page == PAGE:
        parser.error("made-up images are not for the page of the guide; give --cifar or --page")
    num_images = arguments.images or (8 if is_made_up else 500)
    with tempfile.TemporaryDirectory() as folder:
        written = tutorial(
            PAGE.read_text(), Path(folder), cifar=arguments.cifar, num_images=num_images
        )
    arguments.page.write_text(written)


if __name__ == "__main__":
    main()
