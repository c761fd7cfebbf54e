"""The paper's experiments: make the missing runs, each once, and estimate their cost."""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from bic.compute.cost import seconds_per_image
from bic.data.images import Dataset
from bic.data.preprocessing import DEFAULT_SIZE
from bic.errors import UserError
from bic.files import to_json, write_file
from bic.lab.experiment_runs import Job, find_experiment, gather, jobs
from bic.lab.experiments import EXPERIMENTS, Experiment
from bic.lab.plan import learning_for
from bic.lab.run import run, set_threads
from bic.lab.run_data import open_for
from bic.learn.effort import images_trained_on, update_cost
from bic.learn.methods import find_method
from bic.model.network import fresh_network
from bic.progress import Progress, clock


class Shape(NamedTuple):
    """The size of a data set, for the estimate of its cost."""

    num_classes: int
    images_per_class: int  # training images
    image_size: int


SHAPES = {
    "digits": Shape(10, 144, 8),
    "cifar100": Shape(100, 500, 32),
    "imagenet100": Shape(100, 1281, 224),
    "imagenet1000": Shape(1000, 1281, 224),
    "celeb10000": Shape(10_000, 49, 224),
}


def estimated_seconds(job: Job) -> float:
    """How long a run takes here, estimated from a few updates, within a factor of about 1.5."""
    shape = SHAPES[job.dataset]
    num_classes = int(job.line.settings.get("first_classes", shape.num_classes))
    method = find_method(job.line.method)
    recipe = learning_for(job.config(), num_classes=num_classes).recipe
    num_images = images_trained_on(
        recipe,
        method,
        num_images=num_classes * shape.images_per_class,
        num_exemplars=job.memory,
        num_steps=job.line.settings["steps"],
    )
    image_size = recipe.image_size or min(shape.image_size, DEFAULT_SIZE)
    return num_images * update_cost(method) * _seconds_per_image(recipe.backbone, image_size)


@cache
def _seconds_per_image(backbone: str, image_size: int) -> float:
    batch_size = 64 if image_size <= 64 else 16
    images = torch.randint(0, 256, (batch_size, 3, image_size, image_size), dtype=torch.uint8)
    network = fresh_network(backbone, channels=3, image_size=image_size, num_classes=20)
    return seconds_per_image(network, images)


def overview(
    out: Path, recipe: str | None, seeds: int = 1
) -> Iterator[tuple[Experiment, int, int, float]]:
    """Each experiment, its number of runs, how many are done, and the seconds of the others."""
    for name in EXPERIMENTS:
        declared = find_experiment(name, recipe)
        all_jobs = jobs(declared, recipe, range(seeds))
        missing = [job for job in all_jobs if job.result(out) is None]
        num_done = len(all_jobs) - len(missing)
        yield declared, len(all_jobs), num_done, sum(map(estimated_seconds, missing))


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
    """Make the missing runs of an experiment. Returns its content: our results and the paper's.

    Runs go to folders in `out`, the content also to NAME.json in `experiment_folder`. `data` says
    where data sets are: a path for all of them, or `NAME=PATH` for one.
    """
    if seeds < 1:
        raise UserError(f"seeds must be 1 or more, got {seeds}", "raise {seeds}")
    declared = find_experiment(name, recipe)
    folder = experiment_folder(out, name, recipe)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot write to {folder} ({error.strerror})", "choose another {out}"
        ) from error
    set_threads(threads)
    all_jobs = jobs(declared, recipe, range(seeds))
    sources = _sources(data, {job.dataset for job in all_jobs})
    missing = [job for job in all_jobs if job.result(out) is None]
    num_done = len(all_jobs) - len(missing)
    progress.say(f"{name}: {len(all_jobs)} runs, {num_done} of them done, in {out}")
    _do(missing, out, sources, threads, progress)
    content = gather(declared, out, recipe, range(seeds))
    write_file(folder / f"{name}.json", to_json(content))
    return content


def experiment_folder(out: Path, name: str, recipe: str | None) -> Path:
    """Where the content, tables and figures of an experiment go."""
    return out / (name if recipe is None else f"{name}-{recipe}")


def _do(
    missing: Sequence[Job],
    out: Path,
    sources: Mapping[str, Path],
    threads: int | None,
    progress: Progress,
) -> None:
    """Make these runs, and show how long the rest will take."""
    opened: dict[tuple[str, int | None], Dataset] = {}
    for job in missing:  # missing data must be reported before any training
        _open(job, sources, opened, progress)
    expected = [estimated_seconds(job) for job in missing]
    if missing:
        progress.say(
            f"about {clock(sum(expected))} of training, estimated from a few updates; "
            "it can be interrupted and continued"
        )
    start = time.monotonic()
    for number, job in enumerate(missing, start=1):
        progress.say(f"run {number}/{len(missing)}: {job.folder}")
        dataset = _open(job, sources, opened, progress)
        config = job.config(dataset.classes)
        run(config, out / job.folder, data=dataset, progress=progress, threads=threads)
        if number < len(missing):
            share_done = sum(expected[:number]) / sum(expected)
            left = (time.monotonic() - start) * (1 / share_done - 1)
            progress.say(f"{number} of {len(missing)} runs done, about {clock(left)} left")


def _open(
    job: Job,
    sources: Mapping[str, Path],
    opened: dict[tuple[str, int | None], Dataset],
    progress: Progress,
) -> Dataset:
    """The data of a job, opened once for all jobs that need it."""
    whole = (job.dataset, None)
    part = (job.dataset, job.line.settings.get("first_classes"))
    if whole not in opened:
        opened[whole] = open_for(job.config(), sources.get(job.dataset), progress)
    if part not in opened:
        config = job.config(opened[whole].classes)
        opened[part] = open_for(config, sources.get(job.dataset), progress)
    return opened[part]


def _sources(data: Sequence[str], datasets: set[str]) -> dict[str, Path]:
    """Where each data set is: `PATH` holds for all of them, `NAME=PATH` for one."""
    sources: dict[str, Path] = {}
    for text in data:
        name, equals, path = text.partition("=")
        if equals and name in datasets:
            sources[name] = Path(path)
        elif equals and not Path(text).exists():
            needed = " or ".join(f"{{data={dataset}=PATH}}" for dataset in sorted(datasets))
            raise UserError(f"{text} names no data set that is needed here", f"pass {needed}")
        else:
            for dataset in datasets - sources.keys():
                sources[dataset] = Path(text)
    return sources
