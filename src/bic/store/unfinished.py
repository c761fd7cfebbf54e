"""Where an interrupted learn continues: its plan, and a checkpoint after every epoch."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bic import files
from bic.errors import UserError
from bic.foreign_files import read_json_file
from bic.learn.lesson import Checkpoint
from bic.model.feature_folder import FeatureFolder
from bic.model.frozen_features import FeatureCache, Rows
from bic.model.versions import UNFINISHED
from bic.progress import Progress
from bic.store.run_folder import RunFolder

PLAN = "plan.json"
FEATURES = "features"


@dataclass(frozen=True)
class LearnPlan:
    """What a learn starts from. The same plan leads to the same version, to the last bit."""

    version: int
    base: str | None  # checksum of the manifest of the version before
    images: str  # fingerprint of the images in their order
    asked: str  # settings that were given, for a new model


class Unfinished:
    """The folder `unfinished` in a model folder, for the learn that has this plan.

    Nothing is written before the first checkpoint: a learn that is refused leaves no trace.
    """

    def __init__(self, folder: Path, plan: LearnPlan, progress: Progress) -> None:
        self.path = folder / UNFINISHED
        self.plan = plan
        self.progress = progress
        self.checkpoints = RunFolder(self.path)
        recorded = _recorded(self.path)
        self.is_same = recorded is not None and recorded.get("plan") == asdict(plan)

    def precision(self) -> str | None:
        """The precision that the interrupted learn trains in; None if there is no such learn."""
        recorded = _recorded(self.path) if self.is_same else None
        return None if recorded is None else str(recorded.get("precision"))

    def load(self, step: int) -> Checkpoint | None:
        """The latest checkpoint. A damaged one is not used: the result is the same without it."""
        if not self.is_same:
            return None
        files.clear_unfinished(self.path)
        files.clear_unfinished(self.checkpoints.checkpoints)
        try:
            return self.checkpoints.load_checkpoint(step)
        except UserError as error:
            self.progress.say(f"{error.problem}; learning starts from the beginning")
            return None

    def save(self, precision: str, checkpoint: Checkpoint) -> None:
        """Save a checkpoint."""
        self.begin(precision)
        self.checkpoints.save_checkpoint(checkpoint)

    def features(self, fingerprint: str, precision: str) -> FeatureCache:
        """Where the features of this learn's images are kept until it is finished."""
        return _UnfinishedFeatures(self, fingerprint, precision)

    def begin(self, precision: str) -> None:
        """Write the plan, unless it is there. It replaces what another learn has left."""
        if not self.is_same:
            if self.path.exists():
                self.progress.say("an unfinished learn of other images or settings is given up")
                files.remove(self.path)
            content = {"plan": asdict(self.plan), "precision": precision}
            files.write_file(self.path / PLAN, files.to_json(content))
            self.is_same = True


class _UnfinishedFeatures:
    """A cache inside the folder of an unfinished learn. It is removed with the folder."""

    def __init__(self, unfinished: Unfinished, fingerprint: str, precision: str) -> None:
        self.unfinished = unfinished
        self.precision = precision
        place = unfinished.path / FEATURES
        self.folder = FeatureFolder(place, fingerprint, unfinished.progress)

    def find(self, keys: Sequence[bytes]) -> Rows:
        return self.folder.find(keys) if self.unfinished.is_same else {}

    def keep(self, rows: Rows) -> None:
        self.unfinished.begin(self.precision)
        self.folder.keep(rows)


def clear_finished(folder: Path, next_version: int) -> None:
    """Remove what a learn has left that was killed after its version went live."""
    recorded = _recorded(folder / UNFINISHED)
    version = None
    if recorded is not None and isinstance(recorded.get("plan"), dict):
        version = recorded["plan"].get("version")
    if version != next_version:
        files.remove(folder / UNFINISHED)


def _recorded(path: Path) -> dict[str, Any] | None:
    """What `plan.json` says, or None if it cannot be read."""
    try:
        content = read_json_file(path / PLAN, follow_links=False)
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
