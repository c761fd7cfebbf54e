"""The folder of one run: its settings, checkpoints and result, and how they are read back."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from bic import files
from bic.compute.distributed import world
from bic.errors import UserError
from bic.foreign_files import parse_json
from bic.learn.learner import Learner
from bic.learn.lesson import Checkpoint
from bic.learn.saved_learner import MEMORY, learner_files, read_memory
from bic.learn.saved_moments import MOMENTS, read_moments
from bic.learn.stage1 import STAGE1
from bic.model.saved import BACKBONE, DESCRIPTION, WEIGHTS, model_of
from bic.model.tensor_files import read_tensors, write_tensors
from bic.store.results import FORMAT, Result, read_config, read_result
from bic.version import __version__

README = """\
config.json          what the user asked for, and all settings that follow from it
result.json          accuracies and more after every step (docs/reference/result-format.md)
predictions-N.npz    the prediction for every test image after step N
model/               the final model: weights, answer, class names, preprocessing, memory, settings
checkpoint/          where an unfinished run continues
"""
POSITION = "position.json"
TRAINING = "training.safetensors"
# Tensors of a checkpoint that versions before 0.2 call otherwise.
OLD_NAMES = {"module.deviation": "module.std", "teacher.deviation": "teacher.std"}
SHOWN = 3  # differences between settings that an error lists


class Position(BaseModel):
    """The content of `position.json`."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, extra="forbid")

    step: int
    phase: str
    epoch: int = Field(ge=0)
    seconds: dict[str, float]


