"""BiCClassifier: a learner with the interface of scikit-learn."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bic import files
from bic.classifier_files import CLASSIFIER, description, read_description, refuse_imports
from bic.classifier_inputs import checked_inputs, checked_labels, class_name, num_features
from bic.data.from_python import Images, as_image_set
from bic.data.preprocessing import Preprocessing
from bic.errors import UserError
from bic.learn.learner import Learner
from bic.learn.learning import Learning
from bic.learn.moments import Moments
from bic.learn.saved_learner import FILES, OPTIONAL_FILES, learner_files, learner_parts, packed
from bic.model.model import Model
from bic.progress import Progress
from bic.store.model_settings import first_learning, suited_learning

LEARNER = "learner"  # the key of a learner's files in a pickled estimator
MAX_SEED = 2**31

Array = npt.NDArray[Any]


class InputError(UserError, ValueError):
    """A UserError that is also a ValueError, the error that scikit-learn expects."""


class BiCClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that learns new classes with `partial_fit` and keeps the old ones.

    X is images [n, h, w] or [n, h, w, 1 or 3], vectors [n, dim], or a list of paths or PIL images.
    y is whole numbers or names. New classes may appear in any call of `partial_fit`; known classes
    need not appear again. Old images are reached only through the memory.

    `method`, `recipe`, `memory`, `held_out`, `epochs` and `image_size` are those of `open_model`.
    `backbone` "auto" and `recipe` None suit the first images that are learned. The estimator is
    pickled as the files that `save` writes.

    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> classifier = BiCClassifier(memory=500)
    >>> _ = classifier.partial_fit(X[y < 5], y[y < 5])
    >>> _ = classifier.partial_fit(X[y >= 5], y[y >= 5])  # new classes
    >>> len(classifier.classes_), classifier.score(X, y) > 0.9
    (10, True)
    """

    learner_: Learner
    classes_: Array
    n_features_in_: int

    def __init__(
        self,
        method: str = "bic",
        backbone: str = "auto",
        recipe: Any = None,
        memory: int | str = 2000,
        *,
        held_out: float = 0.1,
        epochs: int | None = None,
        image_size: int | None = None,
        random_state: Any = 0,
        device: str = "cpu",
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.backbone = backbone
        self.recipe = recipe
        self.memory = memory
        self.held_out = held_out
        self.epochs = epochs
        self.image_size = image_size
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Forget everything and learn all classes of y in one step."""
        return self._learn(X, y, afresh=True)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:  # noqa: N803
        """Learn new classes, more images of known classes, or both, as one step.

        `classes` is ignored: new classes may come in any call. If learning fails, the estimator
        stays as it is.
        """
        return self._learn(X, y, afresh=not hasattr(self, "learner_"))

    def predict(self, X: Any) -> Array:  # noqa: N803
        """The class of each row of X, an element of `classes_`."""
        best = self._logits(X).argmax(axis=1)
        answers: Array = self.classes_[best]
        return answers

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:  # noqa: N803
        """Probabilities [n, classes] in the order of `classes_`."""
        logits = torch.from_numpy(self._logits(X)).double()
        return np.asarray(self.learner_.model.probabilities(logits).numpy())

    def save(self, folder: Path | str) -> None:
        """Write the estimator to a folder that does not exist yet. `load` reads it.

        `Model.load` and `bic predict` can use the folder too.
        """
        check_is_fitted(self, "learner_")
        folder = Path(folder)
        with _value_errors():
            if folder.exists():
                raise UserError(f"{folder} exists already", "choose another folder")
            described = files.to_json(description(self))
            files.write_folder(folder, {**self._files(), CLASSIFIER: described})

    @classmethod
    def load(cls, folder: Path | str, *, trust: bool = False) -> Self:
        """The estimator in a folder that `save` has written. No code from the folder is run.

        `trust` allows a backbone of the form `module:function` to be imported. Raises UserError for
        a folder without an estimator and for a damaged one.
        """
        folder = Path(folder)
        with _value_errors():
            if not (folder / CLASSIFIER).exists():
                raise UserError(f"{folder} holds no estimator", "give a folder that save wrote")
            contents = files.read_folder(folder, (*FILES, CLASSIFIER), optional=OPTIONAL_FILES)
            parts = learner_parts(contents, folder, trust=trust)
            described = read_description(contents[CLASSIFIER], folder, cls, parts[1].classes)
            if not trust:
                refuse_imports(described.parameters)
            estimator = cls(**described.parameters)
            estimator._restore(*parts)
        estimator.classes_ = described.labels
        if described.feature_names is not None:
            estimator.feature_names_in_ = np.array(described.feature_names, dtype=object)
        return estimator

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if state.pop("learner_", None) is not None:
            state[LEARNER] = packed(self._files())
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        contents = state.pop(LEARNER, None)
        super().__setstate__(state)
        if contents is not None:
            self._restore(*learner_parts(contents, Path("the pickled estimator"), trust=True))

    def _files(self) -> dict[str, files.Content]:
        learner = self.learner_
        return learner_files(learner.learning, learner.model, learner.memory)

    def _restore(
        self, learning: Learning, model: Model, memory: pa.Table, moments: Moments | None
    ) -> None:
        """Continue from what was read from files."""
        self.learner_ = self._learner(learning, model.preprocessing)
        self.learner_.restore(model, memory, moments)
        self.n_features_in_ = num_features(model.preprocessing)

    def _progress(self) -> Progress:
        return Progress("auto" if self.verbose else "quiet")

    def _learn(self, X: Any, y: Any, *, afresh: bool) -> Self:  # noqa: N803
        known = None if afresh else self.classes_
        with _value_errors():
            images = checked_inputs(self, X, reset=afresh)
            labels = checked_labels(y, known)
            if len(labels) != len(images):
                problem = f"X has {len(images):,} rows and y has {len(labels):,}"
                raise UserError(problem, "pass one label for each row")
            learner = self._new_learner(images) if afresh else self.learner_
            with _suited_threads(learner):
                learner.learn(images, [class_name(label) for label in labels])
                learner.calibrate()
        self.learner_ = learner
        self.classes_ = np.unique(labels) if known is None else np.union1d(known, labels)
        self.n_features_in_ = num_features(learner.model.preprocessing)
        return self

    def _new_learner(self, images: Images) -> Learner:
        """A learner with the settings that suit these images."""
        asked = {
            "method": self.method,
            "recipe": self.recipe,
            "memory": self.memory,
            "held_out": self.held_out,
            "epochs": self.epochs,
            "image_size": self.image_size,
            "backbone": None if self.backbone == "auto" else self.backbone,
            "seed": self._seed(),
        }
        given = {name: value for name, value in asked.items() if value is not None}
        recipe = first_learning(given).recipe
        image_set = as_image_set(images, image_size=recipe.image_size, resize=recipe.resize)
        learning = suited_learning(given, image_set, self._progress(), self.device)
        return self._learner(learning, image_set.preprocessing)

    def _learner(self, learning: Learning, preprocessing: Preprocessing) -> Learner:
        workers = 0 if preprocessing.size is None else 1  # vectors need no preparation
        return Learner(learning, progress=self._progress(), device=self.device, workers=workers)

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(MAX_SEED))

    def _logits(self, X: Any) -> npt.NDArray[np.float32]:  # noqa: N803
        """Final logits [n, classes] in the order of `classes_`."""
        check_is_fitted(self, "learner_")
        with _value_errors():
            model = self.learner_.model
            logits = model.predict_logits(checked_inputs(self, X, reset=False))
        position = {name: number for number, name in enumerate(model.classes)}
        return logits[:, [position[class_name(label)] for label in self.classes_]]


@contextmanager
def _value_errors() -> Iterator[None]:
    """Raise every UserError as a ValueError too."""
    try:
        yield
    except UserError as error:
        raise InputError(error.problem, error.remedy) from error


@contextmanager
def _suited_threads(learner: Learner) -> Iterator[None]:
    """One thread for vectors: their network is so small that threads wait longer than they work."""
    before = torch.get_num_threads()
    if not learner.workers:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
