"""open_model: a model that is kept for years and learns new classes as they arrive."""

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from bic.data.from_python import Images
from bic.data.labelled_images import open_labelled_images
from bic.errors import UserError
from bic.model.evaluation import Evaluation
from bic.model.model import Model
from bic.model.saved import BACKBONE, DESCRIPTION, WEIGHTS, model_of
from bic.model.version_files import is_versioned, present_root, read_live
from bic.model.versions import Event, Root
from bic.progress import Progress
from bic.store.check import FolderCheck, check
from bic.store.learn_report import Expectation, LearnReport
from bic.store.overview import ClassSummary, VersionDiff, class_summaries, diff
from bic.store.version_writer import require_versions, writing


class LiveModel(NamedTuple):
    """A model, and the number of the version that it is."""

    version: int
    model: Model


class ModelFolder:
    """A model in a folder. It is read when it is used, so that it is always the live version.

    The folder holds everything: weights, class names, preprocessing, the memory's images, settings
    and the last versions. Several processes can use it; only one at a time can change it. Opening a
    folder that does not exist is allowed: the first `learn` creates it, with `settings`.

    >>> import tempfile
    >>> images = np.random.default_rng(0).integers(0, 256, (60, 8, 8), dtype=np.uint8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     shop = open_model(f"{folder}/shop", recipe="demo", method="distill")
    ...     _ = shop.learn(images[:30], ["cup", "hat"] * 15)
    ...     report = shop.learn(images[30:], ["jar"] * 30)
    ...     report.version, report.new_classes, shop.predict(images[:1])[0] in ("cup", "hat", "jar")
    (2, ('jar',), True)
    """

    def __init__(
        self,
        path: Path,
        settings: dict[str, Any],
        *,
        progress: Progress | None = None,
        device: str = "cpu",
        trust: bool = False,
    ) -> None:
        self.path = path
        self.settings = settings
        self.progress = progress or Progress("quiet")
        self.device = device
        self.trust = trust
        self._loaded: tuple[Root, LiveModel] | None = None

    @property
    def model(self) -> Model:
        """The live version's model. Raises UserError before the first `learn`."""
        if not is_versioned(self.path):
            return Model.load(self.path, trust=self.trust).to(self.device)
        return self.live.model

    @property
    def live(self) -> LiveModel:
        """The live version's number and its model, which belong together.

        It is loaded again only if the folder has changed. Raises UserError before the first
        `learn`.
        """
        require_versions(self.path)
        root = present_root(self.path)
        if self._loaded is None or self._loaded[0] != root:
            wanted = (DESCRIPTION, WEIGHTS)
            version, contents = read_live(self.path, wanted, optional=(BACKBONE,))
            model = model_of(contents, self.path, trust=self.trust).to(self.device)
            self._loaded = (root, LiveModel(version.number, model))
        return self._loaded[1]

    @overload
    def predict(self, images: Images) -> list[str]: ...

    @overload
    def predict(self, images: Images, *, reject: float) -> list[str | None]: ...

    def predict(
        self, images: Images, *, reject: float | None = None
    ) -> list[str] | list[str | None]:
        """The class name of each image. Takes paths, PIL images or arrays.

        With `reject`, the answer is None for an image that seems to belong to none of the classes.
        """
        if reject is None:
            return self.model.predict(images)
        return self.model.predict(images, reject=reject)

    def predict_proba(self, images: Images) -> npt.NDArray[np.float32]:
        """Probabilities [images, classes] in the order of `model.classes`; 0 if retired."""
        return self.model.predict_proba(images)

    def evaluate(
        self,
        images: Images | str | PathLike[str],
        labels: Sequence[Any] | npt.NDArray[Any] | None = None,
        *,
        reject: float | None = None,
        label: str | None = None,
        skip_bad: bool = False,
    ) -> Evaluation:
        """Test the live version on labelled images, as `bic evaluate` does.

        `images` is a folder with one folder per class, a Parquet file or an .npz file; or images in
        memory with `labels`, the class of each. Raises UserError for images that cannot be used.
        """
        model = self.model
        if not isinstance(images, str | PathLike):
            return model.evaluate(images, labels, reject=reject, progress=self.progress)
        if labels is not None:
            raise UserError("a path and labels cannot both be given", "leave out the labels")
        opened = open_labelled_images(
            Path(images), model.preprocessing, label=label, skip_bad=skip_bad
        )
        return model.evaluate(
            opened.images, classes=opened.classes, reject=reject, progress=self.progress
        )

    def learn(
        self,
        images: Images | str | PathLike[str],
        labels: Sequence[Any] | npt.NDArray[Any] | None = None,
        *,
        again: bool = False,
        force: bool = False,
        max_drop: float = 10.0,
        keep: int | None = None,
        label: str | None = None,
        skip_bad: bool = False,
        announce: Callable[[Expectation], None] | None = None,
    ) -> LearnReport:
        """Learn new classes, more images of known classes, or both, as a new version.

        `images` is a folder with one folder per class, a Parquet file or an .npz file; or images in
        memory with `labels`, the class of each. Images that were learned before are left out,
        unless `again`. An interrupted call continues when it is made again.

        The version goes live only if the accuracy on held-out images of old classes, with answers
        restricted to old classes, does not fall significantly by more than `max_drop` points.
        Otherwise it is kept as a candidate; the same call with `force` promotes it. `keep` versions
        are kept, 5 by default. `label` is the label column of Parquet files; `skip_bad` leaves out
        broken images. `announce` is called before training, with what to expect.

        Raises UserError for images or settings that cannot be used; the model then stays as it is.
        """
        from bic.store.learn_folder import learn_folder  # imports the training code
        from bic.store.lesson_images import source_of
        from bic.store.teaching import LearnOptions

        options = LearnOptions(
            again=again,
            force=force,
            max_drop=max_drop,
            keep=keep,
            label=label,
            skip_bad=skip_bad,
            trust=self.trust,
            device=self.device,
            announce=announce,
        )
        source = source_of(images, labels)
        return learn_folder(self.path, source, self.settings, options, self.progress)

    def classes(self) -> tuple[ClassSummary, ...]:
        """The classes of the live version that can be predicted, in the order of learning."""
        require_versions(self.path)
        return class_summaries(self.path)

    def history(self) -> tuple[Event, ...]:
        """What was done to the model, oldest first."""
        require_versions(self.path)
        return present_root(self.path).history

    def versions(self) -> tuple[int, ...]:
        """The numbers of the kept versions, without a candidate."""
        require_versions(self.path)
        root = present_root(self.path)
        return tuple(kept.number for kept in root.versions if kept.number != root.candidate)

    @property
    def version(self) -> int:
        """The number of the live version."""
        require_versions(self.path)
        return present_root(self.path).live

    def rollback(self, version: int | None = None) -> int:
        """Make an earlier version live again, by default the one before; returns its number."""
        from bic.store.upkeep import roll_back

        require_versions(self.path)
        with writing(self.path):
            return roll_back(self.path, version)

    def retire(self, *names: str) -> int:
        """Stop predicting classes, and delete their images from every kept version.

        Returns the number of deleted images. A rollback does not bring the classes back. Their
        names can be learned again, as new classes.
        """
        from bic.store.upkeep import retire

        require_versions(self.path)
        with writing(self.path):
            return retire(self.path, names)

    def rename(self, old: str, new: str) -> None:
        """Give a class another name, in every kept version."""
        from bic.store.upkeep import rename

        require_versions(self.path)
        with writing(self.path):
            rename(self.path, old, new)

    def diff(self, first: int | None = None, second: int | None = None) -> VersionDiff:
        """What differs between two versions; by default the live one and the one before it."""
        require_versions(self.path)
        return diff(self.path, first, second)

    def check(self) -> FolderCheck:
        """Compare every file of every kept version with its size and checksum."""
        require_versions(self.path)
        return check(self.path)


def open_model(
    path: str | PathLike[str],
    *,
    progress: Progress | None = None,
    device: str = "cpu",
    trust: bool = False,
    **settings: Any,
) -> ModelFolder:
    """A model in a folder, which the first `learn` creates.

    `settings` are chosen when the model is created: `method`, `recipe`, `memory`, `image_size`,
    `held_out`, `exemplars`, `backbone`, `tune`, `epochs`, `seed`, `random_features`. Those left out
    suit the images. Giving another value later raises UserError when the model learns. `progress`
    shows progress; by default nothing is shown. `trust` allows a backbone of the form
    `module:function` to be imported.
    """
    place = Path(path)
    if place.exists() and not place.is_dir():
        raise UserError(f"{place} is a file and not a folder", "give a folder")
    return ModelFolder(place, settings, progress=progress, device=device, trust=trust)
