"""How one step is learned: split → stage 1 → stage 2 → memory. The same for every method."""

import copy
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from bic.compute.seeding import seeded
from bic.data.augmentation import Augmentation
from bic.data.batches import Batches, plain_batches
from bic.data.decode_pool import decode_all
from bic.data.images import ImageSet, Indices, join
from bic.data.preprocessing import Preprocessing
from bic.learn.correction import fit_held_out
from bic.learn.exemplars import rank_at_random, rank_by_herding
from bic.learn.held_out import held_out_logits
from bic.learn.learning import Learning
from bic.learn.losses import Losses, classification
from bic.learn.memory import Memory, by_class, files_of
from bic.learn.methods import find_method
from bic.learn.recipe import Recipe
from bic.learn.teacher import Teacher
from bic.learn.train import Tensors, Training, fit, without_prefix
from bic.model.answers import (
    Answer,
    BlendedHead,
    CorrectedHead,
    Correction,
    NearestMean,
    PreviousNetwork,
    RawHead,
    RetrainedHead,
)
from bic.model.features import class_means, extract
from bic.model.model import Model
from bic.progress import Progress
from bic.randomness import generator

STAGE1 = "stage 1"
BALANCED = "balanced fine-tuning"
MEASURED_IMAGES = 5000  # used to measure normalisation and whitening


@dataclass(frozen=True, kw_only=True)
class Step:
    """What one step brings. Labels are positions in the order in which classes are learned.

    `train` holds the step's own images. `everything` holds the training images of all classes seen,
    for the upper bounds that may see them, else None.
    """

    number: int
    new_classes: tuple[str, ...]
    train: ImageSet
    everything: ImageSet | None = None


@dataclass
class Checkpoint:
    """A position inside a step: phase, finished epochs, and the tensors to continue from."""

    step: int
    phase: str
    epoch: int
    seconds: dict[str, float]
    tensors: Tensors


@dataclass
class Learned:
    """What a step was learned from, and how long each part took."""

    num_train: int
    num_held_out: int
    num_exemplars: int
    seconds: dict[str, float]


