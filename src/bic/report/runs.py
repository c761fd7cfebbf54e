"""Recorded runs, found on disk and checked. A damaged run is named; the others are still shown."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bic.errors import UserError
from bic.report.measures import Ints
from bic.report.plans import Settings, plan_of
from bic.store.results import (
    Predictions,
    Result,
    StepResult,
    parse_result,
    predictions_file,
    read_config,
    read_json,
    read_predictions,
    read_result,
)

GIVE_RUNS = "give a folder that bic run has written, or a folder of such folders"


@dataclass(frozen=True)
class Run:
    """One run: a run folder, or only its result, without predictions and model."""

    path: Path
    result: Result
    plan: Settings  # all settings, filled in
    asked: dict[str, Any] | None = None  # the settings that the user gave, where they are recorded
    problems: list[str] = field(default_factory=list)

    @property
    def last(self) -> StepResult:
        return self.result.steps[-1]

    @property
    def seen(self) -> list[int]:
        """The number of classes seen after each step."""
        return [step.seen for step in self.result.steps]

    @property
    def edges(self) -> Ints:
        """The class number at which each step's classes begin, and the number of classes."""
        return np.array([0, *self.seen])

    @property
    def seconds(self) -> dict[str, float]:
        """The time of each phase, over all steps."""
        total: dict[str, float] = {}
        for step in self.result.steps:
            for phase, seconds in step.seconds.items():
                total[phase] = total.get(phase, 0.0) + seconds
        return total

    def memory_file(self) -> Path | None:
        """The file of the exemplars: the final model's, or the newest of an unfinished run."""
        final = self.path / "model/memory.parquet"
        if final.is_file():
            return final
        kept = [
            file for file in self.path.glob("checkpoint/step-*/memory.parquet") if file.is_file()
        ]
        return max(kept, key=lambda file: file.stat().st_mtime, default=None)

    def predictions(self) -> list[Predictions] | None:
        """The predictions of every step; None if they are missing or damaged.

        What is missing or damaged is added to `problems`.
        """
        left_out = "so confusions, classes and calibration are not shown"
        files = [predictions_file(self.path, step.step) for step in self.result.steps]
        missing = [file.name for file in files if not file.is_file()]
        if missing:
            if self.path.is_dir():
                self.problems.append(f"{missing[0]} is missing, {left_out}")
            return None
        try:
            return [read_predictions(self.path, step) for step in self.result.steps]
        except UserError:
            self.problems.append(f"its predictions are damaged, {left_out}")
            return None


def find(places: Iterable[Path]) -> list[Path]:
    """Every run folder and result file at or below these places, each once."""
    paths: dict[Path, Path] = {}
    for place in places:
        if not place.exists():
            raise UserError(f"{place} does not exist", GIVE_RUNS)
        is_run = _is_run(place) or place.is_file()
        for path in [place] if is_run else _below(place):
            paths.setdefault(path.resolve(), path)
    if not paths:
        raise UserError("no run was found there", GIVE_RUNS)
    return list(paths.values())


def load(path: Path) -> Run:
    """One run. Raises UserError if it cannot be shown."""
    if (path / "result.json").is_file() and not (path / "config.json").exists():
        path /= "result.json"  # only the result
    asked = None
    if path.is_dir():
        asked = read_config(path)["asked"]
        result = read_result(path)
    else:
        result = parse_result(read_json(path.parent, path.name), path)
    try:
        plan = plan_of(result.config)
    except UserError as error:
        raise UserError(
            f"{path} is damaged or not a run ({error.problem})", "run it again"
        ) from error
    contradiction = _contradiction(result)
    if contradiction is not None:
        raise UserError(f"{path} is damaged ({contradiction})", "run it again")
    run = Run(path, result, plan, asked)
    if not result.complete:
        progress = f"{len(result.steps)} of {len(plan['step_sizes'])} steps"
        run.problems.append(f"unfinished: {progress}; the same bic run command continues it")
    return run


def _is_run(place: Path) -> bool:
    return (place / "config.json").is_file() or (place / "result.json").is_file()


def _below(place: Path) -> Iterator[Path]:
    """Runs below a folder. The folders inside a run are skipped."""
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
    """The first thing in a result that cannot be true, if there is one."""
    seen = [step.seen for step in result.steps]
    if [step.step for step in result.steps] != list(range(1, len(seen) + 1)):
        return "its steps are not counted from 1"
    if seen[0] < 1 or any(np.diff(seen) < 0) or len(result.classes) != seen[-1]:
        return "its class names and its steps disagree"
    for step in result.steps:
        if len(step.top1_per_group) != step.step:
            return "its groups and its steps disagree"
        if len(step.head_norms_per_group) not in (0, step.step):
            return "its head and its classes disagree"
        if len(step.head_norms) not in (0, step.seen):
            return "its head and its classes disagree"
    return None
