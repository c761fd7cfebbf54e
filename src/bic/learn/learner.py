"""Learner: a model that learns classes in steps. It sees old classes only in its memory."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy.typing as npt
import pyarrow as pa

from bic import files
from bic.compute.devices import check_device
from bic.data.from_python import Images
from bic.data.images import ImageSet, Mask
from bic.data.preprocessing import Preprocessing
from bic.errors import UserError
from bic.learn.frozen import complete_features, featured, frozen_network
from bic.learn.learning import Learning
from bic.learn.lesson import Checkpoint, Learned, Lesson, Step
from bic.learn.measured_precision import measured_precision
from bic.learn.memory import ClassMemory, Memory
from bic.learn.methods import find_method
from bic.learn.moments import Moments
from bic.learn.saved_learner import learner_files, read_learner
from bic.learn.step import learn_step
from bic.learn.step_input import Given, step_of
from bic.model.calibrate import calibrate
from bic.model.calibration import Calibration
from bic.model.frozen_features import FeatureCache, fingerprint
from bic.model.model import Model
from bic.model.network import Network
from bic.progress import Progress


class Learner:
    """A model that keeps learning. It knows no data set, no class order and no future step.

    >>> import numpy as np
    >>> images = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    >>> learner = Learner(Learning(method="distill", recipe="demo", memory=20))
    >>> _ = learner.learn(images[:20], ["cat", "dog"] * 10)
    >>> _ = learner.learn(images[20:], ["fox", "owl"] * 10)
    >>> learner.model.classes
    ('cat', 'dog', 'fox', 'owl')
    """

    def __init__(
        self,
        learning: Learning | None = None,
        *,
        progress: Progress | None = None,
        device: str = "cpu",
        workers: int = 1,
    ) -> None:
        if learning is not None and not isinstance(learning, Learning):
            raise UserError(f"a learner needs a Learning, got {learning!r}", "pass Learning(…)")
        if workers < 0:
            raise UserError(f"workers must be 0 or more, got {workers}", "change {workers}")
        self.learning = learning or Learning()
        self.method = find_method(self.learning.method)
        self.progress = progress or Progress("quiet")
        check_device(device)
        self.device = device
        self.workers = workers
        self._model: Model | None = None
        self._memory: Memory | None = None
        self._frozen: Network | None = None  # of a new model, before its first step

    @property
    def model(self) -> Model:
        """The model as it is now. Raises UserError before the first step."""
        if self._model is None:
            raise UserError("nothing has been learned yet", "call learn() first")
        return self._model

    @property
    def memory(self) -> Memory:
        """The exemplars. Raises UserError before the first step."""
        if self._memory is None:
            raise UserError("nothing has been learned yet", "call learn() first")
        return self._memory

    def save(self, folder: Path | str) -> None:
        """Write model, memory and settings to a folder that does not exist yet.

        Model.load reads the model in it; Learner.load continues from it.
        """
        folder = Path(folder)
        if folder.exists():
            raise UserError(f"{folder} exists already", "choose another folder")
        files.write_folder(folder, learner_files(self.learning, self.model, self.memory))

    @classmethod
    def load(
        cls,
        folder: Path | str,
        *,
        trust: bool = False,
        progress: Progress | None = None,
        device: str = "cpu",
        workers: int = 1,
    ) -> Self:
        """The learner in a folder that Learner.save or a complete `bic run` has written.

        `trust` allows a backbone of the form `module:function` to be imported. Raises UserError for
        a folder without a learner and for a damaged one.
        """
        learning, model, memory, moments = read_learner(Path(folder), trust=trust)
        # The number of classes of a protocol says nothing about what comes after it.
        learning = learning.without_num_classes()
        learner = cls(learning, progress=progress, device=device, workers=workers)
        learner.restore(model, memory, moments)
        return learner

    def restore(self, model: Model, memory: pa.Table, moments: Moments | None = None) -> None:
        """Continue from a saved model, the table of its memory, and the moments if it has any."""
        self._memory = self._empty_memory(model.preprocessing)
        self._memory.load_table(memory)
        self._memory.moments = moments
        known = self._memory.features.views  # those of another length are computed again
        num_features = model.network.num_features
        fitting = {key: views for key, views in known.items() if views.shape[1] == num_features}
        self._memory.features.views = fitting
        if self.method.keeps_exemplars:
            for position in model.active:  # of which some may have no exemplars
                self._memory.classes.setdefault(position, ClassMemory())
        self._model = model.to(self.device)

    def learn(
        self,
        images: Images,
        labels: Sequence[Any] | npt.NDArray[Any] | None = None,
        *,
        classes: Sequence[str] | None = None,
        everything: ImageSet | None = None,
        learned_before: Mask | None = None,
        title: str | None = None,
        resume: Checkpoint | None = None,
        save: Callable[[Checkpoint], None] | None = None,
    ) -> Learned:
        """Learn from images of new classes, of known classes, or of both.

        `labels` has the class of each image: a name or an integer; 7 becomes the name "7". An
        ImageSet can be passed without `labels`: its own labels are then positions in `classes`. If
        learning fails, the learner does not change.

        `everything` is for the upper bounds only: the training images of all classes seen,
        including this step's. Its labels are positions in the order in which classes are learned.
        `learned_before` says which images an earlier step has learned: they are trained on again,
        and not held out. `resume` continues an interrupted step; `save` is called with a checkpoint
        after every epoch.

        Raises UserError for images or labels that cannot be used and for a memory that is too
        small.
        """
        given = Given(images, labels, classes, everything, learned_before)
        num_exemplars = 0 if self._memory is None else self._memory.num_trained
        step = step_of(given, self.learning, self._model, num_exemplars)
        with self._unchanged_by_failure():
            if self.learning.precision == "quickest":
                num_classes = int(step.train.labels.max()) + 1
                precision = measured_precision(
                    self.learning, step.train, num_classes, self.progress, self.device
                )
                self.learning = self.learning.with_recipe(precision=precision)
            if self._memory is None:
                memory = self._empty_memory(step.train.preprocessing)
            else:
                memory = self._memory.copy()
            frozen = None
            if self.learning.recipe.frozen:
                everything = None if step.everything is None else self.featured(step.everything)
                step = replace(self._with_features(step), everything=everything)
                frozen = self._frozen_network(step.train)
                complete_features(self.learning, frozen, memory, self.progress)
            lesson = Lesson(
                learning=self.learning,
                step=step,
                title=title or f"step {step.number}",
                progress=self.progress,
                device=self.device,
                workers=self.workers,
                resume=resume,
                save=save,
                frozen=frozen,
            )
            model, learned = learn_step(lesson, self._model, memory)
        self._model = model
        self._memory = memory
        return learned

    @contextmanager
    def _unchanged_by_failure(self) -> Iterator[None]:
        """If a step fails, undo what it has measured: the precision and a frozen network."""
        before = self.learning, self._frozen
        try:
            yield
        except BaseException:
            self.learning, self._frozen = before
            raise

    def featured(
        self, images: ImageSet, *, cache: FeatureCache | None = None, for_training: bool = True
    ) -> ImageSet:
        """The readable images with the features of a frozen backbone.

        If the backbone is not frozen, the images are returned as they are. The features of mirrored
        images are computed only `for_training`.
        """
        if not self.learning.recipe.frozen or images.features is not None:
            return images
        network = self._frozen_network(images)
        return featured(
            self.learning, network, images, self.progress, cache=cache, for_training=for_training
        )

    def _with_features(self, step: Step) -> Step:
        """The step with the features of those of its images that can be read."""
        numbered = self.featured(replace(step.train, labels=step.train.everything))
        readable = numbered.labels
        train = replace(numbered, labels=step.train.labels[readable])
        if step.learned_before is None:
            return replace(step, train=train)
        return replace(step, train=train, learned_before=step.learned_before[readable])

    def fingerprint(self, images: ImageSet) -> str:
        """What identifies the features that the frozen backbone computes of such images."""
        network = self._frozen_network(images)
        return fingerprint(network, images.preprocessing, self.learning.precision)

    def _frozen_network(self, images: ImageSet) -> Network:
        if self._model is not None:
            return self._model.network
        if self._frozen is None:
            self._frozen = frozen_network(self.learning, images, self.device)
        return self._frozen

    def calibrate(self, held_out: ImageSet | None = None) -> Calibration | None:
        """Calibrate the model on images that were never trained on, and return the calibration.

        By default these are the held-out exemplars of the memory. If there are none, because the
        method holds none out, the model stays as it is and None is returned. Learning makes a
        new model, which has to be calibrated again.
        """
        images = self.memory.held_out_images() if held_out is None else held_out
        if not len(images):
            return None
        self.model.calibration = calibrate(self.model, images, self.progress)
        return self.model.calibration

    def _empty_memory(self, preprocessing: Preprocessing) -> Memory:
        held_out = self.learning.held_out if self.method.holds_out else 0.0
        return Memory(
            self.learning.memory,
            held_out,
            preprocessing,
            held_out_limit=self.learning.held_out_limit,
        )
