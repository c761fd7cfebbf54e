"""The folder of one run: its configuration, checkpoints and result, and how they are read back."""

import io
import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import safetensors.torch

from bic import record
from bic.config import Plan, RunConfig
from bic.distributed import world
from bic.errors import UserError
from bic.learner import STAGE1, Checkpoint, Learner
from bic.model import Model
from bic.recorded import FORMAT, read_config
from bic.version import __version__

README = """\
config.json          what was asked for, and the plan that came of it
result.json          accuracies and more after every step (docs/result-format.md)
predictions-N.npz    the answer for every test image after step N
model/               the final model: weights, correction, class names, preprocessing, memory
checkpoint/          where an unfinished run goes on
"""


class RunFolder:
    """A run on disk. Nothing in it is ever half-written.

    After each step `checkpoint/step-N` holds the whole state, and inside a step `checkpoint/step-N-PHASE-epoch-E` what
    training needs to go on; a new one is in place before the one it replaces goes. The last step's folder becomes
    `model`.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.checkpoints, self.model = path, path / "checkpoint", path / "model"

    def refuse_strangers(self) -> None:
        """A folder that holds other things than a run is left as it is."""
        if self.path.is_dir() and not (self.path / "config.json").exists():
            ours = {".lock", "README.txt", f"{record.TEMPORARY}README.txt", f"{record.TEMPORARY}config.json"}
            if strangers := {child.name for child in self.path.iterdir()} - ours:
                raise UserError(f"{self.path} holds other files ({min(strangers)}); choose another --out")

    def plan(self) -> Plan | None:
        """The plan recorded here, if there is one."""
        return Plan.model_validate(read_config(self.path)["plan"]) if (self.path / "config.json").exists() else None

    def agree(self, config: RunConfig, plan: Plan) -> Plan:
        """The plan recorded here, if the request is the same; a new folder records this one."""
        record.clear_unfinished(self.path)
        record.clear_unfinished(self.checkpoints)
        asked = config.model_dump(mode="json", exclude_unset=True)
        old = self.plan()
        if old is None:
            record.write_file(self.path / "README.txt", README.encode())
            content = {"format": FORMAT, "version": __version__, "asked": asked, "plan": plan.model_dump(mode="json")}
            record.write_file(self.path / "config.json", record.to_json(content))
            return plan
        # What was chosen automatically then holds now, even if a newer version would choose anew.
        if old == plan or (read_config(self.path)["asked"] == asked and old.fingerprint == plan.fingerprint):
            return old
        if old.model_copy(update={"fingerprint": plan.fingerprint}) == plan:
            changed = f"the images of {plan.dataset} are not those that {self.path} was begun with"
            raise UserError(f"{changed}; put them back as they were, or choose another --out")
        named = "; ".join(_differences(old.model_dump(), plan.model_dump()))
        raise UserError(f"{self.path} is a run of another configuration ({named}); choose another --out")

    def save_step(self, learner: Learner, number: int) -> None:
        """Everything the next step starts from."""
        files: dict[str, record.Content] = {
            "model.json": record.to_json({"format": FORMAT, **learner.model.description()}),
            "weights.safetensors": partial(record.write_tensors, learner.model.tensors()),
            "memory.parquet": partial(record.write_table, learner.memory.to_table()),
        }
        record.write_folder(self.checkpoints / f"step-{number}", files)
        self._keep_only({f"step-{number}"})

    def load_step(self, learner: Learner) -> int:
        """Put the learner back to after the last step that was finished, and say which."""
        done = [int(name[5:]) for name in self._names() if re.fullmatch(r"step-\d+", name)]
        if not done and not self.model.exists():
            return 0
        folder = self.model if self.model.exists() else self.checkpoints / f"step-{max(done)}"
        files = record.read_folder(folder)
        learner.restore(_model_of(files), pq.read_table(io.BytesIO(files["memory.parquet"])))
        return len(learner.model.heads)

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """What training inside a step goes on from."""
        position = {name: value for name, value in vars(checkpoint).items() if name != "tensors"}
        tensors = partial(record.write_tensors, checkpoint.tensors)
        name = f"step-{checkpoint.step}-{checkpoint.phase.replace(' ', '-')}-epoch-{checkpoint.epoch}"
        files: dict[str, record.Content] = {"position.json": record.to_json(position), "training.safetensors": tensors}
        record.write_folder(self.checkpoints / name, files)
        self._keep_only({name, f"step-{checkpoint.step - 1}"})

    def load_checkpoint(self, step: int) -> Checkpoint | None:
        """The furthest position inside a step, if there is one."""
        found = []
        for name in self._names():
            if name.startswith(f"step-{step}-"):
                files = record.read_folder(self.checkpoints / name)
                tensors = safetensors.torch.load(files["training.safetensors"])
                found.append(Checkpoint(**json.loads(files["position.json"]), tensors=tensors))
        return max(found, key=lambda one: (one.phase != STAGE1, one.epoch), default=None)

    def finish(self, number: int) -> None:
        """The last step's state becomes the model, in one instant."""
        if not self.model.exists() and world().first:
            os.replace(self.checkpoints / f"step-{number}", self.model)
        record.remove(self.checkpoints)

    def _names(self) -> list[str]:
        return [path.name for path in self.checkpoints.glob("step-*")]

    def _keep_only(self, names: set[str]) -> None:
        for name in set(self._names()) - names:
            record.remove(self.checkpoints / name)


def load_model(folder: Path | str) -> Model:
    """The model of a run (`RUN/model`, or `RUN` itself), ready to predict."""
    folder = Path(folder)
    found = next((place for place in (folder / "model", folder) if (place / "model.json").exists()), None)
    if not folder.exists():
        raise UserError(f"{folder} does not exist; give a folder that bic run has made")
    if found is None:
        raise UserError(f"{folder} holds no model yet; give a complete run, or finish it with the same bic run")
    return _model_of(record.read_folder(found))


def _model_of(files: Mapping[str, bytes]) -> Model:
    return Model.load(json.loads(files["model.json"]), safetensors.torch.load(files["weights.safetensors"]))


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Every setting that differs, with both values."""
    for name in {**old, **new}:
        was, now = old.get(name), new.get(name)
        if isinstance(was, dict) and isinstance(now, dict):
            yield from _differences(was, now, f"{prefix}{name}.")
        elif was != now:
            yield f"{prefix}{name} was {_short(was)} and is now {_short(now)}"


def _short(value: Any) -> str:
    """A value as an error shows it: of a long list, such as thousands of classes, the beginning."""
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
