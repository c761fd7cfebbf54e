"""`bic paper`: the runs of one of the paper's experiments, each done once, and what they would cost."""

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from bic.config import RunConfig, checked
from bic.cost import fresh_network, images_trained_on, seconds_per_image, with_teacher
from bic.data import Dataset
from bic.data.encoded import DEFAULT_SIZE
from bic.errors import UserError, unknown
from bic.experiments import EXPERIMENTS, Experiment, Line, experiment
from bic.progress import Progress, clock
from bic.protocol import open_for, run, set_threads
from bic.recipes import PROTOCOLS, find_method, find_recipe
from bic.record import to_json, write_file
from bic.recorded import read_result
from bic.report.paper import draw, markdown

OWN_RECIPES = {"digits": "demo", "cifar100": "paper-cifar100"}  # of the other data sets: paper-imagenet
SHAPES = {"digits": (10, 144, 8), "cifar100": (100, 500, 32)}  # classes, training images of each, and their side
SHAPES |= {"imagenet100": (100, 1281, 224), "imagenet1000": (1000, 1281, 224), "celeb10000": (10_000, 49, 224)}


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
    def folder(self) -> str:
        """A name that two lines share if, and only if, their runs are the same."""
        rest = {name: value for name, value in self.line.settings.items() if name not in ("dataset", "steps", "method")}
        changes = "".join(f"-{name}-{_short(value)}" for name, value in sorted(rest.items()))
        steps, method = self.line.settings["steps"], self.line.settings["method"]
        return f"{self.dataset}-{steps}steps-{method}-{self.recipe}{changes.replace('_', '-')}-seed{self.seed}"

    def config(self, dataset: Dataset | None = None) -> RunConfig:
        settings = {**self.line.settings, "recipe": self.recipe, "seed": self.seed}
        if (count := settings.pop("first_classes", None)) is not None and dataset is not None:
            settings["classes"] = dataset.classes[:count]
        return checked(RunConfig, settings)

    def done(self, out: Path) -> Mapping[str, Any] | None:
        """Its result, if the run is complete. UserError for a folder of this name with something else in it."""
        folder = out / self.folder
        if not (folder / "result.json").exists():
            return None
        try:
            result = read_result(folder)
        except UserError as error:
            raise UserError(f"{folder}/result.json is damaged; delete {folder} to have it run again") from error
        if not result["complete"]:
            return None
        wanted, recorded = self._settings(), _recorded_settings(result.get("config", {}))
        if strange := [name for name in wanted if recorded.get(name) != wanted[name]]:
            named = "; ".join(f"{name} is {recorded.get(name)}, not {wanted[name]}" for name in strange)
            raise UserError(f"{folder} is a run of another configuration ({named}); move it away, or change --out")
        return result

    def _settings(self) -> dict[str, Any]:
        """What a run of this job must have recorded."""
        settings, (_, images, held_out) = self.line.settings, PROTOCOLS[self.dataset]
        usual = {"held_out": held_out, "exemplars": "herding", "first_classes": None, **settings}
        memory = settings.get("memory", {}).get("images", images)
        return {**usual, "memory": memory, "recipe": self.recipe, "seed": self.seed}

    def seconds(self) -> float:
        """What it would take here, by the time of a few updates: an estimate to a factor of about 1.5."""
        known, per_class, side = SHAPES[self.dataset]
        settings, num_classes = self.line.settings, int(self.line.settings.get("first_classes", known))
        method, recipe = find_method(settings["method"]), find_recipe(self.config(), num_classes=num_classes)
        exemplars = settings.get("memory", {}).get("images", PROTOCOLS[self.dataset][1])
        counts = {"num_images": num_classes * per_class, "num_exemplars": exemplars, "num_steps": settings["steps"]}
        side = recipe.image_size or min(side, DEFAULT_SIZE)
        images = images_trained_on(recipe, method, **counts)
        return images * with_teacher(method) * _seconds_per_image(recipe.backbone, side)


def _recorded_settings(plan: Mapping[str, Any]) -> dict[str, Any]:
    """A recorded plan in the words of an experiment's lines."""
    kept = {name: plan.get(name) for name in ("dataset", "method", "held_out", "exemplars", "seed")}
    classes = plan.get("classes")
    return {
        **kept,
        "steps": len(plan.get("step_sizes", ())),
        "memory": plan.get("memory", {}).get("images"),
        "recipe": plan.get("recipe", {}).get("name"),
        "first_classes": None if classes is None else len(classes),
    }


def _short(value: Any) -> str:
    return "-".join(f"{key}{part}" for key, part in value.items()) if isinstance(value, Mapping) else str(value)


@cache
def _seconds_per_image(backbone: str, side: int) -> float:
    images = torch.randint(0, 256, (64 if side <= 64 else 16, 3, side, side), dtype=torch.uint8)
    return seconds_per_image(fresh_network(backbone, channels=3, image_size=side, num_classes=20), images)


def jobs_of(line: Line, recipe: str | None, seeds: Sequence[int]) -> list[Job]:
    """A line's runs; without a recipe, by the paper's for its data."""
    name = recipe or OWN_RECIPES.get(str(line.settings["dataset"]), "paper-imagenet")
    return [Job(line, name, seed) for seed in seeds]


def jobs(found: Experiment, recipe: str | None, seeds: Sequence[int]) -> list[Job]:
    """The runs of an experiment; those that several lines share come once."""
    every = [job for line in found.lines() for job in jobs_of(line, recipe, seeds)]
    return list({job.folder: job for job in every}.values())


