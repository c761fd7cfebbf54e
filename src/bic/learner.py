"""Learner.learn(step): split → stage 1 → stage 2 → memory. The same for every method."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from bic.compiling import compile_training
from bic.config import Plan, Recipe
from bic.correction import fit_held_out
from bic.data.decode import View
from bic.data.images import ImageSet, Indices, join
from bic.data.loader import Batches, plain_batches
from bic.memory import Memory, by_class, files_of, herd
from bic.methods import Losses, classification_only
from bic.model import Model, Previous, class_means, extract, held_out_scores
from bic.progress import Progress
from bic.randomness import generator, seeded
from bic.recipes import find_method
from bic.steps import Step
from bic.train import Teacher, Tensors, Training, fit, unprefixed

STAGE1, BALANCED = "stage 1", "balanced fine-tuning"
MEASURED_IMAGES = 5000  # looked at for the normalisation and the whitening


@dataclass
class Checkpoint:
    """A position inside a step: phase, epochs done in it, and the tensors to go on from."""

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
class Lesson:
    """One step being learned: what it brings, where it was interrupted, how to save it."""

    step: Step
    resume: Checkpoint | None
    save: Callable[[Checkpoint], None] | None
    seconds: dict[str, float] = field(default_factory=dict)

    def resumed(self, phase: str) -> Checkpoint | None:
        return self.resume if self.resume is not None and self.resume.phase == phase else None

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        self._begin = self.seconds.get(name, 0.0) - time.perf_counter()
        yield
        self.seconds[name] = self._begin + time.perf_counter()

    def checkpoint(self, phase: str, training: Training, also: Tensors) -> None:
        if self.save is not None:
            seconds = {**self.seconds, "stage1": self._begin + time.perf_counter()}
            tensors = {**training.tensors(), **also}
            self.save(Checkpoint(self.step.number, phase, training.epoch, seconds, tensors))


class Learner:
    """A model that learns classes in steps, reaching old ones through its memory alone."""

    def __init__(
        self, plan: Plan, view: View, *, progress: Progress | None = None, device: str = "cpu", workers: int = 1
    ) -> None:
        self.plan, self.recipe, self.view, self.device, self.workers = plan, plan.recipe, view, device, workers
        self.method = find_method(plan.method)
        self.progress = progress or Progress("quiet")
        self.memory = Memory(plan.memory, plan.held_out if self.method.corrects else 0.0, view)
        self._model: Model | None = None

    @property
    def model(self) -> Model:
        if self._model is None:
            raise ValueError("nothing has been learned yet; call learn() first")
        return self._model

    def restore(self, model: Model, memory: pa.Table) -> None:
        """Go on from a saved state."""
        model.network.to(self.device)
        if model.previous is not None:
            model.previous.network.to(self.device)
        self._model = model
        self.memory.load_table(memory)

    def learn(
        self, step: Step, *, resume: Checkpoint | None = None, save: Callable[[Checkpoint], None] | None = None
    ) -> Learned:
        """Learn the classes of one step, going on from `resume` if given; `save` every epoch."""
        lesson = Lesson(step, resume, save, dict(resume.seconds) if resume else {})
        trained, held = self.memory.split(step.train, self._draws("held out", step))
        new = step.train.select(trained)
        train = join([new, self.memory.train_images()])
        if self.method.sees_old_data == "network":
            assert step.everything is not None, "an upper bound needs a step with all data"
            train = step.everything
        new_held = step.train.select(held)
        if resume is None and new_held.pixels is None:
            deque(plain_batches(new_held), maxlen=0)  # a broken one must be found before another is trained on
        held_out = join([self.memory.held_out_images(), new_held])

        teacher = self._grow(step, train)
        with lesson.timed("stage1"):
            if lesson.resumed(BALANCED) is None:
                afresh = len(self.model.heads) == 1 or self.method.starts_afresh
                self._train(STAGE1, lesson, train, teacher, self.recipe.in_step(afresh=afresh))
            if self.method.balanced_phase and teacher is not None:
                self._balance(lesson, new)
        with lesson.timed("stage2"):
            if self.method.corrects and teacher is not None and step.classes:
                fitted = held_out if self.method.corrects_on == "held out" else self._as_many(train, held_out, step)
                self._correct(teacher, fitted)
        with lesson.timed("memory"):
            if self.method.keeps_exemplars:
                self._remember(step, new, held)
            self._choose_classifier(step)
        return Learned(len(train), len(held_out), len(self.memory), lesson.seconds)

    def _grow(self, step: Step, train: ImageSet) -> Teacher | None:
        """Grow the model by the step's classes. The teacher is the model before that."""
        model, teacher = self._model, None
        known, heads = ((), ()) if model is None else (model.classes, model.heads)
        if model is not None and self.method.uses_teacher:
            teacher = Teacher(model.network, model.correction if model.previous is None else model.own_correction)
        with seeded(self.plan.seed, "weights", step.number):
            if model is None or self.method.starts_afresh:
                model = Model.fresh(self.recipe.backbone, self.view)
                some = self._draws("measure", step).permutation(len(train))[:MEASURED_IMAGES]
                model.network.prepare(train.take_readable(np.sort(some))[0])
            model.classes, model.heads = known + step.classes, (*heads, len(step.classes))
            model.network.head.grow(len(model.classes) - model.network.num_classes)
        model.network.to(self.device)
        model.correction = model.class_means = model.own_head = model.previous = model.own_correction = None
        self._model = model
        return teacher

    def _correct(self, teacher: Teacher, images: ImageSet) -> None:
        """Stage 2: fit the correction, and where the teacher keeps a share in the answer, another with that."""
        model, num_old, penalty = self.model, teacher.network.num_classes, self.plan.correction_penalty
        parts = held_out_scores(model.network, images, num_old, self.progress)
        model.correction = fit_held_out(parts, num_old, penalty=penalty)
        if self.recipe.previous_share:
            model.own_correction = model.correction
            model.previous = Previous(teacher.network, teacher.correction, self.recipe.previous_share)
            parts = held_out_scores(model.network, images, num_old, self.progress, model.previous)
            model.correction = fit_held_out(parts, num_old, penalty=penalty)

    def _as_many(self, images: ImageSet, like: ImageSet, step: Step) -> ImageSet:
        """As many images of each class as `like` has, drawn from `images`."""
        draws, counts = self._draws("as many", step), np.bincount(like.labels)
        return images.select(
            np.concatenate([draws.permutation(own)[: counts[label]] for label, own in by_class(images.labels).items()])
        )

    def _train(self, phase: str, lesson: Lesson, images: ImageSet, teacher: Teacher | None, recipe: Recipe) -> None:
        """One phase of training, from its start or from where it was interrupted."""
        step, heads = lesson.step.number, self.model.heads
        training = Training.start(self.model.network, recipe)
        if self.plan.compile:
            compile_training(training, self.model.network, teacher)
        if (resume := lesson.resumed(phase)) is not None:
            training.restore(resume.tensors, resume.epoch)
        kept: Tensors = {}
        if phase == BALANCED and teacher is not None:
            kept = {f"teacher.{name}": value for name, value in teacher.network.state_dict().items()}

        title = f"step {step}/{len(self.plan.step_sizes)}, {phase}"
        total, done = recipe.epochs * len(images), training.epoch * len(images)
        with self.progress.task(title, total, done=done) as task:

            def loss(scores: Tensor, labels: Tensor, targets: Tensor | None) -> Losses:
                losses = self.method.loss(scores, labels, targets, heads)
                factors = {"distillation": recipe.distillation_factor}
                return {name: term * factors.get(name, 1.0) for name, term in losses.items()}

            def after_epoch() -> None:
                task.name = f"{title}, epoch {training.epoch}/{recipe.epochs}"
                lesson.checkpoint(phase, training, kept)

            pinned = self.device != "cpu" and torch.cuda.is_available()
            batches = Batches(images, recipe, (self.plan.seed, phase, step), workers=self.workers, pinned=pinned)
            fit(training, batches, loss, recipe, teacher=teacher, after_epoch=after_epoch, task=task)

    def _balance(self, lesson: Lesson, new: ImageSet) -> None:
        """EEIL's fine-tuning on equally many images per class, taught by the network itself."""
        if (resume := lesson.resumed(BALANCED)) is not None:
            self.model.network.load_state_dict(unprefixed(resume.tensors, "teacher."))
        per_class = max(len(one.train) for one in self.memory.classes.values())
        chosen = np.concatenate(list(self._rank(lesson.step, new, per_class).values()))
        images = join([new.select(chosen), self.memory.train_images()])
        # A first rate of 0.01 after 0.1, for 3/7 as long where nothing else is published.
        epochs = self.recipe.balanced_epochs or max(1, round(self.recipe.epochs * 3 / 7))
        milestones = self.recipe.balanced_milestones or self.recipe.milestones
        recipe = self.recipe.slower(0.1).model_copy(update={"epochs": epochs, "milestones": milestones})
        teacher = Teacher(self.model.network, None)
        self._train(BALANCED, lesson, images, teacher, recipe)

    def _remember(self, step: Step, new: ImageSet, held_out: Indices) -> None:
        """Rank the step's images, together with what is kept of those classes already."""
        again = [label for label in np.unique(new.labels).tolist() if label in self.memory.classes]
        pool = join([new, self.memory.train_images(again)])
        budget = self.plan.memory.images
        limit = len(pool) if budget is None else budget // len(self.model.classes)
        ranked = {label: files_of(pool, best) for label, best in self._rank(step, pool, limit).items()}
        held = by_class(step.train.labels[held_out])
        self.memory.store(ranked, {label: list(files_of(step.train, held_out[place])) for label, place in held.items()})

    def _rank(self, step: Step, images: ImageSet, limit: int) -> dict[int, Indices]:
        """The best `limit` images of each class, best first."""
        if self.plan.exemplars == "random":
            draws = self._draws("exemplars", step)
            return {label: draws.permutation(own)[:limit] for label, own in by_class(images.labels).items()}
        features, readable = extract(self.model.network, images, self.progress)
        members = by_class(images.labels[readable])
        return {label: readable[own[herd(features[own], limit)]] for label, own in members.items()}

    def _choose_classifier(self, step: Step) -> None:
        """What answers in place of the head, for the methods that have such a thing."""
        if self.method.classify == "nearest mean":
            # Mirror images are averaged in where the recipe shows the network mirror images.
            exemplars, mirrored = self.memory.train_images(), self.recipe.flip and self.view.size is not None
            self.model.class_means = class_means(self.model.network, exemplars, self.progress, mirrored=mirrored)
        if self.method.sees_old_data == "head":
            self.model.own_head = self._retrain_head(step)

    def _retrain_head(self, step: Step) -> tuple[Tensor, Tensor]:
        """A fresh head trained on the frozen features of all classes' data. It only evaluates."""
        assert step.everything is not None, "an upper bound needs a step with all data"
        num_features = self.model.network.num_features
        pixels, readable = extract(self.model.network, step.everything, self.progress)
        labels = step.everything.labels[readable]
        features = ImageSet(labels=labels, view=View(channels=num_features), pixels=pixels)
        recipe = self.recipe.model_copy(update={"random_resize": None, "precision": "float32"})
        with seeded(self.plan.seed, "head", step.number):
            head = nn.Linear(num_features, len(self.model.classes))
        title = f"step {step.number}/{len(self.plan.step_sizes)}, head on all data"
        with self.progress.task(title, recipe.epochs * len(features)) as task:
            batches = Batches(features, recipe, (self.plan.seed, "head", step.number))
            fit(Training.start(head, recipe), batches, partial(classification_only, heads=()), recipe, task=task)
        return head.weight.detach().to(self.device), head.bias.detach().to(self.device)

    def _draws(self, purpose: str, step: Step) -> np.random.Generator:
        return generator(self.plan.seed, purpose, step.number)
