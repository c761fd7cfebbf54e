"""Learner.learn(step): split → stage 1 → stage 2 → memory. The same for every method."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from torch import Tensor, nn

from bic.config import Plan, Recipe
from bic.correction import fit_correction
from bic.data.images import ImageSet, Indices, View, join
from bic.data.loader import Batches
from bic.losses import classification
from bic.memory import Memory, by_class, files_of, herd
from bic.methods import Losses
from bic.model import Model, class_means, extract
from bic.progress import Progress
from bic.randomness import generator, seeded
from bic.recipes import find_method
from bic.steps import Step
from bic.train import Teacher, Tensors, Training, fit, unprefixed

BALANCED = "balanced fine-tuning"
MEASURED_IMAGES = 5000  # looked at for the normalisation and the whitening


@dataclass
class Checkpoint:
    """A position inside a step: phase, epochs done in it, and the tensors to go on from."""

    step: int
    phase: str
    epoch: int
    tensors: Tensors
    seconds: dict[str, float]


@dataclass
class Learned:
    """What a step was learned from."""

    num_train: int
    num_held_out: int
    num_exemplars: int
    seconds: dict[str, float] = field(default_factory=dict)


class Learner:
    """A model that learns classes in steps, reaching old ones through its memory alone."""

    def __init__(
        self,
        plan: Plan,
        view: View,
        *,
        progress: Progress | None = None,
        device: str = "cpu",
    ) -> None:
        self.plan, self.recipe, self.view = plan, plan.recipe, view
        self.method = find_method(plan.method)
        self.progress = progress or Progress("quiet")
        self.device = device
        self.memory = Memory(plan.memory, plan.held_out if self.method.corrects else 0.0, view)
        self._model: Model | None = None

    def learn(
        self,
        step: Step,
        *,
        resume: Checkpoint | None = None,
        save: Callable[[Checkpoint], None] | None = None,
    ) -> Learned:
        """Learn the classes of one step, going on from `resume` if given; `save` every epoch."""
        clock = Clock(dict(resume.seconds) if resume else {})
        split = self.memory.split(step.train, self._draws("held out", step))
        new = step.train.select(split.train)
        train = join([new, self.memory.train_images()])
        if self.method.sees_old_data == "network":
            train = _everything(step)
        held_out = join([self.memory.held_out_images(), step.train.select(split.held_out)])

        teacher = self._start(step, train)
        with clock.measure("stage1"):
            if resume is None or resume.phase == "stage 1":
                self._train("stage 1", step, train, teacher, self.recipe, clock, resume, save)
            if self.method.balanced_phase and teacher is not None:
                self._balance(step, new, clock, resume, save)
        with clock.measure("stage2"):
            if self.method.corrects and teacher is not None:
                self._correct(held_out, teacher.network.num_classes)
        with clock.measure("memory"):
            if self.method.keeps_exemplars:
                self._remember(step, new, split.held_out)
            self._choose_classifier(step)
        return Learned(
            num_train=len(train),
            num_held_out=len(held_out),
            num_exemplars=len(self.memory),
            seconds=clock.seconds,
        )

    def _start(self, step: Step, train: ImageSet) -> Teacher | None:
        """Grow the model by the step's classes. The teacher is the model before that."""
        old = self._model
        teacher = None
        if old is not None and self.method.uses_teacher:
            teacher = Teacher(old.network, old.correction)
        known, heads = ((), ()) if old is None else (old.classes, old.heads)
        with seeded(self.plan.seed, "weights", step.number):
            if old is None or self.method.starts_afresh:
                model = Model.fresh(self.recipe.backbone, self.view)
                some = self._draws("measure", step).permutation(len(train))[:MEASURED_IMAGES]
                model.network.prepare(train.take(np.sort(some)))
            else:
                model = old
            classes = known + step.classes
            model.network.head.grow(len(classes) - model.network.num_classes)
        model.network.to(self.device)
        model.classes, model.heads = classes, (*heads, len(step.classes))
        model.correction = model.class_means = model.own_head = None
        self._model = model
        return teacher

    def _train(
        self,
        phase: str,
        step: Step,
        images: ImageSet,
        teacher: Teacher | None,
        recipe: Recipe,
        clock: Clock,
        resume: Checkpoint | None,
        save: Callable[[Checkpoint], None] | None,
    ) -> None:
        """One phase of training, from its start or from where `resume` left it."""
        training = Training.start(self.model.network, recipe)
        if resume is not None and resume.phase == phase:
            training.restore(resume.tensors, resume.epoch)
        kept: Tensors = {}
        if phase == BALANCED and teacher is not None:
            kept = {f"teacher.{name}": v for name, v in teacher.network.state_dict().items()}

        def loss(scores: Tensor, labels: Tensor, targets: Tensor | None) -> Losses:
            return self.method.loss(scores, labels, targets, self.model.heads)

        def title() -> str:
            return f"step {step.number}/{len(self.plan.step_sizes)}, {phase}"

        with self.progress.task(title(), recipe.epochs * len(images)) as task:
            task.skip(training.epoch * len(images))

            def after_epoch(training: Training) -> None:
                task.name = f"{title()}, epoch {training.epoch}/{recipe.epochs}"
                if save is not None:
                    tensors = {**training.tensors(), **kept}
                    save(Checkpoint(step.number, phase, training.epoch, tensors, clock.so_far()))

            fit(
                training,
                Batches(images, recipe, (self.plan.seed, phase, step.number)),
                loss,
                recipe,
                teacher=teacher,
                after_epoch=after_epoch,
                task=task,
            )

    def _balance(
        self,
        step: Step,
        new: ImageSet,
        clock: Clock,
        resume: Checkpoint | None,
        save: Callable[[Checkpoint], None] | None,
    ) -> None:
        """EEIL's fine-tuning on equally many images per class, taught by the network itself."""
        if resume is not None and resume.phase == BALANCED:
            self.model.network.load_state_dict(unprefixed(resume.tensors, "teacher."))
        per_class = max(len(one.train) for one in self.memory.classes.values())
        chosen = self._rank(step, new, per_class)
        images = join(
            [new.select(np.concatenate(list(chosen.values()))), self.memory.train_images()]
        )
        recipe = self.recipe.model_copy(
            update={
                # A first rate of 0.01 after 0.1, for 3/7 as long where nothing else is published.
                "learning_rate": self.recipe.learning_rate / 10,
                "epochs": self.recipe.balanced_epochs or max(1, round(self.recipe.epochs * 3 / 7)),
                "milestones": self.recipe.balanced_milestones or self.recipe.milestones,
            }
        )
        teacher = Teacher(self.model.network, None)
        self._train(BALANCED, step, images, teacher, recipe, clock, resume, save)

    def _correct(self, held_out: ImageSet, num_old: int) -> None:
        """Stage 2: the network frozen in evaluation mode, no augmentation.

        A step without new classes has nothing to correct.
        """
        if num_old < len(self.model.classes):
            scores = extract(self.model.network, held_out, then=self.model.network.head)
            self.model.correction = fit_correction(
                scores, held_out.labels, num_old, penalty=self.plan.correction_penalty
            )

    def _remember(self, step: Step, new: ImageSet, held_out: Indices) -> None:
        """Rank the step's images, together with what is kept of classes known before."""
        again = [label for label in np.unique(new.labels).tolist() if label in self.memory.classes]
        pool = join([new, self.memory.train_images(again)])
        budget = self.plan.memory.images
        limit = len(pool) if budget is None else budget // len(self.model.classes)
        ranked = {
            label: files_of(pool, chosen) for label, chosen in self._rank(step, pool, limit).items()
        }
        held = {
            label: list(files_of(step.train, held_out[places]))
            for label, places in by_class(step.train.labels[held_out]).items()
        }
        self.memory.store(ranked, held)

    def _rank(self, step: Step, images: ImageSet, limit: int) -> dict[int, Indices]:
        """The best `limit` images of each class, best first."""
        members = by_class(images.labels)
        if self.plan.exemplars == "random":
            draws = self._draws("exemplars", step)
            return {label: draws.permutation(own)[:limit] for label, own in members.items()}
        features = extract(self.model.network, images)
        return {label: own[herd(features[own], limit)] for label, own in members.items()}

    def _choose_classifier(self, step: Step) -> None:
        """What answers in place of the head, for the methods that have such a thing."""
        if self.method.classify == "nearest mean":
            # Mirror images are averaged in where the recipe shows the network mirror images.
            exemplars = self.memory.train_images()
            self.model.class_means = class_means(
                self.model.network, exemplars, mirrored=self.recipe.flip
            )
        if self.method.sees_old_data == "head":
            self.model.own_head = self._retrain_head(step)

    def _retrain_head(self, step: Step) -> tuple[Tensor, Tensor]:
        """A fresh head trained on the frozen features of all classes' data. It only evaluates."""
        images = _everything(step)
        features = ImageSet(
            labels=images.labels,
            view=View(channels=self.model.network.num_features),
            pixels=extract(self.model.network, images),
        )
        recipe = self.recipe.model_copy(update={"random_resize": None})
        with seeded(self.plan.seed, "head", step.number):
            head = nn.Linear(self.model.network.num_features, len(self.model.classes))

        def loss(scores: Tensor, labels: Tensor, targets: Tensor | None) -> Losses:
            return {"classification": classification(scores, labels)}

        title = f"step {step.number}/{len(self.plan.step_sizes)}, head on all data"
        with self.progress.task(title, recipe.epochs * len(images)) as task:
            fit(
                Training.start(head, recipe),
                Batches(features, recipe, (self.plan.seed, "head", step.number)),
                loss,
                recipe,
                task=task,
            )
        return head.weight.detach().to(self.device), head.bias.detach().to(self.device)

    def restore(self, model: Model, memory: pa.Table) -> None:
        """Go on from a saved state."""
        model.network.to(self.device)
        self._model = model
        self.memory.load_table(memory)

    @property
    def model(self) -> Model:
        if self._model is None:
            raise ValueError("nothing has been learned yet; call learn() first")
        return self._model

    def _draws(self, purpose: str, step: Step) -> np.random.Generator:
        return generator(self.plan.seed, purpose, step.number)


def _everything(step: Step) -> ImageSet:
    assert step.everything is not None, "an upper bound needs a step with all data"
    return step.everything


@dataclass
class Clock:
    """Seconds by phase, carried over an interruption."""

    seconds: dict[str, float]
    _running: tuple[str, float] | None = None

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        self._running = name, time.perf_counter()
        yield
        self.seconds = self.so_far()
        self._running = None

    def so_far(self) -> dict[str, float]:
        """Seconds up to now, the running phase included."""
        if self._running is None:
            return dict(self.seconds)
        name, started = self._running
        return {**self.seconds, name: self.seconds.get(name, 0.0) + time.perf_counter() - started}