class RunFolder:
    """A run on disk. No file in it is ever half written.

    After each step, `checkpoint/step-N` holds the whole state. Inside a step,
    `checkpoint/step-N-PHASE-epoch-E` holds what training needs to continue. A new one is in place
    before the old one is removed. The last step's folder becomes `model`. Of several processes that
    share a run, only rank 0 writes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoint"
        self.model = path / "model"
        self.writes = world().is_first

    def locked(self) -> AbstractContextManager[None]:
        """Keep other runs out of the folder."""
        return files.locked(self.path) if self.writes else nullcontext()

    def refuse_strangers(self) -> None:
        """Raise UserError for a folder that holds other things than a run, or that leads away."""
        for place in (self.checkpoints, self.model):
            if place.is_symlink():  # what it points to would be changed and deleted
                raise UserError(f"{place} is a symbolic link", "choose another {out}")
        if not self.path.is_dir() or (self.path / "config.json").exists():
            return
        unfinished = (f"{files.TEMPORARY}README.txt", f"{files.TEMPORARY}config.json")
        names = {child.name for child in self.path.iterdir()} - {".lock", "README.txt"}
        strangers = {name for name in names if not name.startswith(unfinished)}
        if strangers:
            raise UserError(
                f"{self.path} holds other files ({min(strangers)})", "choose another {out}"
            )

    def recorded_plan(self) -> dict[str, Any] | None:
        """The settings recorded here, if there are any."""
        if not (self.path / "config.json").exists():
            return None
        plan: dict[str, Any] = read_config(self.path)["plan"]
        return plan

    def agree(
        self,
        asked: dict[str, Any],
        plan: dict[str, Any],
        present_form: Callable[[dict[str, Any]], dict[str, Any]],
    ) -> dict[str, Any]:
        """The settings recorded here, if the request is the same. In a new folder, record `plan`.

        `present_form` brings settings that an older version recorded to their present form.
        Raises UserError if the folder holds a run with other settings or other data.
        """
        if self.writes:
            files.clear_unfinished(self.path)
            files.clear_unfinished(self.checkpoints)
        old = self.recorded_plan()
        if old is None:
            content = {"format": FORMAT, "version": __version__, "asked": asked, "plan": plan}
            self.write("README.txt", README.encode())
            self.write("config.json", files.to_json(content))
            return plan
        old = present_form(old)
        same_request = read_config(self.path)["asked"] == asked
        # Automatic choices of the first start stay, even if a newer version would choose otherwise.
        same_code = _backbone(old) == _backbone(plan)
        same_data = old.get("fingerprint") == plan["fingerprint"]
        if old == plan or (same_request and same_data and same_code):
            return old
        if {**old, "fingerprint": plan["fingerprint"]} == plan:
            raise UserError(
                f"the images of {plan['dataset']} have changed since {self.path} was started",
                "restore them, or choose another {out}",
            )
        differences = list(_differences({**old, "fingerprint": plan["fingerprint"]}, plan))
        named = "; ".join(differences[:SHOWN])
        if len(differences) > SHOWN:
            named += f"; and {len(differences) - SHOWN} more"
        raise UserError(
            f"{self.path} is a run with other settings ({named})", "choose another {out}"
        )

    def write(self, name: str, content: bytes) -> None:
        """Replace one of the run's files."""
        if self.writes:
            files.write_file(self.path / name, content)

    def save_result(self, result: Result) -> None:
        self.write("result.json", files.to_json(result.content()))

    def load_result(self) -> Result | None:
        return read_result(self.path) if (self.path / "result.json").exists() else None

    def save_step(self, learner: Learner, number: int) -> None:
        """Save everything that the next step starts from."""
        contents = learner_files(learner.learning, learner.model, learner.memory)
        self._write_checkpoint(f"step-{number}", contents)
        self._keep_only({f"step-{number}"})

    def load_step(self, learner: Learner) -> int:
        """Restore the learner to the last finished step, and return that step's number."""
        folder = self.model
        if not folder.exists():
            numbers = [int(name[5:]) for name in self._names() if re.fullmatch(r"step-\d+", name)]
            if not numbers:
                return 0
            folder = self.checkpoints / f"step-{max(numbers)}"
        wanted = (DESCRIPTION, WEIGHTS, MEMORY)
        contents = files.read_folder(folder, wanted, optional=(BACKBONE, MOMENTS))
        # A backbone is imported only if it is the one that the user asked for.
        requested = learner.learning.recipe.backbone
        model = model_of(contents, folder, trust=_names_backbone(contents[DESCRIPTION], requested))
        if model.backbone != requested:
            raise UserError(
                f"{folder} holds a model with the backbone {model.backbone}, not {requested}",
                files.AGAIN,
            )
        table = read_memory(contents[MEMORY], len(model.classes), folder)
        learner.restore(model, table, read_moments(contents.get(MOMENTS), model, folder))
        return len(model.classes_per_step)

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Save what training inside a step continues from."""
        position = {
            "step": checkpoint.step,
            "phase": checkpoint.phase,
            "epoch": checkpoint.epoch,
            "seconds": checkpoint.seconds,
        }
        phase = checkpoint.phase.replace(" ", "-")
        name = f"step-{checkpoint.step}-{phase}-epoch-{checkpoint.epoch}"
        contents: dict[str, files.Content] = {
            POSITION: files.to_json(position),
            TRAINING: partial(write_tensors, checkpoint.tensors),
        }
        self._write_checkpoint(name, contents)
        self._keep_only({name, f"step-{checkpoint.step - 1}"})

    def load_checkpoint(self, step: int) -> Checkpoint | None:
        """The latest position inside a step, if there is one."""
        found = []
        for name in self._names():
            if name.startswith(f"step-{step}-"):
                found.append(_read_checkpoint(self.checkpoints / name, step))
        return max(found, key=lambda found: (found.phase != STAGE1, found.epoch), default=None)

    def finish(self, number: int) -> None:
        """Make the last step's state the model, atomically."""
        if not self.writes:
            return
        if not self.model.exists():
            files.rename(self.checkpoints / f"step-{number}", self.model)
        files.remove(self.checkpoints)

    def _names(self) -> list[str]:
        return [path.name for path in self.checkpoints.glob("step-*")]

    def _write_checkpoint(self, name: str, contents: Mapping[str, files.Content]) -> None:
        if self.writes:
            files.write_folder(self.checkpoints / name, contents)

    def _keep_only(self, names: set[str]) -> None:
        if self.writes:
            for name in set(self._names()) - names:
                files.remove(self.checkpoints / name)


def _names_backbone(description: bytes, backbone: str) -> bool:
    """Whether a model's description names this backbone."""
    try:
        found = parse_json(description)
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("backbone") == backbone


def _read_checkpoint(folder: Path, step: int) -> Checkpoint:
    """A position inside a step. Raises UserError if it is damaged or belongs to another step."""
    contents = files.read_folder(folder, (POSITION, TRAINING))
    try:
        position = Position.model_validate(parse_json(contents[POSITION]))
        if position.step != step:
            raise ValueError(f"it belongs to step {position.step}")
        found = read_tensors(contents[TRAINING])
        tensors = {OLD_NAMES.get(name, name): found[name] for name in found}
    except ValueError as error:  # of which pydantic's is one
        reason = str(error).splitlines()[0]
        raise UserError(
            f"{folder} is damaged ({reason})", "restore it from a copy, or delete it and run again"
        ) from error
    return Checkpoint(**position.model_dump(), tensors=tensors)


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Every setting that differs, with both values."""
    for name in {**old, **new}:
        before = old.get(name)
        after = new.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _differences(before, after, f"{prefix}{name}.")
        elif before != after:
            yield f"{prefix}{name} was {_short(before)} and is now {_short(after)}"


def _short(value: Any) -> str:
    """A value as an error shows it: the beginning of a long list, such as thousands of classes."""
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _backbone(plan: Mapping[str, Any]) -> Any:
    return plan.get("recipe", {}).get("backbone")
