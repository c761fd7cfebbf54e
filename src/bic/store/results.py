"""What runs have recorded, read back as typed objects. Imports no torch, to start fast."""

import hashlib
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bic import files
from bic.class_names import name_problem
from bic.errors import UserError
from bic.foreign_files import read_json_file, read_regular_file
from bic.learn.moved import upgraded
from bic.npz import read_npz
from bic.text import is_printable

FORMAT = 1  # of a run folder; a newer version of bic writes a higher number
GIVE_A_RUN = "give a folder that bic run has written"
GIVE_A_WHOLE_RUN = f"{GIVE_A_RUN} and that is not damaged"
CHECKSUM = "checksum"  # the last key of result.json
COLUMNS = ("true", "predicted", "predicted_uncorrected", "confidence", "confidence_uncorrected")
ROUNDING = 1e-5  # of probabilities in 32 bits
DAMAGED_ARRAYS = (OSError, ValueError, TypeError, KeyError, EOFError, RuntimeError)
DAMAGED_ARCHIVES = (zipfile.BadZipFile, zlib.error, NotImplementedError)

Predictions = dict[str, Any]  # the arrays of predictions-N.npz, by name


class Record(BaseModel):
    """Recorded data. Unknown fields are ignored: a newer version may have added them."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class Histogram(Record):
    start: float
    width: float
    counts: list[int]


class BlendResult(Record):
    """The weights of an answer that also uses class means: a, α, β and γ."""

    head: float
    alpha: float
    beta: float
    means: float


class StepResult(Record):
    """One step of `result.json`. docs/reference/result-format.md says what each figure means."""

    step: int
    seen: int
    top1_per_group: list[float | None]  # None: the step brought no class
    top1: float
    top5: float | None = None
    top1_uncorrected: float
    share_on_new: float
    share_on_new_uncorrected: float
    true_share_of_new: float
    score_histograms: dict[str, Histogram | None] = {}
    head_norms_per_group: list[list[float]] = []  # minimum, quartiles and maximum
    head_norms: list[float] = Field([], exclude=True)  # of each class, in runs before 0.2
    alpha: float | None = None
    beta: float | None = None
    blend: BlendResult | None = None  # only for methods that also use class means
    forgetting: float | None = None
    num_train: int = 0
    num_held_out: int = 0
    num_exemplars: int = 0
    seconds: dict[str, float] = {}
    predictions_checksum: str | None = None  # missing in older runs

    def content(self) -> dict[str, Any]:
        """The step's part of `result.json`. Most methods have no blend, and then it is left out."""
        return self.model_dump(mode="json", exclude={"blend"} if self.blend is None else None)


class Result(Record):
    """The content of `result.json`: one run, complete or unfinished."""

    method: str
    dataset: str
    seed: int
    config: dict[str, Any]  # all settings of the run: Protocol and Learning
    complete: bool
    classes: list[str]  # in the order in which they were learned
    made_with: dict[str, Any] = {}
    steps: list[StepResult] = Field(min_length=1)
    # Whether the file has no checksum, as those of earlier versions.
    is_unchecked: bool = Field(False, exclude=True)

    @property
    def top1(self) -> list[float]:
        """Accuracy on all classes seen, after each step, in percent."""
        return [step.top1 for step in self.steps]

    @property
    def final_top1(self) -> float:
        return self.top1[-1]

    @property
    def average_top1(self) -> float:
        return sum(self.top1) / len(self.top1)

    @property
    def average_incremental_top1(self) -> float | None:
        """The average without the first step."""
        later = self.top1[1:]
        return sum(later) / len(later) if later else None

    def content(self) -> dict[str, Any]:
        """The content of `result.json`."""
        content = {
            "method": self.method,
            "dataset": self.dataset,
            "seed": self.seed,
            "config": self.config,
            "complete": self.complete,
            "final_top1": self.final_top1,
            "average_top1": self.average_top1,
            "average_incremental_top1": self.average_incremental_top1,
            "classes": self.classes,
            "made_with": self.made_with,
            "steps": [step.content() for step in self.steps],
        }
        return {**content, CHECKSUM: checksum_of(content)}


def checksum_of(content: dict[str, Any]) -> str:
    """The checksum of a result without its checksum. Spaces and line breaks do not matter."""
    return hashlib.sha256(files.to_json(content)).hexdigest()


