"""Recorded runs, found and read with suspicion: what is damaged is named and the rest still shown."""

import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bic.config import Plan
from bic.errors import UserError
from bic.recorded import read_config, read_json, read_result
from bic.report.measures import Ints

COLUMNS = ("true", "predicted", "predicted_uncorrected", "confidence", "confidence_uncorrected")
Answers = dict[str, Any]  # the arrays of predictions-N.npz


class Record(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)


class Histogram(Record):
    start: float
    width: float
    counts: list[int]


class StepRecord(Record):
    """One step of `result.json`; docs/result-format.md says what each figure means."""

    step: int
    seen: int
    top1: float
    top5: float | None = None
    top1_uncorrected: float
    top1_per_group: list[float]
    alpha: float | None = None
    beta: float | None = None
    share_on_new: float
    share_on_new_uncorrected: float
    true_share_of_new: float
    forgetting: float | None = None
    num_train: int = 0
    num_held_out: int = 0
    num_exemplars: int = 0
    score_histograms: dict[str, Histogram | None] = {}
    head_norms_per_group: list[list[float]] = []  # five numbers each
    head_norms: list[float] = []  # of each class, as runs recorded before 0.2 have them
    seconds: dict[str, float] = {}


class Result(Record):
    """The content of `result.json`."""

    method: str
    dataset: str
    seed: int
    config: dict[str, Any]
    complete: bool
    classes: list[str]
    steps: list[StepRecord] = Field(min_length=1)
    made_with: dict[str, Any] = {}


@dataclass(frozen=True)
class Run:
    """One run: a run folder, or the result of one alone, without its predictions and model."""

    path: Path
    result: Result
    plan: dict[str, Any]
    asked: dict[str, Any] | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def last(self) -> StepRecord:
        return self.result.steps[-1]

    @property
    def seen(self) -> list[int]:
        return [step.seen for step in self.result.steps]

    @property
    def edges(self) -> Ints:
        """The class numbers at which the groups begin, and the number of classes."""
        return np.array([0, *self.seen])

    @property
    def seconds(self) -> dict[str, float]:
        """Time by phase over all steps."""
        phases = list(dict.fromkeys(phase for step in self.result.steps for phase in step.seconds))
        return {phase: sum(step.seconds.get(phase, 0.0) for step in self.result.steps) for phase in phases}

    def memory(self) -> Path | None:
        """The file of the exemplars: the final model's, or an unfinished run's newest."""
        kept = sorted(self.path.glob("checkpoint/step-*/memory.parquet"), key=lambda file: file.stat().st_mtime)
        return next((file for file in (self.path / "model/memory.parquet", *reversed(kept)) if file.is_file()), None)

    def answers(self) -> list[Answers] | None:
        """The predictions of every step, or None if they are missing; damage is added to the problems."""
        files = [self.path / f"predictions-{step.step}.npz" for step in self.result.steps]
        if not all(file.is_file() for file in files):
            if self.path.is_dir():
                missing = next(file.name for file in files if not file.is_file())
                self.problems.append(f"{missing} is missing, so confusions, classes and calibration are not shown")
            return None
        try:
            return [_read_answers(file, seen) for file, seen in zip(files, self.seen, strict=True)]
        except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
            self.problems.append("its predictions are damaged, so confusions, classes and calibration are not shown")
            return None


def find(places: Iterable[Path]) -> list[Path]:
    """Every run folder and result file at or below these places, each once."""
    found: dict[Path, Path] = {}
    for place in places:
        if not place.exists():
            raise UserError(
                f"{place} does not exist; give a folder that bic run has made, or one that holds such folders"
            )
        for path in [place] if _is_run(place) or place.is_file() else _below(place):
            found.setdefault(path.resolve(), path)
    if not found:
        raise UserError("no run was found there; give a folder that bic run has made, or one that holds such folders")
    return list(found.values())


def load(path: Path) -> Run:
    """One run; UserError, in one sentence, if it cannot be shown."""
    if (path / "result.json").is_file() and not (path / "config.json").exists():
        path /= "result.json"  # alone
    if path.is_dir():
        asked = read_config(path)["asked"]
        content = read_result(path)
    else:
        content, asked = read_json(path.parent, path.name), None
    try:
        result = Result.model_validate(content)
        plan = Plan.model_validate(result.config).model_dump(mode="json")
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"]))
        raise UserError(f"{path} is damaged or not a run ({place}: {problem['msg']}); run it again") from error
    if message := _contradiction(result):
        raise UserError(f"{path} is damaged ({message}); run it again")
    run = Run(path, result, plan, asked)
    if not result.complete:
        done, planned = len(result.steps), len(plan["step_sizes"])
        run.problems.append(f"unfinished: {done} of {planned} steps; the same bic run goes on with it")
    return run


def _is_run(place: Path) -> bool:
    return (place / "config.json").is_file() or (place / "result.json").is_file()


def _below(place: Path) -> Iterator[Path]:
    """Runs below a folder; nothing inside a run is looked at."""
    for folder, children, files in os.walk(place):
        here = Path(folder)
        if _is_run(here):
            children.clear()
            yield here
            continue
        children[:] = sorted(child for child in children if not child.startswith("."))
        for name in sorted(files):
            if name.endswith(".json") and _looks_like_a_result(here, name):
                yield here / name


def _looks_like_a_result(folder: Path, name: str) -> bool:
    try:
        read_json(folder, name, "method", "steps", "complete")
    except UserError:
        return False
    return True


def _contradiction(result: Result) -> str | None:
    """What in a result cannot be, if anything."""
    seen = [step.seen for step in result.steps]
    if [step.step for step in result.steps] != list(range(1, len(seen) + 1)):
        return "its steps are not counted from 1"
    if seen[0] < 1 or any(np.diff(seen) < 1) or len(result.classes) != seen[-1]:
        return "its class names and its steps disagree"
    if any(len(step.top1_per_group) != step.step for step in result.steps):
        return "its groups and its steps disagree"
    norms = [(len(step.head_norms_per_group), step.step) for step in result.steps]
    norms += [(len(step.head_norms), step.seen) for step in result.steps]
    if any(count not in (0, wanted) for count, wanted in norms):
        return "its head and its classes disagree"
    return None


def _read_answers(file: Path, seen: int) -> Answers:
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as content:
        answers = {name: content[name] for name in COLUMNS}
    classes = np.concatenate([answers[name] for name in COLUMNS[:3]])
    if len({len(column) for column in answers.values()}) != 1 or not len(classes):
        raise ValueError("columns differ in length")
    if classes.dtype.kind not in "iu" or classes.min() < 0 or classes.max() >= seen:
        raise ValueError("no such class")
    return answers
