"""A model and the images that it never trained on, from its folder."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from bic.data.images import ImageSet
from bic.data.labelled_images import open_labelled_images
from bic.errors import UserError
from bic.learn.learner import Learner
from bic.learn.saved_learner import LEARNING
from bic.model.model import Model
from bic.model.saved import find_model_folder
from bic.model.version_files import consistent, is_versioned, live_version
from bic.model.versions import Root
from bic.store.learner_files import load_learner, load_learning


def model_and_held_out(folder: Path, *, trust: bool = False) -> tuple[Model, ImageSet | None]:
    """The model in a folder, and the held-out images of its memory; None without a memory.

    The labels are positions in `model.classes`. Raises UserError as Model.load does.
    """
    learner = _learner(folder, trust=trust)
    if learner is None:
        return Model.load(folder, trust=trust), None
    return learner.model, learner.memory.held_out_images()


def _learner(folder: Path, *, trust: bool) -> Learner | None:
    """The learner of a folder, or None if the folder has only a model."""
    for place in (folder / "model", folder):
        if is_versioned(place):
            return _live_learner(place, trust=trust)
    if not (find_model_folder(folder) / LEARNING).exists():
        return None
    return Learner.load(folder, trust=trust)


def _live_learner(folder: Path, *, trust: bool) -> Learner:
    def read(root: Root) -> Learner:
        version = live_version(folder, root)
        learner = Learner(load_learning(folder, version))
        load_learner(folder, version, learner, trust=trust)
        return learner

    return consistent(folder, read)


def labelled_for(model: Model, path: Path) -> ImageSet:
    """Labelled images at `path` of classes that the model predicts.

    The labels are positions in `model.classes`. Raises UserError if there are none.
    """
    images, classes = open_labelled_images(path, model.preprocessing)
    position = {model.classes[place]: place for place in model.active}
    labels = np.array([position.get(name, -1) for name in classes], dtype=np.int64)[images.labels]
    known = np.flatnonzero(labels >= 0)
    if not len(known):
        raise UserError(f"{path} has no images of the model's classes", "check the class names")
    return replace(images, labels=labels).select(known)
