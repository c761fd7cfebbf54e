"""The small data on which the commands of the documents are run."""

import io
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

# Among them all that the documents name.
CLASSES = (
    *("butterfly", "cup", "dollar_bill", "flamingo", "grand_piano"),
    *("pizza", "soccer_ball", "starfish", "sunflower", "umbrella"),
)
JANUARY = ("butterfly", "cup", "flamingo", "pizza", "starfish", "sunflower")
FEBRUARY = ("dollar_bill", "grand_piano", "umbrella")
TRAIN = 8  # images of each class
TEST = 2
SIDE = 16  # pixels


def prepare(folder: Path) -> None:
    """Write photos/, shards/ and cifar.npz into the folder."""
    draws = np.random.default_rng(0)
    pictures = {part: _pictures(draws, count) for part, count in (("train", TRAIN), ("test", TEST))}
    for part, images in pictures.items():
        _write_photos(folder / "photos" / part, images)
        _write_shard(folder / "shards" / f"{part}-00000.parquet", images)
    for month, names in (("january", JANUARY), ("february", FEBRUARY)):
        for name in names:
            place = folder / "photos" / month / name
            shutil.copytree(folder / "photos" / "train" / name, place)
    _write_arrays(folder / "cifar.npz", draws)


def _write_arrays(path: Path, draws: np.random.Generator) -> None:
    """As many classes as CIFAR-100 has, with few images."""
    arrays = {}
    for part, count in (("train", 3), ("test", 1)):
        labels = np.repeat(np.arange(100), count)
        arrays[f"x_{part}"] = draws.integers(0, 256, (len(labels), SIDE, SIDE, 3), dtype=np.uint8)
        arrays[f"y_{part}"] = labels
    np.savez(path, **arrays)


def _pictures(draws: np.random.Generator, count: int) -> np.ndarray:
    """Noise around a colour of each class: [classes, count, SIDE, SIDE, 3]."""
    colours = np.random.default_rng(1).integers(0, 256, (len(CLASSES), 1, 1, 1, 3))
    noise = draws.integers(0, 256, (len(CLASSES), count, SIDE, SIDE, 3))
    return ((colours + noise) // 2).astype(np.uint8)


def _write_photos(folder: Path, images: np.ndarray) -> None:
    for name, pictures in zip(CLASSES, images, strict=True):
        (folder / name).mkdir(parents=True)
        for number, pixels in enumerate(pictures, start=1):
            Image.fromarray(pixels).save(folder / name / f"image_{number:04}.jpg")


def _write_shard(path: Path, images: np.ndarray) -> None:
    path.parent.mkdir(exist_ok=True)
    rows: dict[str, list[object]] = {"image": [], "kind": [], "photographer": []}
    for name, pictures in zip(CLASSES, images, strict=True):
        for pixels in pictures:
            encoded = io.BytesIO()
            Image.fromarray(pixels).save(encoded, "PNG")
            rows["image"].append(encoded.getvalue())
            rows["kind"].append(name)
            rows["photographer"].append("anna")
    pq.write_table(pa.table(rows), path)
