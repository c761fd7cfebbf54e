"""Learners on disk: a model folder with the memory and the settings of learning."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from bic import files
from bic.data.parquet_files import read_columns
from bic.errors import UserError
from bic.foreign_files import parse_json
from bic.learn.learning import Learning
from bic.learn.memory import FEATURES, HELD_OUT, MEMORY_TYPES, TRAIN, Memory
from bic.learn.methods import find_method
from bic.learn.moments import Moments
from bic.learn.moved import upgraded
from bic.learn.recipe import Recipe
from bic.learn.saved_moments import MOMENTS, moments_files, read_moments
from bic.model.answers import RidgeHead
from bic.model.model import Model
from bic.model.saved import BACKBONE, DESCRIPTION, WEIGHTS, find_model_folder, model_files, model_of
from bic.model.version_files import is_versioned
from bic.settings import checked

MEMORY = "memory.parquet"
LEARNING = "learning.json"
FILES = (DESCRIPTION, WEIGHTS, MEMORY, LEARNING)
OPTIONAL_FILES = (BACKBONE, MOMENTS)  # of a frozen backbone and of an exact head


def learner_files(learning: Learning, model: Model, memory: Memory) -> dict[str, files.Content]:
    """The files of a folder from which a learner can continue."""
    table = partial(write_memory, memory.to_table())
    settings = files.to_json(learning.model_dump(mode="json"))
    written = {**model_files(model), MEMORY: table, LEARNING: settings}
    return written | moments_files(memory.moments)


def write_memory(table: pa.Table, place: Path | BinaryIO) -> None:
    """Write the table of a memory to a file or a stream.

    The images are compressed already, and no two of them are equal. Statistics would repeat the
    smallest and the largest image.
    """
    pq.write_table(table, place, compression="none", use_dictionary=False, write_statistics=False)


def packed(contents: Mapping[str, files.Content]) -> dict[str, bytes]:
    """The contents of files as bytes, for a learner that is kept in memory."""
    with TemporaryDirectory() as folder:
        found = {}
        for name, content in contents.items():
            if not isinstance(content, bytes):
                path = Path(folder) / name
                content(path)
                content = path.read_bytes()
            found[name] = content
    return found


def read_learner(
    folder: Path, *, trust: bool = False
) -> tuple[Learning, Model, pa.Table, Moments | None]:
    """The settings, the model, the images and the moments of its memory in a folder.

    Raises UserError for a folder without a learner and for a damaged one.
    """
    if is_versioned(folder):
        raise UserError(f"{folder} is a model folder with versions", "open it with bic.open_model")
    place = find_model_folder(folder)
    if not (place / LEARNING).exists():
        raise UserError(
            f"{folder} has a model that cannot learn on: it was saved without its settings",
            "use a folder that Learner.save or this version's bic run has written",
        )
    contents = files.read_folder(place, FILES, optional=OPTIONAL_FILES)
    return learner_parts(contents, place, trust=trust)


def learner_parts(
    contents: Mapping[str, bytes], place: Path, *, trust: bool
) -> tuple[Learning, Model, pa.Table, Moments | None]:
    """The settings, the model, the images and the moments from the content of their files.

    `place` names them in errors. Raises UserError if they are damaged.
    """
    model = model_of(contents, place, trust=trust)
    learning = read_learning(contents[LEARNING], place)
    reason = misfit(learning, model)
    if reason is not None:
        raise UserError(f"{place} is damaged ({reason})", files.AGAIN)
    table = read_memory(contents[MEMORY], len(model.classes), place)
    return learning, model, table, read_moments(contents.get(MOMENTS), model, place)


def misfit(learning: Learning, model: Model) -> str | None:
    """Why the model cannot have been learned with these settings, or None."""
    if learning.recipe.backbone != model.backbone:
        return "its settings name another backbone than its model"
    if learning.recipe.frozen != model.network.frozen:
        return "its settings and its model disagree on whether the backbone is frozen"
    # The network of an exact head is never trained to classify, and other answers need moments.
    if (find_method(learning.method).answer == "ridge") != isinstance(model.answer, RidgeHead):
        return "its settings name another method than that of its model"
    return None


def read_learning(content: bytes, place: Path) -> Learning:
    """The settings from the content of their file. `place` names it in errors."""
    try:
        settings = parse_json(content)
        if not isinstance(settings, dict):
            raise TypeError("it holds no settings")
        recorded = upgraded(settings)
        # As in Plan.of: a setting that was not recorded gets the default of Recipe.
        recorded["recipe"] = checked(Recipe, recorded.get("recipe", {}), under="recipe.")
        recorded.setdefault("held_out_limit", None)  # recorded before there was a limit
        return Learning(**recorded)
    except UserError as error:
        reason = error.problem
        raise UserError(f"{place / LEARNING} is damaged ({reason})", files.AGAIN) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{place / LEARNING} is damaged ({reason})", files.AGAIN) from error


def read_memory(content: bytes, num_classes: int, place: Path) -> pa.Table:
    """The table of a memory from the content of its file. `place` names it in errors.

    Raises UserError unless every image belongs to one of the classes and to one of the two parts.
    """
    try:
        return parse_memory(content, num_classes)
    except ValueError as error:
        raise UserError(f"{place / MEMORY} is damaged ({error})", files.AGAIN) from error


def parse_memory(content: bytes, num_classes: int) -> pa.Table:
    """The table of a memory. Raises ValueError, with the reason, if it cannot be used."""
    try:
        table = read_columns(content, MEMORY_TYPES, FEATURES)
        if any(table[name].null_count for name in MEMORY_TYPES):  # features may have gaps
            raise ValueError("it has empty cells")
        labels = table["class"].to_numpy()
        if len(labels) and not 0 <= labels.min() <= labels.max() < num_classes:
            raise ValueError("it holds images of classes that the model does not have")
        if not set(table["part"].unique().to_pylist()) <= {TRAIN, HELD_OUT}:
            raise ValueError("it holds images that are neither trained on nor held out")
        return table
    except UserError as error:
        raise ValueError(error.problem) from error
    except (ValueError, TypeError, KeyError, OSError, pa.ArrowException) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(reason) from error
