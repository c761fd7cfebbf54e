"""What a learner is given for a step, checked and brought to the form that the model takes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bic.class_names import name_problem
from bic.data.decode_pool import decode_all
from bic.data.fitting import holds_vectors
from bic.data.from_python import Images, as_image_set, as_model_input, in_memory
from bic.data.images import ImageSet, Mask
from bic.errors import UserError
from bic.learn.labels import numbered
from bic.learn.learning import Learning
from bic.learn.lesson import Step
from bic.learn.methods import find_method
from bic.learn.requirements import check_images, check_memory, num_held_out_of_class
from bic.model.model import Model
from bic.model.pretrained_backbones import preprocessing_for


@dataclass(frozen=True)
class Given:
    """The data for a step, as the arguments of `Learner.learn`."""

    images: Images
    labels: Sequence[Any] | npt.NDArray[Any] | None
    classes: Sequence[str] | None
    everything: ImageSet | None
    learned_before: Mask | None


def step_of(given: Given, learning: Learning, model: Model | None, num_exemplars: int) -> Step:
    """The next step of a model, with labels that are positions among all classes seen.

    `num_exemplars` are in the memory to be trained on. Raises UserError for data that cannot be
    used, and for a step that would fail after it was trained.
    """
    known = () if model is None else model.classes
    image_set = _image_set(given.images, learning, model)
    own_labels, names = numbered(image_set, given.labels, given.classes)
    known_names = set(known)
    new = tuple(name for name in names if name not in known_names)
    _refuse_retired(names, model)
    problem = name_problem((*known, *new))
    if problem is not None:
        raise UserError(problem, "use the name that the class was learned with")
    position = {name: number for number, name in enumerate((*known, *new))}
    positions = np.array([position[name] for name in names], dtype=np.int64)
    train = replace(image_set, labels=positions[own_labels])
    method = find_method(learning.method)
    if method.is_upper_bound:
        _check_everything(method.name, given.everything, train, len(position))
    if given.learned_before is not None and len(given.learned_before) != len(train):
        raise UserError(
            f"learned_before must have a value for each of {len(train):,} images, got "
            f"{len(given.learned_before):,}",
            "pass one value for each image",
        )
    step = Step(
        number=1 if model is None else len(model.classes_per_step) + 1,
        new_classes=new,
        train=train,
        everything=given.everything,
        learned_before=given.learned_before,
    )
    num_retired = 0 if model is None else len(model.retired)
    _check(step, learning, num_exemplars, num_seen=len(position), num_retired=num_retired)
    return step


def _image_set(images: Images, learning: Learning, model: Model | None) -> ImageSet:
    """The images in the form that the model takes."""
    recipe = learning.recipe
    if model is None:
        wanted = preprocessing_for(recipe.backbone, recipe.image_size, recipe.resize)
    else:
        wanted = model.preprocessing
    if wanted is not None:
        image_set = as_model_input(images, wanted)
    else:
        image_set = as_image_set(images, image_size=recipe.image_size, resize=recipe.resize)
    if image_set.preprocessing.size is None and not holds_vectors(image_set):
        raise UserError("images must be square", "set {recipe.image_size=32} to resize them")
    is_used_once = recipe.frozen or recipe.augmentation.random_resize is not None
    if isinstance(images, ImageSet) or is_used_once:
        return image_set
    return in_memory(image_set, decode=decode_all)  # decoded once, not in every epoch


def _check(
    step: Step, learning: Learning, num_exemplars: int, *, num_seen: int, num_retired: int
) -> None:
    """Raise UserError before training for a step that would fail after it."""
    first_new = num_seen - len(step.new_classes)
    counts = np.bincount(step.train.labels, minlength=num_seen)
    check_images(learning, counts[first_new:], step.new_classes)
    num_held_out = len(step.new_classes) * num_held_out_of_class(learning)
    if len(step.train) - num_held_out + num_exemplars < 2:
        raise UserError("a step needs two images to train on, beside those held out", "add images")
    check_memory(learning, num_seen - num_retired, step.train)


def _refuse_retired(names: Sequence[str], model: Model | None) -> None:
    """Raise UserError for the name of a retired class."""
    if model is None:
        return
    retired = {model.classes[position] for position in model.retired}
    for name in names:
        if name in retired:
            raise UserError(f"class {name!r} is retired", "give the class another name")


def _check_everything(
    method: str, everything: ImageSet | None, train: ImageSet, num_seen: int
) -> None:
    """Refuse an upper bound without the data of all classes, or with other data."""
    if everything is None:
        raise UserError(
            f"{method} is an upper bound that sees the data of all classes",
            "use it with bic.run, or pass the argument everything",
        )
    if everything.preprocessing != train.preprocessing:
        raise UserError(
            "everything has images of another size or kind than the step", "make them alike"
        )
    if not len(everything) or int(everything.labels.max()) >= num_seen:
        raise UserError(
            "the labels of everything must be positions among the classes seen",
            f"use 0 to {num_seen - 1}",
        )