def read_config(folder: Path) -> dict[str, Any]:
    """The content of a run's `config.json`. Refuses a run of a newer version of bic.

    Settings that an earlier version recorded are moved to their present place.
    """
    recorded = read_json(folder, "config.json", "format")
    if not isinstance(recorded["format"], int) or recorded["format"] > FORMAT:
        version = recorded.get("version", "unknown")
        raise UserError(
            f"{folder} was written by a newer version of bic ({version})", "upgrade bic"
        )
    for part in ("asked", "plan"):
        if not isinstance(recorded.get(part), dict):
            raise UserError(f"{folder} has no readable config.json", GIVE_A_WHOLE_RUN)
        recorded[part] = upgraded(recorded[part])
    return recorded


def read_result(folder: Path | str) -> Result:
    """The content of a run's `result.json`."""
    folder = Path(folder)
    if (folder / "config.json").exists() and not (folder / "result.json").exists():
        raise UserError(
            f"{folder} has not finished its first step", "continue it with the same bic run command"
        )
    content = read_json(folder, "result.json", "steps", "complete")
    if not content["steps"]:
        raise UserError(f"{folder} has a result.json without any step", GIVE_A_WHOLE_RUN)
    return parse_result(content, folder / "result.json")


def parse_result(content: dict[str, Any], path: Path) -> Result:
    """A result from the content of the file at `path`.

    Raises UserError if it is damaged, or was changed after bic wrote it.
    """
    content = dict(content)
    recorded = content.pop(CHECKSUM, None)
    content["is_unchecked"] = recorded is None
    try:
        result = Result.model_validate(content)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"]))
        raise UserError(
            f"{path} is damaged or not a result ({place}: {problem['msg']})", "run it again"
        ) from error
    del content["is_unchecked"]
    if recorded is not None and recorded != checksum_of(content):
        raise UserError(f"{path} was changed after bic wrote it", "restore it, or run it again")
    names = name_problem(result.classes)
    if names is not None or not is_printable(result.method + result.dataset):
        reason = names or "the name of its method or data set is not printable"
        raise UserError(f"{path} is damaged or not a result ({reason})", "run it again")
    return result.model_copy(update={"config": upgraded(result.config)})


def predictions_file(folder: Path, step: int) -> Path:
    return folder / f"predictions-{step}.npz"


def check_predictions(folder: Path, step: StepResult) -> None:
    """Raise UserError if the file of a step's predictions is there, but damaged."""
    path = predictions_file(folder, step.step)
    if path.exists() or path.is_symlink():
        read_predictions(folder, step)


def read_predictions(folder: Path, step: StepResult) -> Predictions:
    """The predictions of a step. Raises UserError if they are missing or damaged."""
    path = predictions_file(folder, step.step)
    try:
        if step.predictions_checksum is not None:
            content = read_regular_file(path)
            if hashlib.sha256(content).hexdigest() != step.predictions_checksum:
                raise ValueError("its checksum differs")
        predictions = read_npz(path, COLUMNS)
        shapes = {column.shape for column in predictions.values()}
        if len(shapes) != 1 or shapes == {(0,)} or predictions["true"].ndim != 1:
            raise ValueError("its columns are empty or differ in length")
        classes = np.concatenate([predictions[name] for name in COLUMNS[:3]])
        if classes.dtype.kind not in "iu" or classes.min() < 0 or classes.max() >= step.seen:
            raise ValueError("it names classes that were not learned")
        for confidences in (predictions[name] for name in COLUMNS[3:]):
            is_number = confidences.dtype.kind == "f"
            if not is_number or not 0 <= confidences.min() <= confidences.max() <= 1 + ROUNDING:
                raise ValueError("its confidences are not numbers from 0 to 1")
    except (*DAMAGED_ARRAYS, *DAMAGED_ARCHIVES) as error:
        raise UserError(
            f"{path} is missing or damaged ({error})",
            "restore it from a copy, or delete it to continue without it",
        ) from error
    return predictions


def read_json(folder: Path, name: str, *keys: str) -> dict[str, Any]:
    """A JSON object that has at least these keys."""
    if not folder.exists():
        raise UserError(f"{folder} does not exist", GIVE_A_RUN)
    try:
        content = read_json_file(folder / name)
        return {**content, **{key: content[key] for key in keys}}
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise UserError(f"{folder} has no readable {name}", GIVE_A_WHOLE_RUN) from error
