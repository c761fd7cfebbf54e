"""A protocol from its first step to its last, in a folder from which it can go on."""

import io
import platform
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bic.compiling import worth_compiling
from bic.config import Plan, RunConfig
from bic.data import Dataset, open_dataset
from bic.data.workers import decoding, num_processors, usual_processes
from bic.distributed import first_before_others, gathered_objects, joined, own_device, refuse_differences, world
from bic.errors import UserError
from bic.evaluate import evaluate, forgetting
from bic.learner import Learned, Learner
from bic.model import Model
from bic.precision import quickest_precision
from bic.progress import Progress
from bic.recipes import find_method, find_recipe, make_plan
from bic.record import locked, to_json, write_file
from bic.recorded import read_result
from bic.run_folder import RunFolder
from bic.steps import class_order, plan_steps
from bic.version import __version__

Record = dict[str, Any]  # of a step, or the whole result


def run(
    config: RunConfig,
    out: Path | str | None = None,
    *,
    data: Path | str | Dataset | None = None,
    progress: Progress | None = None,
    threads: int | None = None,
    workers: int | None = None,
    device: str | None = None,
) -> Record:
    """Run one protocol with one method and return its result, the content of `result.json`.

    `out` is the run folder; `data` says where the data set is, or is the data set itself. `workers` prepare batches
    ahead: threads for images in memory, processes for files that are decoded when needed. A run that was interrupted
    goes on; one that is complete is only read. Raises UserError for what a user can mend, such as a configuration that
    cannot work or a folder that holds another run.
    """
    progress = progress or Progress("quiet")
    _check_count("--workers", workers, at_least=0)
    device = own_device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    set_threads(threads)
    try:
        torch.device(device)
    except RuntimeError as error:
        raise UserError(f"--device {device} is unknown; give cpu or cuda, or leave it out") from error
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"cannot use --device {device} here ({error}); leave it out, or mend that") from error
    with joined(device) as team:
        progress = progress if team.first else Progress("quiet")
        dataset = data if isinstance(data, Dataset) else open_for(config, data, progress)
        return _run(config, out, dataset, progress, workers, device)


def set_threads(threads: int | None) -> None:
    """Use so many processor threads; None leaves them as they are."""
    _check_count("--threads", threads, at_least=1)
    torch.set_num_threads(torch.get_num_threads() if threads is None else threads)


def _check_count(flag: str, asked: int | None, *, at_least: int) -> None:
    """Refuse what could not run, or would bring the machine to a halt."""
    num_cpus = num_processors()
    at_most = max(64, 4 * num_cpus)
    if asked is not None and not at_least <= asked <= at_most:
        raise UserError(
            f"{flag} must be from {at_least} to {at_most:,} here, got {asked:,}; {num_cpus:,} would be usual"
        )


def _run(
    config: RunConfig, out: Path | str | None, dataset: Dataset, progress: Progress, workers: int | None, device: str
) -> Record:
    """Run, or go on, in the folder; in each of the processes that share the run."""
    plan = make_plan(config, dataset)
    name = f"{plan.dataset}-{len(plan.step_sizes)}steps-{plan.method}-{plan.recipe.name}-seed{plan.seed}"
    path = Path("runs") / name if out is None else Path(out)
    folder = RunFolder(path)
    if plan.compile and world().size > 1:
        raise UserError("several processes train an uncompiled network; leave out --compile")
    if plan.compile and plan.recipe.precision == "bfloat16":
        raise UserError("a compiled network trains in float32 alone; leave out --compile or recipe.precision")
    versions = f"bic {__version__}, torch {torch.__version__}"
    refuse_differences({"data": dataset.fingerprint, "version": versions, "configuration": plan.model_dump_json()})
    folder.refuse_strangers()
    if config.memory is not None and not find_method(plan.method).keeps_exemplars:
        progress.say(f"--memory has no effect: {plan.method} keeps no exemplars")
    with locked(path):
        plan = _measured(plan, config, folder.plan(), dataset, progress, device)
        plan = first_before_others(partial(folder.agree, config, plan))
        result = read_result(path) if (path / "result.json").exists() else {}
        if result.get("complete"):
            progress.say(f"{path} is complete; nothing to do")
            return result
        threads_ahead, processes = _workers(workers, dataset, device)
        learner = Learner(plan, dataset.train.view, progress=progress, device=device, workers=threads_ahead)
        with decoding(processes):
            return _learn_all(learner, folder, dataset, result.get("steps", []))


def _measured(
    plan: Plan, config: RunConfig, recorded: Plan | None, dataset: Dataset, progress: Progress, device: str
) -> Plan:
    """The plan with what is chosen by its speed here, or was when the run began."""
    if plan.recipe.precision == "quickest":
        known = "float32" if config.compile else None if recorded is None else recorded.recipe.precision
        votes = gathered_objects(known or quickest_precision(plan, dataset, progress, device))
        precision = "bfloat16" if set(votes) == {"bfloat16"} else "float32"
        plan = plan.model_copy(update={"recipe": plan.recipe.model_copy(update={"precision": precision})})
    if config.compile is None and world().size == 1:
        compiles = worth_compiling(plan, dataset, progress, device) if recorded is None else recorded.compile
        plan = plan.model_copy(update={"compile": compiles})
    return plan


