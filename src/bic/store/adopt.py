"""A plain learner's folder, written by Learner.save or by `bic run`, becomes a model folder."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bic import files
from bic.errors import UserError
from bic.learn.learner import Learner
from bic.learn.saved_learner import LEARNING, MEMORY
from bic.learn.saved_moments import MOMENTS
from bic.model.saved import BACKBONE, DESCRIPTION, WEIGHTS
from bic.model.versions import ClassRecord, Root, Version
from bic.progress import Progress
from bic.store.class_names import check_name
from bic.store.gate import judge
from bic.store.learner_files import store_learner, store_memory
from bic.store.seen_images import digest, encoded_ledger
from bic.store.version_writer import commit, new_event, store, store_version

PLAIN = (DESCRIPTION, WEIGHTS, BACKBONE, LEARNING, MEMORY, MOMENTS, files.CHECKSUMS)


def is_plain_learner(folder: Path) -> bool:
    """Whether the folder is one that Learner.save or `bic run` has written."""
    return (folder / DESCRIPTION).is_file() and (folder / LEARNING).is_file()


def refuse_others(folder: Path, ours: Sequence[str]) -> None:
    """Raise UserError for a folder that holds something else than a model."""
    if not folder.is_dir():
        return
    if (folder / "config.json").exists():
        raise UserError(
            f"{folder} is a run", f"give its model, {folder / 'model'}, or a copy of that folder"
        )
    if (folder / DESCRIPTION).exists():
        raise UserError(
            f"{folder} has a model that cannot learn on: it was saved without its memory",
            "create another model",
        )
    names = {path.name for path in folder.iterdir()}
    strangers = {name for name in names if not name.startswith(files.TEMPORARY)} - set(ours)
    if strangers:
        raise UserError(f"{folder} holds other files ({min(strangers)})", "give another folder")


def adopt(folder: Path, keep: int, progress: Progress, *, trust: bool) -> Root:
    """Make the learner in the folder version 1 of a model folder, in the same place."""
    learner = Learner.load(folder, trust=trust, progress=progress)
    model = learner.model
    for name in model.classes:
        check_name(name)
    held_out = learner.memory.held_out_images()
    nothing = held_out.select(held_out.everything[:0])
    judgement = judge(None, model, old=held_out, new=nothing, progress=progress)
    stored = store_memory(folder, learner.memory, {})
    records = []
    digests: list[bytes] = []
    labels: list[int] = []
    for position, name in enumerate(model.classes):
        record = ClassRecord(name=name, added=1, seen=0)
        kept = learner.memory.classes.get(position)
        if kept is not None:
            record = ClassRecord(
                name=name,
                added=1,
                seen=kept.num_images,
                kept=len(kept.train),
                held_out=len(kept.held_out),
                accuracy=judgement.classes.get(position),
                memory=stored.get(position),  # a class without exemplars has no file
            )
            digests += [digest(image) for image in (*kept.train, *kept.held_out)]
            labels += [position] * kept.num_images
        records.append(record)
    ledger = store(folder, encoded_ledger(digests, np.array(labels, dtype=np.int64)), ".parquet")
    version = Version(
        number=1,
        parent=None,
        fingerprint="",
        num_images=len(digests),
        files=store_learner(folder, learner),
        learned=(ledger,),
        classes=tuple(records),
        verdict=judgement.verdict,
    )
    text = f"{len(records):,} classes, taken over with the images in their memory"
    event = new_event("adopt", 1, text)
    manifest = store_version(folder, version)
    root = commit(folder, Root(live=1, next=2, keep=keep, versions=(manifest,), history=(event,)))
    progress.say(f"{folder} is now a model folder with versions; its model is version 1")
    return root


def remove_plain(folder: Path) -> None:
    """Remove the files of the plain learner that was adopted."""
    for name in PLAIN:
        (folder / name).unlink(missing_ok=True)
