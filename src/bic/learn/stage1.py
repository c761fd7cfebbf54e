"""Stage 1: grow the network by the new classes and train it."""

import numpy as np
import torch
from torch import Tensor

from bic.compute.seeding import seeded
from bic.data.batches import Batches
from bic.data.decode_pool import decode_all
from bic.data.images import ImageSet, join
from bic.learn.exemplars import rank
from bic.learn.lesson import Lesson, Tensors
from bic.learn.losses import Losses, old_class_weight
from bic.learn.measure import prepare
from bic.learn.memory import Memory
from bic.learn.recipe import Recipe
from bic.learn.teacher import Teacher
from bic.learn.train import Training, fit, load_state, without_prefix
from bic.model.model import Model

STAGE1 = "stage 1"
BALANCED = "balanced fine-tuning"


def grown(lesson: Lesson, before: Model | None, train: ImageSet) -> Model:
    """The model to train: new, or a copy of `before`, with a head row for each new class."""
    known = () if before is None else before.classes
    classes_per_step = () if before is None else before.classes_per_step
    with seeded(lesson.learning.seed, "weights", lesson.step.number):
        if lesson.frozen is not None and (before is None or lesson.method.starts_afresh):
            network = lesson.frozen.with_empty_head()
            model = Model(network, lesson.learning.recipe.backbone, train.preprocessing)
        elif before is None or lesson.method.starts_afresh:
            model = Model.fresh(lesson.learning.recipe.backbone, train.preprocessing)
            prepare(model.network, train, lesson.draws("measure"))
        else:
            network = before.network.copied()
            model = Model(network, before.backbone, before.preprocessing)
        model.retired = () if before is None else before.retired
        model.classes = known + lesson.step.new_classes
        model.classes_per_step = (*classes_per_step, len(lesson.step.new_classes))
        model.network.head.grow(len(model.classes) - model.network.num_classes)
    return model.to(lesson.device)


def train_network(
    lesson: Lesson,
    model: Model,
    memory: Memory,
    *,
    train: ImageSet,
    new: ImageSet,
    most_exemplars: int,
    before: Model | None,
    teacher: Teacher | None,
) -> None:
    """Train the model's network in place. `train` has all images, `new` only the step's own.

    `most_exemplars` is the largest number of exemplars of a class that were trained on before.
    """
    method = lesson.method
    if lesson.resumed(BALANCED) is None:
        afresh = before is None or method.starts_afresh
        recipe = scaled_recipe(lesson, len(model.classes)).in_step(afresh=afresh)
        _train(lesson, STAGE1, model, train, teacher, recipe)
    if method.balanced_phase and teacher is not None:
        _balance(lesson, model, memory, new, most_exemplars)
    if method.after_training is not None and before is not None and lesson.step.new_classes:
        method.after_training(model.network, len(before.classes))


def scaled_recipe(lesson: Lesson, num_seen: int) -> Recipe:
    """The recipe with the rate and the weight decay that this number of classes asks for.

    For iCaRL, rates scale with the classes seen if their final number is unknown. With
    `weight_decay_by_share`, the weight decay falls as the number of classes seen grows. With
    `undo_lambda`, SGD trains as if the loss were divided by 1 − λ.
    """
    recipe = lesson.learning.recipe
    num_classes = lesson.learning.num_classes
    rate_scale = 1.0
    decay_divisor = 1.0
    if lesson.method.rate_per_class is not None and num_classes is None:
        rate_scale = lesson.method.rate_per_class * num_seen
        decay_divisor = rate_scale
    if recipe.optimiser.weight_decay_by_share and num_classes is not None:
        decay_divisor = num_seen / num_classes
    if recipe.optimiser.undo_lambda and lesson.method.uses_teacher:
        num_new = len(lesson.step.new_classes)
        label_weight = 1 - old_class_weight(num_seen - num_new, num_new)
        rate_scale /= label_weight
        decay_divisor /= label_weight
    weight_decay = recipe.optimiser.weight_decay / decay_divisor
    optimiser = recipe.optimiser.model_copy(update={"weight_decay": weight_decay})
    learning_rate = recipe.learning_rate * rate_scale
    return recipe.model_copy(update={"learning_rate": learning_rate, "optimiser": optimiser})


def _train(
    lesson: Lesson,
    phase: str,
    model: Model,
    images: ImageSet,
    teacher: Teacher | None,
    recipe: Recipe,
) -> None:
    """One phase of training, from its start or from where it was interrupted."""
    training = Training.start(model.network, recipe)
    if lesson.learning.compile:
        training.compile(model.network, teacher)
    resume = lesson.resumed(phase)
    if resume is not None:
        training.restore(resume.tensors, resume.epoch)
    teacher_tensors: Tensors = {}
    if phase == BALANCED and teacher is not None:
        for name, tensor in teacher.network.state_dict().items():
            teacher_tensors[f"teacher.{name}"] = tensor

    title = f"{lesson.title}, {phase}"
    total = recipe.epochs * len(images)
    with lesson.progress.task(title, total, done=training.epoch * len(images)) as task:

        def loss(logits: Tensor, labels: Tensor, targets: Tensor | None) -> Losses:
            losses = lesson.method.loss(logits, labels, targets, model.classes_per_step)
            if "distillation" in losses:
                losses["distillation"] = losses["distillation"] * recipe.distillation_factor
            return losses

        def after_epoch() -> None:
            task.name = f"{title}, epoch {training.epoch}/{recipe.epochs}"
            tensors = {**training.tensors(), **teacher_tensors}
            lesson.save_checkpoint(phase, training.epoch, tensors)

        batches = Batches(
            images,
            (lesson.learning.seed, phase, lesson.step.number),
            batch_size=recipe.batch_size,
            augmentation=recipe.augmentation,
            workers=lesson.workers,
            pinned=lesson.device != "cpu" and torch.cuda.is_available(),
        )
        fit(
            training,
            batches,
            loss,
            recipe,
            teacher=teacher,
            gradient_noise=lesson.method_setting("gradient_noise", 0.0),
            after_epoch=after_epoch,
            task=task,
        )


def _balance(lesson: Lesson, model: Model, memory: Memory, new: ImageSet, num_images: int) -> None:
    """EEIL's fine-tuning: the same number of images per class, a copy of the network as teacher."""
    resume = lesson.resumed(BALANCED)
    if resume is not None:
        load_state(model.network, without_prefix(resume.tensors, "teacher."))
    chosen = np.concatenate(list(rank(lesson, model, new, num_images).values()))
    images = join([new.select(chosen), memory.train_images()], decode=decode_all)
    recipe = balanced_recipe(lesson, len(model.classes))
    _train(lesson, BALANCED, model, images, Teacher(model.network, None), recipe)


def balanced_recipe(lesson: Lesson, num_seen: int) -> Recipe:
    """A tenth of the learning rate; 3/7 of the epochs unless the settings say otherwise."""
    recipe = scaled_recipe(lesson, num_seen).later().slower(0.1)
    epochs = lesson.method_setting("balanced_epochs", 0) or max(1, round(recipe.epochs * 3 / 7))
    milestones = lesson.method_setting("balanced_milestones", None)
    schedule = recipe.schedule
    if milestones:
        schedule = schedule.model_copy(update={"milestones": milestones})
    return recipe.model_copy(update={"epochs": epochs, "schedule": schedule})