def _workers(asked: int | None, dataset: Dataset, device: str) -> tuple[int, int]:
    """Threads that prepare images in memory, and processes that decode files.

    Where all processors train, a thread beside them costs a sixth of the speed, and cropping in line one hundredth.
    """
    if dataset.train.pixels is not None:
        return int(device != "cpu") if asked is None else asked, 0
    return 1, usual_processes(device) if asked is None else asked


def _learn_all(learner: Learner, folder: RunFolder, dataset: Dataset, steps: list[Record]) -> Record:
    """Go through the steps that are not done yet."""
    plan = learner.plan
    order = plan.class_order or class_order(len(dataset.classes), plan.order_seed)
    done = folder.load_step(learner)
    if len(steps) < done:
        raise UserError(f"{folder.path} has lost its result.json; run again with another --out")
    del steps[done:]  # tested, but its state was not saved any more
    upper_bound = learner.method.sees_old_data != "never"
    for step in plan_steps(dataset, order, plan.step_sizes, start=done + 1, with_old_data=upper_bound):
        resume = folder.load_checkpoint(step.number)
        learned = learner.learn(step, resume=resume, save=folder.save_checkpoint)
        steps.append(_test(learner, learned, folder.path, dataset, order, steps))
        write_file(folder.path / "result.json", to_json(summary(plan, learner.model, steps, complete=False)))
        folder.save_step(learner, step.number)
        learner.progress.say(_sentence(steps[-1], len(plan.step_sizes)))
    folder.finish(len(steps))
    result = summary(plan, learner.model, steps, complete=True)
    write_file(folder.path / "result.json", to_json(result))
    return result


def _test(
    learner: Learner, learned: Learned, folder: Path, dataset: Dataset, order: Sequence[int], past: Sequence[Record]
) -> Record:
    """Test on all classes seen: predictions go to the folder, the step's record comes back."""
    started = time.perf_counter()
    model, pair = learner.model, learner.model.correction
    seen = order[: len(model.classes)]
    index = np.flatnonzero(np.isin(dataset.test.labels, seen))
    predictions, metrics = evaluate(model, dataset.test.of_classes(seen), index, learner.progress)
    packed = io.BytesIO()
    np.savez_compressed(packed, allow_pickle=False, **predictions)
    write_file(folder / f"predictions-{len(model.heads)}.npz", packed.getvalue())
    return {
        "step": len(model.heads),
        "seen": len(model.classes),
        **metrics,
        "alpha": None if pair is None else pair.alpha,
        "beta": None if pair is None else pair.beta,
        "forgetting": forgetting([step["top1_per_group"] for step in (*past, metrics)]),
        **vars(learned),
        "seconds": {**learned.seconds, "evaluate": time.perf_counter() - started},
    }


def summary(plan: Plan, model: Model, steps: Sequence[Record], *, complete: bool) -> Record:
    """The content of `result.json`."""
    top1 = [step["top1"] for step in steps]
    return {
        "method": plan.method,
        "dataset": plan.dataset,
        "seed": plan.seed,
        "config": plan.model_dump(mode="json"),
        "complete": complete,
        "final_top1": top1[-1],
        "average_top1": sum(top1) / len(top1),
        "average_incremental_top1": sum(top1[1:]) / len(top1[1:]) if len(top1) > 1 else None,
        "classes": list(model.classes),
        "made_with": _made_with(model),
        "steps": list(steps),
    }


def _made_with(model: Model) -> Record:
    """Versions and machine, as far as they can change the last bits or the time."""
    versions = {"bic": __version__, "torch": str(torch.__version__), "numpy": np.__version__}
    python = {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
    device = model.network.head.weight.device.type
    return {**versions, **python, "device": device, "threads": torch.get_num_threads(), "processes": world().size}


def open_for(config: RunConfig, data: Path | str | None, progress: Progress) -> Dataset:
    """The data set a request names, in the form its recipe wants."""
    recipe = find_recipe(config)
    sizes, choices = (
        recipe.model_dump(include={"image_size", "resize"}),
        config.model_dump(include={"label", "classes", "skip_bad"}),
    )
    path, keep_files = None if data is None else Path(data), recipe.random_resize is not None
    return open_dataset(config.dataset, path, **sizes, **choices, keep_files=keep_files, progress=progress)


def _sentence(step: Record, num_steps: int) -> str:
    """One step's outcome as a log line."""
    text = "step {step}/{total}: {seen} classes, top-1 {top1:.2f} %"
    if step["alpha"] is not None:
        text += " (uncorrected {top1_uncorrected:.2f} %, α {alpha:.3f}, β {beta:.3f})"
    return text.format(total=num_steps, **step)
