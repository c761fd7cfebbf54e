"""How near the input path for large images comes to the bare decoder, and whether its memory stays flat.

    python benchmarks/input.py [--workers N] [--images N] [--rounds N] [--json FILE]

The input path is everything from JPEG files to batches in the training process by the paper's ImageNet recipe: decode,
resize, crop, mirror, gather. The bare decoder reads the same files and decodes them whole, in as many processes, and
does nothing with the pixels; "reduced" lets it use the JPEG's own scaling wherever the input path does. All are
measured in one run, in rounds that take turns, and given as medians with the range over rounds. Wants a quiet machine.
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

from bic.data import ImageSet
from bic.data import workers as workers_module
from bic.data.batches import Batches
from bic.data.decode import Preprocessing, open_image, reduction, simplejpeg
from bic.learn.config import Recipe
from bic.learn.recipes import RECIPES

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
    """Detail that falls off with frequency as in photographs, shared by the colours, and objects with edges."""
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width))
    frequency[0, 0] = 1

    def texture(fall: float) -> np.ndarray:
        wave = draws.standard_normal((2, *frequency.shape))
        found = np.fft.irfft2((wave[0] + 1j * wave[1]) / frequency**fall, (height, width))
        return found / found.std()

    pixels = texture(1.1)[..., None] + 0.4 * np.stack([texture(1.5) for _ in range(3)], axis=-1)
    rows, columns = np.mgrid[:height, :width]
    for _ in range(8):
        x, y, radius = (
            draws.uniform(0, width),
            draws.uniform(0, height),
            draws.uniform(10, height / 3),
        )
        inside = (columns - x) ** 2 + (rows - y) ** 2 < radius**2
        pixels[inside] = 0.7 * pixels[inside] + draws.normal(0, 1.2, 3)
    return Image.fromarray(np.clip(45 * pixels + 118, 0, 255).astype(np.uint8))


def write_photographs(folder: Path, count: int) -> list[str]:
    draws, paths = np.random.default_rng(0), []
    for number in range(count):
        path = folder / f"{number:05}.JPEG"
        photograph(draws, *SIZES[number % len(SIZES)]).save(path, quality=91)
        paths.append(str(path))
    return paths


def decode_bare(paths: Sequence[str], sides: Sequence[int] | None) -> None:
    """The decoder and nothing else; with `sides`, reduced as far as the input path may reduce for such a side."""
    for number, path in enumerate(paths):
        encoded = Path(path).read_bytes()
        side = None if sides is None else sides[number]
        if simplejpeg is None:
            open_image(encoded, channels=3, at_least=side)
        elif side is None:
            simplejpeg.decode_jpeg(encoded)
        else:
            height, width, *_ = simplejpeg.decode_jpeg_header(encoded)
            factor = reduction(width, height, side)
            least = (
                {}
                if factor == 1
                else {"min_height": -(-height // factor), "min_width": -(-width // factor)}
            )
            simplejpeg.decode_jpeg(encoded, **least)


def bare_process(connection: Connection) -> None:
    while task := connection.recv():
        decode_bare(*task)
        connection.send(None)


class BareDecoder:
    """Processes that decode their share of the files each time they are asked to."""

    def __init__(self, count: int, paths: Sequence[str]) -> None:
        context = multiprocessing.get_context("spawn")
        self.paths, self.connections = paths, []
        for _ in range(count):
            ours, theirs = context.Pipe()
            context.Process(target=bare_process, args=(theirs,), daemon=True).start()
            self.connections.append(ours)

    def rate(self, sides: Sequence[int] | None = None) -> float:
        count, start = len(self.connections), time.perf_counter()
        for number, connection in enumerate(self.connections):
            connection.send(
                (self.paths[number::count], None if sides is None else sides[number::count])
            )
        for connection in self.connections:
            connection.recv()
        return len(self.paths) / (time.perf_counter() - start)

    def close(self) -> None:
        for connection in self.connections:
            connection.send(None)


def megabytes(pids: Sequence[int]) -> float:
    """Memory that is these processes' own."""
    fields = [Path(f"/proc/{pid}/statm").read_text().split() for pid in pids]
    return (
        sum(int(resident) - int(shared) for _, resident, shared, *_ in fields)
        * os.sysconf("SC_PAGESIZE")
        / 1e6
    )


class InputPath:
    """Epochs of batches, and the memory of all processes after each tenth of one."""

    def __init__(self, paths: Sequence[str], recipe: Recipe) -> None:
        preprocessing = Preprocessing(channels=3, size=recipe.image_size, resize=recipe.resize)
        images = ImageSet(labels=np.zeros(len(paths), dtype=np.int64), preprocessing=preprocessing, files=paths)
        self.batches, self.num_images, self.epochs = Batches(images, recipe, (0,)), len(paths), 0
        self.memory: list[float] = []

    def rate(self) -> float:
        pool = workers_module._pool
        pids = [
            os.getpid(),
            *(worker.pid for worker in (pool.workers if pool else ()) if worker.pid),
        ]
        self.epochs += 1
        start = time.perf_counter()
        for _ in self.batches.epoch(self.epochs):
            self.memory.append(megabytes(pids))
        return self.num_images / (time.perf_counter() - start)


def described(rates: Sequence[float]) -> str:
    return f"{statistics.median(rates):7.0f} images/s ({min(rates):.0f}–{max(rates):.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    recipe = Recipe(name="paper-imagenet", **{**RECIPES["paper-imagenet"], "batch_size": 128})
    assert recipe.random_resize is not None

    with tempfile.TemporaryDirectory() as folder:
        paths = write_photographs(Path(folder), options.images)
        sizes = [os.path.getsize(path) / 1e3 for path in paths]
        decoder = "Pillow" if simplejpeg is None else "simplejpeg"
        print(
            f"{len(paths)} JPEGs of {statistics.mean(sizes):.0f} kB, {options.workers} processes, {decoder}\n"
        )
        low, high = recipe.random_resize
        sides = np.random.default_rng(1).integers(low, high + 1, len(paths)).tolist()
        bare = BareDecoder(options.workers, paths)
        rates: dict[str, list[float]] = {"bare": [], "bare, reduced": [], "input path": []}
        with workers_module.decoding(options.workers):
            ours = InputPath(paths, recipe)
            for _ in range(2):  # files into the page cache, processes up
                bare.rate()
                ours.rate()
            ours.memory.clear()
            for _ in range(options.rounds):
                rates["bare"].append(bare.rate())
                rates["input path"].append(ours.rate())
                rates["bare, reduced"].append(bare.rate(sides))
        bare.close()

    figures: dict[str, Any] = {"workers": options.workers, "decoder": decoder, "images": len(paths)}
    for name, found in rates.items():
        print(f"{name:14} {described(found)}")
        figures[name] = {
            "images_per_second": statistics.median(found),
            "range": [min(found), max(found)],
        }
    for name in ("bare", "bare, reduced"):
        ratios = [one / other for one, other in zip(rates["input path"], rates[name], strict=True)]
        figures[f"of {name}"] = statistics.median(ratios)
        print(
            f"input path / {name}: {statistics.median(ratios):.1%} ({min(ratios):.1%}–{max(ratios):.1%})"
        )
    figures["megabytes"] = [min(ours.memory), max(ours.memory)]
    print(
        f"memory of all processes over {options.rounds} epochs: {min(ours.memory):.0f}–{max(ours.memory):.0f} MB"
    )
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
