"""The runs of an experiment: their settings, their folders, and what they have recorded."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bic.errors import UserError, unknown
from bic.lab.experiments import EXPERIMENTS, Experiment, Line, Panel, experiment
from bic.lab.plan import RunConfig
from bic.lab.protocol import DEFAULTS
from bic.store.results import Result, read_result

# The paper's recipe for a data set; for all others it is paper-imagenet.
PAPERS_RECIPES = {"digits": "demo", "cifar100": "paper-cifar100"}


@dataclass(frozen=True)
class Job:
    """One run of an experiment: a line with a recipe and a seed."""

    line: Line
    recipe: str
    seed: int

    @property
    def dataset(self) -> str:
        return str(self.line.settings["dataset"])

    @property
    def memory(self) -> int:
        """The number of images in the memory."""
        default = DEFAULTS[self.dataset].memory
        return int(self.line.settings.get("memory", {}).get("images", default))

    @property
    def folder(self) -> str:
        """The name of the run folder. Two lines share it if and only if their runs are the same."""
        settings = self.line.settings
        changes = ""
        for name in sorted(settings.keys() - {"dataset", "steps", "method"}):
            changes += f"-{name}-{_short(settings[name])}"
        main = f"{self.dataset}-{settings['steps']}steps-{self.line.method}-{self.recipe}"
        return f"{main}{changes.replace('_', '-')}-seed{self.seed}"

    def config(self, classes: Sequence[str] | None = None) -> RunConfig:
        """The request for this run. `classes` are all class names of the data set, if known."""
        settings = {**self.line.settings, "recipe": self.recipe, "seed": self.seed}
        num_classes = settings.pop("first_classes", None)
        if num_classes is not None and classes is not None:
            settings["classes"] = classes[:num_classes]
        return RunConfig(**settings)

    def result(self, out: Path) -> Result | None:
        """The result, if the run is complete. Raises UserError if the folder holds another run."""
        folder = out / self.folder
        if not (folder / "result.json").exists():
            return None
        try:
            result = read_result(folder)
        except UserError as error:
            raise UserError(
                f"{folder}/result.json is damaged", f"delete {folder} to run it again"
            ) from error
        if not result.complete:
            return None
        recorded = _recorded_settings(result.config)
        differences = [
            f"{name} is {recorded.get(name)}, not {value}"
            for name, value in self._expected_settings().items()
            if recorded.get(name) != value
        ]
        if differences:
            raise UserError(
                f"{folder} is a run of another configuration ({'; '.join(differences)})",
                "move it away, or choose another {out}",
            )
        return result

    def _expected_settings(self) -> dict[str, Any]:
        """What a run of this job must have recorded."""
        return {
            "held_out": DEFAULTS[self.dataset].held_out,
            "exemplars": "herding",
            "first_classes": None,
            **self.line.settings,
            "memory": self.memory,
            "recipe": self.recipe,
            "seed": self.seed,
        }


def _recorded_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Recorded settings under the names that a line of an experiment uses."""
    same_names = ("dataset", "method", "held_out", "exemplars", "seed")
    classes = config.get("classes")
    return {
        **{name: config.get(name) for name in same_names},
        "steps": len(config.get("step_sizes", ())),
        "memory": config.get("memory", {}).get("images"),
        "recipe": config.get("recipe", {}).get("name"),
        "first_classes": None if classes is None else len(classes),
    }


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return "-".join(f"{key}{part}" for key, part in value.items())
    return str(value)


def find_experiment(name: str, recipe: str | None) -> Experiment:
    """The experiment of this name, as it is run with a recipe; None is the paper's recipe."""
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    return experiment(name, recipe or "paper")


def jobs_of(line: Line, recipe: str | None, seeds: Sequence[int]) -> list[Job]:
    """The runs of a line. Without a recipe, they use the paper's for the data set."""
    papers_recipe = PAPERS_RECIPES.get(str(line.settings["dataset"]), "paper-imagenet")
    return [Job(line, recipe or papers_recipe, seed) for seed in seeds]


def jobs(declared: Experiment, recipe: str | None, seeds: Sequence[int]) -> list[Job]:
    """The runs of an experiment. A run that several lines share appears once."""
    by_folder: dict[str, Job] = {}
    for line in declared.lines():
        for job in jobs_of(line, recipe, seeds):
            by_folder[job.folder] = job
    return list(by_folder.values())


def gather(
    declared: Experiment, out: Path, recipe: str | None, seeds: Sequence[int]
) -> dict[str, Any]:
    """The experiment's content, from the runs recorded in `out`: our results and the paper's.

    Lines without a complete run are left out.
    """
    panels = []
    for panel in declared.panels:
        lines = _gathered_lines(panel, out, recipe, seeds)
        if any(not line["bound"] for line in lines):  # an upper bound alone shows nothing
            panels.append({"title": panel.title, "metric": panel.metric, "lines": lines})
    return {
        "name": declared.name,
        "title": declared.title,
        "claim": declared.claim,
        "note": declared.note,
        "recipe": recipe,
        "confusions": list(declared.confusions),
        "degradation": dict(declared.degradation),
        "panels": panels,
    }


def _gathered_lines(
    panel: Panel, out: Path, recipe: str | None, seeds: Sequence[int]
) -> list[dict[str, Any]]:
    lines = []
    for line in panel.lines:
        done: list[Job] = []
        results: list[Result] = []
        for job in jobs_of(line, recipe, seeds):
            result = job.result(out)
            if result is not None:
                done.append(job)
                results.append(result)
        if done:
            lines.append(_gathered_line(line, panel.metric, done, results))
    return lines


def _gathered_line(
    line: Line, metric: str, done: Sequence[Job], results: Sequence[Result]
) -> dict[str, Any]:
    """A line's figures: mean and standard deviation over seeds after each step."""
    per_run = [[getattr(step, metric) for step in result.steps] for result in results]
    per_step = list(zip(*per_run, strict=True))
    seconds = [sum(step.seconds.values()) for result in results for step in result.steps]
    return {
        "name": line.name,
        "method": line.method,
        "bound": line.is_upper_bound,
        "paper": list(line.paper),
        "seeds": [job.seed for job in done],
        "runs": [job.folder for job in done],
        "seen": [step.seen for step in results[0].steps],
        "mean": [statistics.mean(values) for values in per_step],
        "spread": [statistics.stdev(values) if len(values) > 1 else None for values in per_step],
        "minutes": sum(seconds) / 60,
    }
