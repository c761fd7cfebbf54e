"""`learn`: from images to a new version that goes live, or to a candidate that was refused."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bic.data.decode_pool import decode_all
from bic.data.images import Mask, join
from bic.data.new_images import NewImagesReader
from bic.data.preprocessing import Preprocessing
from bic.errors import UserError
from bic.learn.learner import Learner
from bic.learn.learning import Learning
from bic.learn.memory import Memory
from bic.learn.recipe import Recipe
from bic.model.pretrained_backbones import preprocessing_for
from bic.model.version_files import live_version
from bic.model.versions import ClassRecord, Root, StoredFile, Version
from bic.progress import Progress
from bic.store.expectation import expected_cost
from bic.store.gate import Judgement, judge
from bic.store.learn_report import Expectation, LearnReport
from bic.store.learner_files import load_learner, load_learning, store_learner, store_memory
from bic.store.lesson_images import LessonImages, Source, lesson_images
from bic.store.model_settings import first_learning, given, refuse_changes, suited_learning
from bic.store.photographs import possible_learning, suited_to_photographs
from bic.store.seen_images import Seen, digest, encoded_ledger, ordered_fingerprint, read_ledgers
from bic.store.unfinished import LearnPlan, Unfinished
from bic.store.version_writer import store

DEFAULT_MAX_DROP = 10.0  # points
NOTHING = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class LearnOptions:
    """How to learn, beside the settings of the model."""

    again: bool = False  # learn images that were learned before
    force: bool = False  # let the version go live whatever the gate says
    max_drop: float = DEFAULT_MAX_DROP
    keep: int | None = None  # versions to keep; None: as before
    label: str | None = None
    skip_bad: bool = False
    trust: bool = False
    device: str = "cpu"
    announce: Callable[[Expectation], None] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.max_drop <= 100:
            raise UserError(
                f"max_drop must be from 0 to 100 points, got {self.max_drop}", "change {max_drop}"
            )
        if self.keep is not None and self.keep < 1:
            raise UserError(f"keep must be 1 or more, got {self.keep}", "change {keep}")


@dataclass(frozen=True)
class Taught:
    """A version that was learned, and the report about it."""

    version: Version
    report: LearnReport


class Teaching:
    """One learn: the images of a source, on top of the live version or as the first one."""

    def __init__(
        self,
        folder: Path,
        root: Root | None,
        settings: Mapping[str, Any],
        options: LearnOptions,
        progress: Progress,
    ) -> None:
        self.folder = folder
        self.root = root
        self.asked = given(settings)
        self.options = options
        self.progress = progress
        self.base = None if root is None else live_version(folder, root)
        self.number = 1 if root is None else root.next
        self.learner: Learner | None = None
        if self.base is not None:
            learning = load_learning(folder, self.base)
            refuse_changes(self.asked, learning, folder)
            self.learner = self._learner(learning)
            load_learner(folder, self.base, self.learner, trust=options.trust)

    def read(self, source: Source) -> LessonImages:
        """The images of the source that there is something to learn from."""
        if self.learner is None:
            recipe = possible_learning(self.asked).recipe
            reader = self._reader(recipe, None, keep_files=True)
            self.asked = suited_to_photographs(self.asked, source, reader, self.progress)
            recipe = first_learning(self.asked).recipe
            preprocessing = preprocessing_for(recipe.backbone, recipe.image_size, recipe.resize)
        else:
            recipe = self.learner.learning.recipe
            preprocessing = self.learner.model.preprocessing
        keep_files = recipe.frozen or recipe.augmentation.random_resize is not None
        reader = self._reader(recipe, preprocessing, keep_files=keep_files)
        known = () if self.base is None else self.base.classes
        return lesson_images(source(reader), known, self._seen())

    def _reader(
        self, recipe: Recipe, preprocessing: Preprocessing | None, *, keep_files: bool
    ) -> NewImagesReader:
        return NewImagesReader(
            preprocessing=preprocessing,
            image_size=recipe.image_size,
            resize=recipe.resize,
            label=self.options.label,
            skip_bad=self.options.skip_bad,
            keep_files=keep_files,
            progress=self.progress,
        )

    def _seen(self) -> Seen:
        """The images that must not be learned now: all that were, or those held out."""
        if self.base is None or self.learner is None:
            return {}
        if self.options.again:
            held_out = {}
            for label, kept in self.learner.memory.classes.items():
                held_out[label] = {digest(image) for image in kept.held_out}
            return held_out
        return read_ledgers(self.folder, self.base.learned)

    def learn(self, lesson: LessonImages) -> Taught:
        """Learn, judge and write the files of the version. It is not live yet."""
        unfinished = Unfinished(self.folder, self._plan(lesson), self.progress)
        learner = self.learner
        if learner is None:
            learner = self._learner(self._suited(lesson, unfinished.precision()))
        before = None if self.base is None else learner.model
        memory_before = None if self.base is None else learner.memory
        step = 1 if before is None else len(before.classes_per_step) + 1
        checkpoint = unfinished.load(step)
        if self.options.announce is not None:
            done = 0 if checkpoint is None else checkpoint.epoch
            self.options.announce(self._expectation(learner, lesson, done))
        start = time.perf_counter()
        if learner.learning.recipe.frozen:
            lesson = self._featured(learner, lesson, unfinished)
        seconds = time.perf_counter() - start
        learned = learner.learn(
            lesson.images,
            classes=lesson.classes,
            learned_before=self._learned_before(lesson),
            title=f"version {self.number}",
            resume=checkpoint,
            save=partial(unfinished.save, learner.learning.precision),
        )
        held_out = replace(lesson.images, labels=lesson.labels).select(learned.held_out)
        old = memory_before.held_out_images() if memory_before else held_out.select(NOTHING)
        learner.calibrate(join([old, held_out], decode=decode_all))
        judgement = judge(before, learner.model, old=old, new=held_out, progress=self.progress)
        version = self._store(learner, lesson, judgement, memory_before)
        seconds += sum(learned.seconds.values())
        return Taught(version, _report(version, learner, lesson, seconds))

    def _learned_before(self, lesson: LessonImages) -> Mask | None:
        """Which images are learned again. They were trained on, so they cannot judge."""
        if self.base is None or not self.options.again:
            return None
        learned = read_ledgers(self.folder, self.base.learned)
        pairs = zip(lesson.labels.tolist(), lesson.digests, strict=True)
        return np.array([image in learned.get(label, ()) for label, image in pairs], dtype=np.bool_)

    def _learner(self, learning: Learning) -> Learner:
        device = self.options.device
        workers = 0 if device == "cpu" else 1
        learning = learning.without_num_classes()
        return Learner(learning, progress=self.progress, device=device, workers=workers)

    def _featured(
        self, learner: Learner, lesson: LessonImages, unfinished: Unfinished
    ) -> LessonImages:
        """The lesson with features. A learn that is killed need not compute them again."""
        fingerprint = learner.fingerprint(lesson.images)
        cache = unfinished.features(fingerprint, learner.learning.precision)
        numbered = replace(lesson.images, labels=lesson.images.everything)
        return lesson.featured(learner.featured(numbered, cache=cache))

    def _plan(self, lesson: LessonImages) -> LearnPlan:
        base = None
        asked = ""
        if self.root is None:
            asked = json.dumps(self.asked, sort_keys=True, default=str)
        else:
            manifest = self.root.manifest(self.root.live)
            base = None if manifest is None else manifest.sha256
        images = ordered_fingerprint(lesson.digests, lesson.labels)
        return LearnPlan(self.number, base, images, asked)

    def _suited(self, lesson: LessonImages, precision: str | None) -> Learning:
        """The settings of a new model."""
        device = self.options.device
        return suited_learning(
            self.asked, lesson.images, self.progress, device, precision=precision
        )

    def _expectation(self, learner: Learner, lesson: LessonImages, done: int) -> Expectation:
        num_known = 0 if self.base is None else len(self.base.classes)
        seconds, num_bytes = expected_cost(
            learner,
            lesson.images,
            num_classes=num_known + len(lesson.new_classes),
            is_first=self.base is None,
            epochs_done=done,
        )
        return Expectation(
            version=self.number,
            new_classes=lesson.new_classes,
            known_classes=lesson.known_classes,
            num_images=len(lesson.images),
            num_left_out=lesson.num_left_out,
            seconds=seconds,
            work="computing features" if learner.learning.recipe.frozen else "training",
            num_bytes=num_bytes,
            epochs_done=done,
        )

    def _store(
        self,
        learner: Learner,
        lesson: LessonImages,
        judgement: Judgement,
        memory_before: Memory | None,
    ) -> Version:
        """Write the files of the version."""
        ledger = store(self.folder, encoded_ledger(lesson.digests, lesson.labels), ".parquet")
        earlier = () if self.base is None else self.base.learned
        unchanged = self._unchanged(memory_before, learner.memory)
        stored = store_memory(self.folder, learner.memory, unchanged)
        return Version(
            number=self.number,
            parent=None if self.base is None else self.base.number,
            fingerprint=lesson.fingerprint,
            num_images=len(lesson.images),
            files=store_learner(self.folder, learner),
            learned=(*earlier, ledger),
            classes=self._records(learner, lesson, judgement, stored),
            verdict=judgement.verdict,
        )

    def _unchanged(self, before: Memory | None, after: Memory) -> dict[int, StoredFile]:
        """The files of the classes that keep the same exemplars as in the version before."""
        unchanged: dict[int, StoredFile] = {}
        if self.base is None or before is None:
            return unchanged
        for position, record in enumerate(self.base.classes):
            kept = after.classes.get(position)
            if record.memory is not None and kept == before.classes.get(position):
                unchanged[position] = record.memory
        return unchanged

    def _records(
        self,
        learner: Learner,
        lesson: LessonImages,
        judgement: Judgement,
        stored: Mapping[int, StoredFile],
    ) -> tuple[ClassRecord, ...]:
        memory = learner.memory.classes
        known = () if self.base is None else self.base.classes
        counts = np.bincount(lesson.labels, minlength=len(learner.model.classes)).tolist()
        records = []
        for position, name in enumerate(learner.model.classes):
            record = ClassRecord(name=name, added=self.number, seen=0)
            if position < len(known):
                record = known[position]
            kept = memory.get(position)
            records.append(
                replace(
                    record,
                    seen=record.seen + counts[position],
                    kept=0 if kept is None else len(kept.train),
                    held_out=0 if kept is None else len(kept.held_out),
                    accuracy=judgement.classes.get(position),
                    memory=stored.get(position),
                )
            )
        return tuple(records)


def _report(
    version: Version, learner: Learner, lesson: LessonImages, seconds: float
) -> LearnReport:
    correction = learner.model.correction
    memory_bytes = 0
    for kept in learner.memory.classes.values():
        memory_bytes += sum(map(len, (*kept.train, *kept.held_out)))
    return LearnReport(
        version=version.number,
        is_live=False,
        new_classes=lesson.new_classes,
        known_classes=lesson.known_classes,
        num_images=len(lesson.images),
        num_left_out=lesson.num_left_out,
        verdict=version.verdict,
        alpha=None if correction is None else correction.alpha,
        beta=None if correction is None else correction.beta,
        memory_images=len(learner.memory),
        memory_bytes=memory_bytes,
        seconds=seconds,
    )
