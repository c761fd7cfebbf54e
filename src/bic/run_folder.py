"""The folder of one run: its configuration, checkpoints and result, and how they are read back."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bic.config import Plan, RunConfig
from bic.errors import UserError
from bic.learner import Checkpoint, Learner
from bic.model import Model
from bic.record import (
    bytes_to_table,
    bytes_to_tensors,
    clear_unfinished,
    read_folder,
    table_to_bytes,
    tensors_to_bytes,
    to_json,
    write_file,
    write_folder,
)
from bic.version import __version__

FORMAT = 1  # of a run folder; a higher number was written by a newer version

README = """\
config.json          what was asked for, and the plan that came of it
result.json          accuracies and more after every step (docs/result-format.md)
predictions-N.npz    the answer for every test image after step N
model/               the final model: weights, correction, class names, preprocessing, memory
checkpoint/          where an unfinished run goes on
"""


class RunFolder:
    """A run on disk. Nothing in it is ever half-written.

    After each step `checkpoint/step-N` holds the whole state, and inside a step
    `checkpoint/step-N-PHASE-epoch-E` what training needs to go on; a new one is in place before
    the one it replaces goes. The last step's folder becomes `model`.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.checkpoints = path, path / "checkpoint"

    def agree(self, config: RunConfig, plan: Plan) -> Plan:
        """The plan recorded here, if the request is the same; a new folder records this one."""
        clear_unfinished(self.path)
        clear_unfinished(self.checkpoints)
        asked = config.model_dump(mode="json", exclude_unset=True)
        if not (self.path / "config.json").exists():
            return self._begin(asked, plan)
        recorded = read_config(self.path)
        old = Plan.model_validate(recorded["plan"])
        # What was chosen automatically then holds now, even if a newer version would choose anew.
        if old == plan or (recorded["asked"] == asked and old.fingerprint == plan.fingerprint):
            return old
        named = ", ".join(
            f"{name} was {was} and is now {now}"
            for name, was, now in _differences(old.model_dump(), plan.model_dump())
        )
        raise UserError(
            f"{self.path} is a run of another configuration ({named}); choose another --out"
        )

    def _begin(self, asked: dict[str, Any], plan: Plan) -> Plan:
        others = [child.name for child in self.path.iterdir() if child.name != ".lock"]
        if set(others) - {"README.txt"}:
            raise UserError(f"{self.path} holds other files ({others[0]}); choose another --out")
        write_file(self.path / "README.txt", README.encode())
        content = {"format": FORMAT, "version": __version__, "asked": asked}
        write_file(
            self.path / "config.json", to_json({**content, "plan": plan.model_dump(mode="json")})
        )
        return plan

    def read_result(self) -> dict[str, Any]:
        path = self.path / "result.json"
        return read_result(self.path) if path.exists() else {"steps": [], "complete": False}

    def write_result(self, result: dict[str, Any]) -> None:
        write_file(self.path / "result.json", to_json(result))

    def save_step(self, learner: Learner, number: int) -> None:
        """Everything the next step starts from."""
        write_folder(
            self.checkpoints / f"step-{number}",
            {
                "model.json": to_json({"format": FORMAT, **learner.model.description()}),
                "weights.safetensors": tensors_to_bytes(learner.model.tensors()),
                "memory.parquet": table_to_bytes(learner.memory.to_table()),
            },
        )
        self._keep_only({f"step-{number}"})

    def load_step(self, learner: Learner) -> int:
        """Put the learner back to after the last step that was finished, and say which."""
        done = [int(name[5:]) for name in self._names() if re.fullmatch(r"step-\d+", name)]
        if (self.path / "model").exists():
            folder = self.path / "model"
        elif done:
            folder = self.checkpoints / f"step-{max(done)}"
        else:
            return 0
        files = read_folder(folder)
        model = load_model_files(files)
        learner.restore(model, bytes_to_table(files["memory.parquet"]))
        return len(model.heads)

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """What training inside a step goes on from."""
        phase = checkpoint.phase.replace(" ", "-")
        name = f"step-{checkpoint.step}-{phase}-epoch-{checkpoint.epoch}"
        position = {
            "step": checkpoint.step,
            "phase": checkpoint.phase,
            "epoch": checkpoint.epoch,
            "seconds": checkpoint.seconds,
        }
        write_folder(
            self.checkpoints / name,
            {
                "position.json": to_json(position),
                "training.safetensors": tensors_to_bytes(checkpoint.tensors),
            },
        )
        self._keep_only({name, f"step-{checkpoint.step - 1}"})

    def load_checkpoint(self, step: int) -> Checkpoint | None:
        """The furthest position inside a step, if there is one."""
        found = []
        for name in self._names():
            if name.startswith(f"step-{step}-"):
                files = read_folder(self.checkpoints / name)
                position = json.loads(files["position.json"])
                tensors = bytes_to_tensors(files["training.safetensors"])
                found.append(Checkpoint(tensors=tensors, **position))
        # "stage 1" comes before "balanced fine-tuning", which restarts its count of epochs.
        return max(found, key=lambda one: (one.phase != "stage 1", one.epoch), default=None)

    def finish(self, number: int) -> None:
        """The last step's state becomes the model, in one instant."""
        if not (self.path / "model").exists():
            os.replace(self.checkpoints / f"step-{number}", self.path / "model")
        shutil.rmtree(self.checkpoints, ignore_errors=True)

    def _names(self) -> list[str]:
        return sorted(path.name for path in self.checkpoints.glob("step-*"))

    def _keep_only(self, names: set[str]) -> None:
        for name in set(self._names()) - names:
            shutil.rmtree(self.checkpoints / name)


def load_model(folder: Path | str) -> Model:
    """The model of a run (`RUN/model`, or `RUN` itself), ready to predict."""
    folder = Path(folder)
    inside = folder / "model"
    return load_model_files(read_folder(inside if inside.is_dir() else folder))


def load_model_files(files: Mapping[str, bytes]) -> Model:
    return Model.load(
        {k: v for k, v in json.loads(files["model.json"]).items() if k != "format"},
        bytes_to_tensors(files["weights.safetensors"]),
    )


def read_config(folder: Path) -> dict[str, Any]:
    """The content of a run's `config.json`; refuses what a newer version wrote."""
    recorded = _read_json(folder, "config.json")
    if int(recorded.get("format", 0)) > FORMAT:
        raise UserError(
            f"{folder} was made by a newer version of bic ({recorded.get('version')}); "
            "upgrade bic or choose another folder"
        )
    return recorded


def read_result(folder: Path) -> dict[str, Any]:
    """The content of a run's `result.json`."""
    return _read_json(folder, "result.json")


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    try:
        content = json.loads((folder / name).read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(
            f"{folder} has no readable {name}; give a folder that bic run has made"
        ) from error
    if not isinstance(content, dict):
        raise UserError(f"{folder / name} is not a record of a run; give another folder")
    return content


def _differences(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> list[tuple[str, Any, Any]]:
    """Name, old and new value of every setting that differs."""
    found = []
    for name in {**old, **new}:
        was, now = old.get(name), new.get(name)
        if isinstance(was, dict) and isinstance(now, dict):
            found += _differences(was, now, f"{prefix}{name}.")
        elif was != now:
            found.append((prefix + name, was, now))
    return found
