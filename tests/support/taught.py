"""Small models in folders: a toy problem of six letters that takes a tenth of a second to learn."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bic import Dataset, LearnReport, ModelFolder, open_model
from support.learners import arrays_of
from support.toy import toy_dataset

MEMORY = 48
SETTINGS = {"method": "bic", "recipe": "demo", "memory": MEMORY, "held_out": 0.3}

Array = npt.NDArray[Any]


@cache
def letters() -> Dataset:
    return toy_dataset(0.8)


def images_of(classes: str, part: slice = slice(None)) -> tuple[Array, list[str]]:
    """Training images of some of the classes a to f, and their names."""
    images, names = arrays_of(letters().train, classes)
    return images[part], names[part]


def test_images() -> tuple[Array, list[str]]:
    return arrays_of(letters().test, "abcdef")


test_images.__test__ = False  # type: ignore[attr-defined]


def toy_model(folder: Path, **settings: Any) -> ModelFolder:
    return open_model(folder, **{**SETTINGS, **settings})


def learn(model: ModelFolder, classes: str, **options: Any) -> LearnReport:
    return model.learn(*images_of(classes), **options)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file, without the times in the history."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in (".lock", ".serve.lock"):
            content = path.read_bytes()
            if path.name == "live.json":
                root = json.loads(content)
                del root["checksum"]
                for event in root["history"]:
                    del event["time"], event["seconds"]
                content = json.dumps(root).encode()
            found[str(path.relative_to(folder))] = content
    return found


def probabilities(model: ModelFolder) -> Array:
    return np.asarray(model.predict_proba(test_images()[0]))