@dataclass
class StepLearner:
    """Learns one step. `model` and `memory` are changed in place; the caller keeps the old ones.

    `model` is None in the first step. `resume` continues an interrupted step, and `save` is called
    with a checkpoint after every epoch.
    """

    learning: Learning
    step: Step
    model: Model | None
    memory: Memory
    preprocessing: Preprocessing
    progress: Progress
    title: str
    device: str = "cpu"
    workers: int = 1
    resume: Checkpoint | None = None
    save: Callable[[Checkpoint], None] | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.method = find_method(self.learning.method)
        self.recipe = self.learning.recipe
        if self.resume is not None:
            self.seconds = dict(self.resume.seconds)

    def learn(self) -> tuple[Model, Learned]:
        """Learn the step and return the new model."""
        step = self.step
        trained, held = self.memory.split(step.train, self._draws("held out"))
        new = step.train.select(trained)
        new_held_out = step.train.select(held)
        train = join([new, self.memory.train_images()])
        if self.method.sees_old_data == "network":
            assert step.everything is not None
            train = step.everything
        if self.resume is None and new_held_out.pixels is None:
            # Decode them all once: a broken one must be found before anything is trained.
            deque(plain_batches(new_held_out), maxlen=0)
        held_out = join([self.memory.held_out_images(), new_held_out])

        before = self.model
        teacher = self._teacher(before)
        model = self._grown(before, train)
        with self._timed("stage1"):
            self._stage1(model, before, train, new, teacher)
        with self._timed("stage2"):
            if self.method.corrects and before is not None and teacher is not None:
                model.answer = self._corrected(model, before, teacher, train, held_out)
        with self._timed("memory"):
            if self.method.keeps_exemplars:
                self._remember(model, new, held)
            self._choose_answer(model)
        return model, Learned(len(train), len(held_out), len(self.memory), self.seconds)

    def _teacher(self, before: Model | None) -> Teacher | None:
        """The model before this step, if the method has a teacher."""
        if before is None or not self.method.uses_teacher:
            return None
        return Teacher(before.network, before.answer.teacher_correction)

    def _grown(self, before: Model | None, train: ImageSet) -> Model:
        """The model to train: new, or a copy of the one before, with a row for each new class."""
        known = () if before is None else before.classes
        classes_per_step = () if before is None else before.classes_per_step
        classes = known + self.step.new_classes
        with seeded(self.learning.seed, "weights", self.step.number):
            if before is None or self.method.starts_afresh:
                model = Model.fresh(self.recipe.backbone, self.preprocessing)
                measured = self._draws("measure").permutation(len(train))[:MEASURED_IMAGES]
                images, _ = train.take_readable(np.sort(measured), decode=decode_all)
                model.network.prepare(images)
            else:
                network = copy.deepcopy(before.network)
                model = Model(network, before.backbone, before.preprocessing)
            model.classes = classes
            model.classes_per_step = (*classes_per_step, len(self.step.new_classes))
            model.network.head.grow(len(classes) - model.network.num_classes)
        model.answer = RawHead()
        return model.to(self.device)

    def _stage1(
        self,
        model: Model,
        before: Model | None,
        train: ImageSet,
        new: ImageSet,
        teacher: Teacher | None,
    ) -> None:
        """Train the network, and what a method does to it afterwards."""
        if self._resumed(BALANCED) is None:
            afresh = before is None or self.method.starts_afresh
            recipe = self._scaled(model).in_step(afresh=afresh)
            self._train(STAGE1, model, train, teacher, recipe)
        if self.method.balanced_phase and teacher is not None:
            self._balance(model, new)
        if self.method.after_training is not None and before is not None:
            if self.step.new_classes:
                self.method.after_training(model.network, len(before.classes))

    def _scaled(self, model: Model) -> Recipe:
        """The recipe with a learning rate for the classes seen, where their total is not known."""
        per_class = self.method.rate_per_class
        if per_class is None or self.learning.num_classes is not None:
            return self.recipe
        scale = per_class * len(model.classes)
        settings = self.recipe.optimiser
        decay = settings.model_copy(update={"weight_decay": settings.weight_decay / scale})
        rate = self.recipe.learning_rate * scale
        return self.recipe.model_copy(update={"learning_rate": rate, "optimiser": decay})

    def _train(
        self,
        phase: str,
        model: Model,
        images: ImageSet,
        teacher: Teacher | None,
        recipe: Recipe,
    ) -> None:
        """One phase of training, from its start or from where it was interrupted."""
        training = Training.start(model.network, recipe)
        if self.learning.compile:
            training.compile(model.network, teacher)
        resume = self._resumed(phase)
        if resume is not None:
            training.restore(resume.tensors, resume.epoch)
        kept: Tensors = {}
        if phase == BALANCED and teacher is not None:
            for name, tensor in teacher.network.state_dict().items():
                kept[f"teacher.{name}"] = tensor

        title = f"{self.title}, {phase}"
        total = recipe.epochs * len(images)
        with self.progress.task(title, total, done=training.epoch * len(images)) as task:

            def loss(logits: Tensor, labels: Tensor, targets: Tensor | None) -> Losses:
                losses = self.method.loss(logits, labels, targets, model.classes_per_step)
                if "distillation" in losses:
                    losses["distillation"] = losses["distillation"] * recipe.distillation_factor
                return losses

            def after_epoch() -> None:
                task.name = f"{title}, epoch {training.epoch}/{recipe.epochs}"
                self._checkpoint(phase, training, kept)

            batches = Batches(
                images,
                (self.learning.seed, phase, self.step.number),
                batch_size=recipe.batch_size,
                augmentation=recipe.augmentation,
                workers=self.workers,
                pinned=self.device != "cpu" and torch.cuda.is_available(),
            )
            fit(
                training,
                batches,
                loss,
                recipe,
                teacher=teacher,
                gradient_noise=getattr(self.learning.method_settings, "gradient_noise", 0.0),
                after_epoch=after_epoch,
                task=task,
            )

    def _balance(self, model: Model, new: ImageSet) -> None:
        """EEIL's fine-tuning on equally many images per class, with the network as its own teacher."""
        resume = self._resumed(BALANCED)
        if resume is not None:
            model.network.load_state_dict(without_prefix(resume.tensors, "teacher."))
        per_class = max(len(kept.train) for kept in self.memory.classes.values())
        chosen = np.concatenate(list(self._rank(model, new, per_class).values()))
        images = join([new.select(chosen), self.memory.train_images()])
        recipe = self._balanced_recipe(model)
        self._train(BALANCED, model, images, Teacher(model.network, None), recipe)

    def _balanced_recipe(self, model: Model) -> Recipe:
        """A tenth of the learning rate, for 3/7 of the epochs where nothing else is published."""
        settings = self.learning.method_settings
        epochs = getattr(settings, "balanced_epochs", 0)
        milestones = getattr(settings, "balanced_milestones", None)
        recipe = self._scaled(model).slower(0.1)
        schedule = recipe.schedule
        if milestones:
            schedule = schedule.model_copy(update={"milestones": milestones})
        epochs = epochs or max(1, round(self.recipe.epochs * 3 / 7))
        return recipe.model_copy(update={"epochs": epochs, "schedule": schedule})

    def _corrected(
        self,
        model: Model,
        before: Model,
        teacher: Teacher,
        train: ImageSet,
        held_out: ImageSet,
    ) -> Answer:
        """Stage 2: fit the correction, and a second one where the previous network has a share."""
        num_old = len(before.classes)
        if not self.step.new_classes:
            # The present correction is fitted again: without it the bias would come back.
            if before.correction is None:
                return RawHead()
            num_old = before.correction.num_old
        images = held_out
        if self.method.corrects_on == "trained":
            images = self._like(held_out, train)
        correction = self._fit(model, images, num_old, None)
        share = getattr(self.learning.method_settings, "previous_share", 0.0)
        if not share:
            return CorrectedHead(correction)
        previous = PreviousNetwork(teacher.network, teacher.correction, share)
        return BlendedHead(previous, self._fit(model, images, num_old, previous), correction)

    def _fit(
        self, model: Model, images: ImageSet, num_old: int, previous: PreviousNetwork | None
    ) -> Correction:
        parts = held_out_logits(model.network, images, num_old, self.progress, previous)
        return fit_held_out(parts, num_old, penalty=self.learning.correction_penalty)

    def _like(self, wanted: ImageSet, images: ImageSet) -> ImageSet:
        """A draw from `images` with as many images of each class as `wanted` has."""
        draws = self._draws("as many")
        counts = np.bincount(wanted.labels)
        chosen = []
        for label, members in by_class(images.labels).items():
            chosen.append(draws.permutation(members)[: counts[label]])
        return images.select(np.concatenate(chosen))

    def _remember(self, model: Model, new: ImageSet, held: Indices) -> None:
        """Rank the step's images together with the exemplars that its classes have already."""
        known = [label for label in np.unique(new.labels).tolist() if label in self.memory.classes]
        pool = join([new, self.memory.train_images(known)])
        limit = self.memory.images_per_class(len(model.classes))
        ranked = {}
        for label, best in self._rank(model, pool, len(pool) if limit is None else limit).items():
            ranked[label] = files_of(pool, best)
        held_out = {}
        for label, rows in by_class(self.step.train.labels[held]).items():
            held_out[label] = list(files_of(self.step.train, held[rows]))
        self.memory.store(ranked, held_out)

    def _rank(self, model: Model, images: ImageSet, limit: int) -> dict[int, Indices]:
        """The best `limit` images of each class, best first."""
        if self.learning.exemplars == "random":
            return rank_at_random(images, limit, self._draws("exemplars"))
        return rank_by_herding(model.network, images, limit, self.progress)

    def _choose_answer(self, model: Model) -> None:
        """What answers in place of the head, for methods that have such an answer."""
        if self.method.answer == "nearest mean":
            # Mirrored exemplars join the means if the network is trained on mirrored images.
            mirrored = self.recipe.augmentation.flip and self.preprocessing.size is not None
            exemplars = self.memory.train_images()
            means = class_means(model.network, exemplars, self.progress, mirrored=mirrored)
            model.answer = NearestMean(means)
        if self.method.sees_old_data == "head":
            model.answer = self._retrained_head(model)

    def _retrained_head(self, model: Model) -> RetrainedHead:
        """A fresh head trained on the frozen features of all classes' data. It only evaluates."""
        everything = self.step.everything
        assert everything is not None
        num_features = model.network.num_features
        vectors, readable = extract(model.network, everything, self.progress)
        features = ImageSet(
            labels=everything.labels[readable],
            preprocessing=Preprocessing(channels=num_features),
            pixels=vectors,
        )
        recipe = self.recipe.model_copy(update={"precision": "float32"})
        with seeded(self.learning.seed, "head", self.step.number):
            head = nn.Linear(num_features, len(model.classes))

        def loss(logits: Tensor, labels: Tensor, targets: Tensor | None) -> Losses:
            return {"classification": classification(logits, labels)}

        title = f"{self.title}, head on all data"
        with self.progress.task(title, recipe.epochs * len(features)) as task:
            address = (self.learning.seed, "head", self.step.number)
            batches = Batches(
                features, address, batch_size=recipe.batch_size, augmentation=Augmentation()
            )
            fit(Training.start(head, recipe), batches, loss, recipe, task=task)
        answer = RetrainedHead(head.weight.detach(), head.bias.detach())
        answer.to(self.device)
        return answer

    def _resumed(self, phase: str) -> Checkpoint | None:
        """The checkpoint, if it is of this phase."""
        if self.resume is None or self.resume.phase != phase:
            return None
        return self.resume

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        self._start = time.perf_counter() - self.seconds.get(name, 0.0)
        yield
        self.seconds[name] = time.perf_counter() - self._start

    def _checkpoint(self, phase: str, training: Training, also: Tensors) -> None:
        if self.save is not None:
            seconds = {**self.seconds, "stage1": time.perf_counter() - self._start}
            tensors = {**training.tensors(), **also}
            checkpoint = Checkpoint(self.step.number, phase, training.epoch, seconds, tensors)
            self.save(checkpoint)

    def _draws(self, purpose: str) -> np.random.Generator:
        return generator(self.learning.seed, purpose, self.step.number)
