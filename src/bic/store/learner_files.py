"""From a learner to the files of a version, and back. A memory has one file for each class."""

import io
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import safetensors.torch
import torch

from bic import files
from bic.errors import UserError
from bic.learn.learner import Learner
from bic.learn.learning import Learning
from bic.learn.memory import Memory
from bic.learn.moments import Moments
from bic.learn.saved_learner import LEARNING, misfit, parse_memory, read_learning, write_memory
from bic.learn.saved_moments import MOMENTS, parse_moments
from bic.model.model import Model
from bic.model.saved import BACKBONE, DESCRIPTION, WEIGHTS, description, model_of, tensors_by_file
from bic.model.version_files import read_named, read_stored
from bic.model.versions import ClassRecord, DamagedError, StoredFile, Version
from bic.store.version_writer import store, store_all


def store_learner(folder: Path, learner: Learner) -> dict[str, StoredFile]:
    """Write the model and the settings of a learner. Its memory is written by class."""
    settings = files.to_json(learner.learning.model_dump(mode="json"))
    stored = {
        DESCRIPTION: store(folder, files.to_json(description(learner.model)), ".json"),
        LEARNING: store(folder, settings, ".json"),
    }
    for file, tensors_of_file in tensors_by_file(learner.model).items():
        named = {}
        for name, tensor in tensors_of_file.items():
            named[name] = tensor.detach().cpu().contiguous()
        stored[file] = store(folder, safetensors.torch.save(named), ".safetensors")
    if learner.memory.moments is not None:
        # Single precision: every version has moments of its own, and they are large.
        packed = learner.memory.moments.packed(torch.float32)
        stored[MOMENTS] = store(folder, safetensors.torch.save(packed), ".safetensors")
    return stored


def store_memory(
    folder: Path, memory: Memory, unchanged: Mapping[int, StoredFile]
) -> dict[int, StoredFile]:
    """Write the exemplars of each class to a file of its own, and return the files by class.

    Classes in `unchanged` keep the file that they have. A class without exemplars has no file.
    """
    changed = []
    for label, kept in memory.classes.items():
        if label not in unchanged and kept.num_images:
            changed.append(label)
    contents = [_encoded_class(memory, label) for label in changed]
    stored = store_all(folder, contents, ".parquet")
    return {**unchanged, **dict(zip(changed, stored, strict=True))}


def _encoded_class(memory: Memory, label: int) -> bytes:
    alone = Memory(memory.budget, memory.held_out, memory.preprocessing)
    alone.classes = {label: memory.classes[label]}
    alone.features = memory.features
    out = io.BytesIO()
    write_memory(alone.to_table(), out)
    return out.getvalue()


def load_learner(folder: Path, version: Version, learner: Learner, *, trust: bool) -> None:
    """Bring a learner to the state of a version. Raises DamagedError for a damaged file."""
    model = load_model(folder, version, trust=trust)
    described = folder / version.files[DESCRIPTION].name
    retired = tuple(place for place, record in enumerate(version.classes) if record.retired)
    names = tuple(record.name for record in version.classes)
    if (model.classes, model.retired) != (names, retired):
        raise DamagedError(described, "it has other classes than its version")
    reason = misfit(learner.learning, model)
    if reason is not None:
        raise DamagedError(described, reason)
    with ThreadPoolExecutor(1) as pool:  # moments are large, and memories have many small files
        moments = pool.submit(_load_moments, folder, version, model)
        tables = [Memory(learner.learning.memory, 0.0, model.preprocessing).to_table()]
        for position, record in enumerate(version.classes):
            if record.memory is not None:
                tables.append(_class_table(folder, record, position, tables[0].schema))
        table = pa.concat_tables(tables, promote_options="default")
        learner.restore(model, table, moments.result())


def _load_moments(folder: Path, version: Version, model: Model) -> Moments | None:
    if MOMENTS not in version.files:
        content = None
        path = folder / version.files[WEIGHTS].name
    else:
        content = read_named(folder, version, MOMENTS)
        path = folder / version.files[MOMENTS].name
    try:
        return parse_moments(content, model)
    except ValueError as error:
        raise DamagedError(path, f"moments: {error}") from error


def load_model(folder: Path, version: Version, *, trust: bool) -> Model:
    contents = {}
    optional = [name for name in (BACKBONE,) if name in version.files]
    for name in (DESCRIPTION, WEIGHTS, *optional):
        contents[name] = read_named(folder, version, name)
    return model_of(contents, folder, trust=trust)


def load_learning(folder: Path, version: Version) -> Learning:
    """The settings of a version. Raises DamagedError if they cannot be used."""
    content = read_named(folder, version, LEARNING)
    try:
        return read_learning(content, folder)
    except UserError as error:
        raise DamagedError(folder / version.files[LEARNING].name, error.problem) from error


def _class_table(folder: Path, record: ClassRecord, position: int, schema: pa.Schema) -> pa.Table:
    """The exemplars of a class, checked against its record and the columns of a memory."""
    assert record.memory is not None
    path = folder / record.memory.name
    content = read_stored(folder, record.memory)
    try:
        table = parse_memory(content, position + 1)
    except ValueError as error:
        raise DamagedError(path, str(error)) from error
    if not table.select(schema.names).schema.equals(schema):
        raise DamagedError(path, "it has other columns than a memory")
    parts = table["part"].to_pylist()
    counts = (parts.count("train"), parts.count("held out"))
    is_whole = not table["image"].null_count and sum(counts) == len(table)
    if set(table["class"].to_pylist()) != {position} or not is_whole:
        raise DamagedError(path, "it holds images of another class, or none")
    if counts != (record.kept, record.held_out):
        raise DamagedError(path, "it has another number of images than its version says")
    return table
