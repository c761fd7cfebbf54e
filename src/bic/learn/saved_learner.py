"""Learners on disk: a model folder with the memory and the settings of learning."""

import io
import json
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from bic import files
from bic.errors import UserError
from bic.learn.learning import Learning
from bic.learn.memory import Memory
from bic.learn.moved import upgraded
from bic.model.model import Model
from bic.model.saved import DESCRIPTION, WEIGHTS, find_model_folder, model_files, model_of
from bic.model.version_files import is_versioned

MEMORY = "memory.parquet"
LEARNING = "learning.json"


def learner_files(learning: Learning, model: Model, memory: Memory) -> dict[str, files.Content]:
    """The files of a folder from which a learner can continue."""
    table = partial(_write_table, memory.to_table())
    settings = files.to_json(learning.model_dump(mode="json"))
    return {**model_files(model), MEMORY: table, LEARNING: settings}


def _write_table(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, compression="none")  # the images are compressed already


def read_learner(folder: Path, *, trust: bool = False) -> tuple[Learning, Model, pa.Table]:
    """The settings, the model and the memory in a folder.

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
    contents = files.read_folder(place, (DESCRIPTION, WEIGHTS, MEMORY, LEARNING))
    model = model_of(contents, place, trust=trust)
    try:
        learning = Learning(**upgraded(json.loads(contents[LEARNING])))
        memory = read_memory(contents[MEMORY])
        if learning.recipe.backbone != model.backbone:
            raise ValueError("its settings name another backbone than its model")
    except (ValueError, TypeError, KeyError, ValidationError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{place} is damaged ({reason})", files.AGAIN) from error
    return learning, model, memory


def read_memory(content: bytes) -> pa.Table:
    """The table of a memory from the content of its file."""
    return pq.read_table(io.BytesIO(content), use_threads=False, pre_buffer=False)