def overview(out: Path, recipe: str | None, seeds: int = 1) -> Iterator[tuple[Experiment, int, int, float]]:
    """Each experiment with its number of runs, how many are done, and the seconds that the others would take here."""
    for name in EXPERIMENTS:
        found = find(name, recipe)
        every = jobs(found, recipe, range(seeds))
        missing = [job for job in every if job.done(out) is None]
        yield found, len(every), len(every) - len(missing), sum(job.seconds() for job in missing)


def find(name: str, recipe: str | None) -> Experiment:
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    return experiment(name, recipe or "paper")


def run_experiment(
    name: str,
    out: Path,
    *,
    recipe: str | None = None,
    seeds: int = 1,
    data: Sequence[str] = (),
    threads: int | None = None,
    progress: Progress,
) -> dict[str, Any]:
    """Do what is missing of an experiment's runs, and write its tables and figures to `out/NAME[-RECIPE]`."""
    if seeds < 1:
        raise UserError(f"--seeds must be 1 or more, got {seeds}")
    found = find(name, recipe)
    folder = experiment_folder(out, name, recipe)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write to {folder} ({error.strerror}); choose another --out") from error
    set_threads(threads)
    every = jobs(found, recipe, range(seeds))
    sources = _sources(data, {job.dataset for job in every})
    missing = [job for job in every if job.done(out) is None]
    opened: dict[tuple[str, int | None], Dataset] = {}
    for job in missing:  # so that missing data is known before any training
        _open(job, sources, opened, progress)
    expected = sum(job.seconds() for job in missing)
    progress.say(f"{name}: {len(every)} runs, {len(every) - len(missing)} of them done, in {out}")
    if missing:
        progress.say(f"about {clock(expected)} of training ahead, by the time of a few updates; it can be interrupted")
    began, spent = time.monotonic(), 0.0
    for number, job in enumerate(missing, start=1):
        progress.say(f"run {number}/{len(missing)}: {job.folder}")
        dataset = _open(job, sources, opened, progress)
        run(job.config(dataset), out / job.folder, data=dataset, progress=progress, threads=threads)
        spent += job.seconds()
        if number < len(missing):
            left = (time.monotonic() - began) * (expected / spent - 1)
            progress.say(f"{number} of {len(missing)} runs done, about {clock(left)} left")
    content = gather(found, out, recipe, range(seeds))
    write_file(folder / f"{name}.json", to_json(content))
    write_file(folder / f"{name}.md", markdown(content).encode())
    draw(content, folder, out)
    return content


def experiment_folder(out: Path, name: str, recipe: str | None) -> Path:
    """Where an experiment's tables and figures go."""
    return out / (name if recipe is None else f"{name}-{recipe}")


def _open(
    job: Job, sources: Mapping[str, Path], opened: dict[tuple[str, int | None], Dataset], progress: Progress
) -> Dataset:
    """The job's data, opened once for all jobs that need it."""
    whole, part = (job.dataset, None), (job.dataset, job.line.settings.get("first_classes"))
    for key in (whole, part):
        if key not in opened:
            config = job.config(opened.get(whole) if key == part else None)
            opened[key] = open_for(config, sources.get(job.dataset), progress)
    return opened[part]


def _sources(data: Sequence[str], datasets: set[str]) -> dict[str, Path]:
    """Where each data set lies: `PATH` for all of them, or `NAME=PATH` for one."""
    sources = {}
    for each in data:
        name, equals, path = each.partition("=")
        if equals and name in datasets:
            sources[name] = Path(path)
        elif equals and not Path(each).exists():
            needed = " or ".join(f"{one}=PATH" for one in sorted(datasets))
            raise UserError(f"--data {each} names nothing that is needed here; pass --data {needed}")
        else:
            sources |= {one: Path(each) for one in datasets if one not in sources}
    return sources


def gather(found: Experiment, out: Path, recipe: str | None, seeds: Sequence[int]) -> dict[str, Any]:
    """The experiment's content: ours beside the paper's, from recorded runs alone. Lines without any are left out."""
    panels = []
    for panel in found.panels:
        every = [(line, [(job, job.done(out)) for job in jobs_of(line, recipe, seeds)]) for line in panel.lines]
        done = [(line, [(job, result) for job, result in own if result is not None]) for line, own in every]
        lines = [_line(line, panel.metric, own) for line, own in done if own]
        told = any(not line["bound"] for line in lines)  # an upper bound alone says nothing
        panels += [{"title": panel.title, "metric": panel.metric, "lines": lines}] if told else []
    return {
        "name": found.name, "title": found.title, "claim": found.claim, "note": found.note, "recipe": recipe,
        "confusions": list(found.confusions), "degradation": dict(found.degradation), "panels": panels,
    }  # fmt: skip


def _line(line: Line, metric: str, own: Sequence[tuple[Job, Mapping[str, Any]]]) -> dict[str, Any]:
    """A line's figures: mean and spread over seeds after each step."""
    results = [result for _, result in own]
    steps = results[0]["steps"]
    columns = [[result["steps"][number][metric] for result in results] for number in range(len(steps))]
    return {
        "name": line.name, "method": line.settings["method"], "bound": line.bound, "paper": list(line.paper),
        "seeds": [job.seed for job, _ in own], "runs": [job.folder for job, _ in own],
        "seen": [step["seen"] for step in steps],
        "mean": [statistics.mean(column) for column in columns],
        "spread": [statistics.stdev(column) if len(column) > 1 else None for column in columns],
        "minutes": sum(sum(step["seconds"].values()) for result in results for step in result["steps"]) / 60,
    }  # fmt: skip
