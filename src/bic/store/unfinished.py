"""Where an interrupted learn continues: its plan, and a checkpoint after every epoch."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bic import files
from bic.errors import UserError
from bic.learn.learning import Learning
from bic.learn.lesson import Checkpoint
from bic.progress import Progress
from bic.settings import checked
from bic.store.run_folder import RunFolder
from bic.store.version_writer import UNFINISHED

PLAN = "plan.json"


@dataclass(frozen=True)
class LearnPlan:
    """What a learn starts from. The same plan leads to the same version, to the last bit."""

    version: int
    base: str | None  # checksum of the manifest of the version before
    images: str  # fingerprint of the images
    asked: str  # settings that were given, for a new model


class Unfinished:
    """The folder `unfinished` in a model folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / UNFINISHED
        self.checkpoints = RunFolder(self.path)

    def settings_of(self, plan: LearnPlan) -> Learning | None:
        """The settings of an interrupted learn with the same plan, or None."""
        recorded = self._recorded()
        if recorded is None or recorded.get("plan") != asdict(plan):
            return None
        try:
            return checked(Learning, recorded["learning"])
        except (UserError, KeyError, TypeError):  # damaged: start again
            return None

    def start(self, plan: LearnPlan, learning: Learning, progress: Progress) -> None:
        """Record a new plan, and remove what another learn has left."""
        if self.path.exists():
            progress.say("an unfinished learn of other images or settings is given up")
            files.remove(self.path)
        content = {"plan": asdict(plan), "learning": learning.model_dump(mode="json")}
        files.write_file(self.path / PLAN, files.to_json(content))

    def clear(self, next_version: int) -> None:
        """Remove what a learn has left that was interrupted after its version went live."""
        recorded = self._recorded()
        version = None
        if recorded is not None and isinstance(recorded.get("plan"), dict):
            version = recorded["plan"].get("version")
        if version != next_version:
            files.remove(self.path)

    def load(self, step: int, progress: Progress) -> Checkpoint | None:
        """The latest checkpoint. A damaged one is not used: the result is the same without it."""
        files.clear_unfinished(self.path)
        files.clear_unfinished(self.checkpoints.checkpoints)
        try:
            return self.checkpoints.load_checkpoint(step)
        except UserError as error:
            progress.say(f"{error.problem}; learning starts from the beginning")
            return None

    def save(self, checkpoint: Checkpoint) -> None:
        self.checkpoints.save_checkpoint(checkpoint)

    def _recorded(self) -> dict[str, Any] | None:
        try:
            content = json.loads((self.path / PLAN).read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        return content if isinstance(content, dict) else None
