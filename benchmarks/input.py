"""Compare the input path for large images with the bare decoder, and watch its memory.

    python benchmarks/input.py [--workers N] [--images N] [--rounds N] [--json FILE]

The input path is everything from JPEG files to batches in the training process, with the recipe
`paper-imagenet`: decode, resize, crop, mirror, gather. The bare decoder reads the same files in the
same number of processes, decodes them completely and does nothing with the pixels. "bare, reduced"
also uses the scaling of JPEG wherever the input path does. All are measured in one run, in rounds
that take turns. The figures are medians, with the range over rounds. Use a quiet machine.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from bic.data import decode_pool
from bic.data.batches import Batches
from bic.data.decode import opened_with_pillow, plain_image
from bic.data.decode_jpeg import reduction, simplejpeg
from bic.data.images import ImageSet
from bic.data.preprocessing import Preprocessing
from bic.learn.recipe import Recipe
from bic.learn.recipes import RECIPES

BATCH_SIZE = 128
# (width, height), as in ImageNet
SIZES = (
    (500, 375),
    (500, 333),
    (375, 500),
    (500, 400),
    (640, 480),
    (333, 500),
    (450, 350),
    (500, 500),
)


def photograph(draws: np.random.Generator, width: int, height: int) -> Image.Image:
    """Noise with the spectrum of photographs, and round objects with edges."""
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width))
    frequency[0, 0] = 1

    def texture(fall: float) -> np.ndarray:
        wave = draws.standard_normal((2, *frequency.shape))
        values = np.fft.irfft2((wave[0] + 1j * wave[1]) / frequency**fall, (height, width))
        return values / values.std()

    pixels = texture(1.1)[..., None] + 0.4 * np.stack([texture(1.5) for _ in range(3)], axis=-1)
    rows, columns = np.mgrid[:height, :width]
    for _ in range(8):
        x = draws.uniform(0, width)
        y = draws.uniform(0, height)
        radius = draws.uniform(10, height / 3)
        inside = (columns - x) ** 2 + (rows - y) ** 2 < radius**2
        pixels[inside] = 0.7 * pixels[inside] + draws.normal(0, 1.2, 3)
    return Image.fromarray(np.clip(45 * pixels + 118, 0, 255).astype(np.uint8))


def write_photographs(folder: Path, count: int) -> list[str]:
    draws = np.random.default_rng(0)
    paths = []
    for number in range(count):
        path = folder / f"{number:05}.JPEG"
        photograph(draws, *SIZES[number % len(SIZES)]).save(path, quality=91)
        paths.append(str(path))
    return paths


def decode_bare(paths: Sequence[str], sides: Sequence[int] | None) -> None:
    """Decode files and discard the pixels.

    With `sides`, reduce each image as far as the input path may reduce it for that side.
    """
    for number, path in enumerate(paths):
        encoded = Path(path).read_bytes()
        side = None if sides is None else sides[number]
        if simplejpeg is None:
            with opened_with_pillow(encoded, side) as image:
                plain_image(image, channels=3)
            continue
        limits = {}
        if side is not None:
            height, width, *_ = simplejpeg.decode_jpeg_header(encoded)
            factor = reduction(width, height, side)
            if factor > 1:
                limits = {"min_height": -(-height // factor), "min_width": -(-width // factor)}
        simplejpeg.decode_jpeg(encoded, **limits)


def bare_process(connection: Connection) -> None:
    while True:
        task = connection.recv()
        if task is None:
            return
        decode_bare(*task)
        connection.send(None)


class BareDecoder:
    """Processes that decode their share of the files each time `rate` is called."""

    def __init__(self, count: int, paths: Sequence[str]) -> None:
        context = multiprocessing.get_context("spawn")
        self.paths = paths
        self.connections: list[Any] = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            context.Process(target=bare_process, args=(theirs,), daemon=True).start()
            self.connections.append(ours)

    def rate(self, sides: Sequence[int] | None = None) -> float:
        """Images per second."""
        num_processes = len(self.connections)
        start = time.perf_counter()
        for number, connection in enumerate(self.connections):
            share = slice(number, None, num_processes)
            connection.send((self.paths[share], None if sides is None else sides[share]))
        for connection in self.connections:
            connection.recv()
        return len(self.paths) / (time.perf_counter() - start)

    def close(self) -> None:
        for connection in self.connections:
            connection.send(None)


def megabytes(pids: Sequence[int]) -> float:
    """The memory of some processes that they do not share with others."""
    num_pages = 0
    for pid in pids:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
        num_pages += int(resident) - int(shared)
    return num_pages * os.sysconf("SC_PAGESIZE") / 1e6


class InputPath:
    """Epochs of batches, and the memory of all processes after each batch."""

    def __init__(self, paths: Sequence[str], recipe: Recipe) -> None:
        images = ImageSet(
            labels=np.zeros(len(paths), dtype=np.int64),
            preprocessing=Preprocessing(channels=3, size=recipe.image_size, resize=recipe.resize),
            files=paths,
        )
        augmentation = recipe.augmentation
        self.batches = Batches(images, (0,), batch_size=BATCH_SIZE, augmentation=augmentation)
        self.num_images = len(paths)
        self.epochs = 0
        self.memory: list[float] = []

    def rate(self) -> float:
        """Images per second."""
        pids = [os.getpid()]
        if decode_pool._pool is not None:
            pids += [worker.pid for worker in decode_pool._pool.workers if worker.pid is not None]
        self.epochs += 1
        start = time.perf_counter()
        for _ in self.batches.epoch(self.epochs):
            self.memory.append(megabytes(pids))
        return self.num_images / (time.perf_counter() - start)


def measure(
    paths: Sequence[str], recipe: Recipe, num_workers: int, num_rounds: int
) -> tuple[dict[str, list[float]], list[float]]:
    """The rates of each way in each round, and the memory after each batch."""
    assert recipe.augmentation.random_resize is not None
    low, high = recipe.augmentation.random_resize
    sides = np.random.default_rng(1).integers(low, high + 1, len(paths)).tolist()
    rates: dict[str, list[float]] = {"bare": [], "bare, reduced": [], "input path": []}
    bare = BareDecoder(num_workers, paths)
    with decode_pool.decoding(num_workers):
        input_path = InputPath(paths, recipe)
        for _ in range(2):  # fill the page cache, start the processes
            bare.rate()
            input_path.rate()
        input_path.memory.clear()
        for _ in range(num_rounds):
            rates["bare"].append(bare.rate())
            rates["input path"].append(input_path.rate())
            rates["bare, reduced"].append(bare.rate(sides))
    bare.close()
    return rates, input_path.memory


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=decode_pool.count_cpus())
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    decoder = "Pillow" if simplejpeg is None else "simplejpeg"
    with tempfile.TemporaryDirectory() as folder:
        paths = write_photographs(Path(folder), options.images)
        mean_size = statistics.mean(os.path.getsize(path) for path in paths) / 1e3
        print(f"{len(paths)} JPEGs of {mean_size:.0f} kB, {options.workers} processes, {decoder}\n")
        recipe = RECIPES["paper-imagenet"]
        rates, memory = measure(paths, recipe, options.workers, options.rounds)

    figures: dict[str, Any] = {"workers": options.workers, "decoder": decoder, "images": len(paths)}
    for name, values in rates.items():
        median = statistics.median(values)
        extremes = [min(values), max(values)]
        print(f"{name:14} {median:7.0f} images/s ({extremes[0]:.0f}–{extremes[1]:.0f})")
        figures[name] = {"images_per_second": median, "range": extremes}
    for name in ("bare", "bare, reduced"):
        pairs = zip(rates["input path"], rates[name], strict=True)
        ratios = [input_rate / bare_rate for input_rate, bare_rate in pairs]
        median = statistics.median(ratios)
        figures[f"of {name}"] = median
        print(f"input path / {name}: {median:.1%} ({min(ratios):.1%}–{max(ratios):.1%})")
    figures["megabytes"] = [min(memory), max(memory)]
    epochs = f"over {options.rounds} epochs"
    print(f"memory of all processes {epochs}: {min(memory):.0f}–{max(memory):.0f} MB")
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
