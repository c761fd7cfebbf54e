"""Run a protocol from its first step to its last. The run folder allows it to continue."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bic.compute.devices import check_device
from bic.compute.distributed import (
    first_before_others,
    joined,
    own_device,
    refuse_differences,
    world,
)
from bic.data.decode_pool import count_cpus, decoding, default_processes
from bic.data.images import Dataset
from bic.errors import UserError
from bic.lab.plan import Plan, RunConfig
from bic.lab.planning import make_plan, measured
from bic.lab.run_data import open_for, with_features
from bic.lab.run_results import result_of, sentence, tested
from bic.lab.steps import class_order, protocol_steps
from bic.learn.learner import Learner
from bic.learn.methods import find_method
from bic.model.model import Model
from bic.progress import Progress
from bic.store.results import Result, StepResult, check_predictions
from bic.store.run_folder import RunFolder
from bic.version import __version__


def run(
    config: RunConfig,
    out: Path | str | None = None,
    *,
    data: Path | str | Dataset | None = None,
    progress: Progress | None = None,
    threads: int | None = None,
    workers: int | None = None,
    device: str | None = None,
) -> Result:
    """Run one protocol with one method and return its result, the content of `result.json`.

    `out` is the run folder. `data` is the path of the data set, or the data set itself. `workers`
    prepare batches ahead: threads for images in memory, processes for files that are decoded when
    they are used. An interrupted run continues; a complete run is only read. Raises UserError for
    what a user can fix, such as settings that cannot work or a folder that holds another run.
    """
    if not isinstance(config, RunConfig):
        raise UserError(f"a run needs a RunConfig, got {config!r}", "pass RunConfig(dataset=…)")
    progress = progress or Progress("quiet")
    _check_count("workers", workers, minimum=0)
    device = own_device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    set_threads(threads)
    check_device(device)
    with joined(device) as team:
        progress = progress if team.is_first else Progress("quiet")
        dataset = open_for(config, data, progress)
        return _run(config, out, dataset, progress, workers, device)


def set_threads(threads: int | None) -> None:
    """Set the number of CPU threads. None does not change it."""
    _check_count("threads", threads, minimum=1)
    torch.set_num_threads(torch.get_num_threads() if threads is None else threads)


def _check_count(name: str, count: int | None, *, minimum: int) -> None:
    """Refuse a number that cannot work, or that would overload the machine."""
    num_cpus = count_cpus()
    maximum = max(64, 4 * num_cpus)
    if count is not None and not minimum <= count <= maximum:
        raise UserError(
            f"{name} must be from {minimum} to {maximum:,} here, got {count:,}",
            f"use {{{name}={num_cpus}}}, the number of CPUs",
        )


def _run(
    config: RunConfig,
    out: Path | str | None,
    dataset: Dataset,
    progress: Progress,
    workers: int | None,
    device: str,
) -> Result:
    """Run or continue in the folder, in each of the processes that share the run."""
    asked = config.model_dump(mode="json", exclude_unset=True)
    config = _with_recorded_method(config, out)
    plan = make_plan(config, dataset)
    _refuse_compiling(plan)
    folder = RunFolder(_default_folder(plan) if out is None else Path(out))
    refuse_differences(
        {
            "data": dataset.fingerprint,
            "version": f"bic {__version__}, torch {torch.__version__}",
            "configuration": str(plan.settings()),
        }
    )
    folder.refuse_strangers()
    method = find_method(plan.learning.method)
    if config.memory is not None and not method.keeps_exemplars:
        progress.say(f"memory has no effect: {method.name} keeps no exemplars")
    with folder.locked():
        recorded = folder.recorded_plan()
        known = None if recorded is None else Plan.of(recorded)
        plan = measured(plan, config, known, dataset, progress, device)
        agree = partial(folder.agree, asked, plan.settings(), _present_form)
        plan = Plan.of(first_before_others(agree))
        result = folder.load_result()
        if result is not None and result.complete:
            progress.say(f"{folder.path} is complete; nothing to do")
            return result
        progress.say(f"run folder: {folder.path}")
        threads_ahead, processes = _workers(workers, dataset, device)
        learner = Learner(plan.learning, progress=progress, device=device, workers=threads_ahead)
        steps = [] if result is None else list(result.steps)
        with decoding(processes):
            return _learn_all(learner, plan, folder, dataset, steps)


def _with_recorded_method(config: RunConfig, out: Path | str | None) -> RunConfig:
    """The request with the method that the run was started with, if it names none."""
    if config.method is not None or out is None:
        return config
    recorded = RunFolder(Path(out)).recorded_plan()
    if recorded is None:
        return config
    return config.model_copy(update={"method": Plan.of(recorded).learning.method})


def _present_form(settings: dict[str, Any]) -> dict[str, Any]:
    """Recorded settings as this version would record them."""
    return Plan.of(settings).settings()


def _default_folder(plan: Plan) -> Path:
    protocol = plan.protocol
    learning = plan.learning
    steps = f"{protocol.dataset}-{len(protocol.step_sizes)}steps"
    return Path("runs") / f"{steps}-{learning.method}-{learning.recipe.name}-seed{learning.seed}"


def _refuse_compiling(plan: Plan) -> None:
    if not plan.learning.compile:
        return
    if world().size > 1:
        raise UserError("several processes cannot train a compiled network", "leave out {compile}")
    if plan.learning.precision == "bfloat16":
        raise UserError(
            "a compiled network trains in float32 only", "leave out {compile} or {recipe.precision}"
        )


def _workers(count: int | None, dataset: Dataset, device: str) -> tuple[int, int]:
    """Threads that prepare images in memory, and processes that decode files.

    If training uses all CPU cores, one more thread costs a sixth of the speed. Preparing batches in
    the training thread costs one hundredth.
    """
    if dataset.train.is_decoded:
        return 1, default_processes(device) if count is None else count
    if count is None:
        count = 0 if device == "cpu" else 1
    return count, 0


def _learn_all(
    learner: Learner, plan: Plan, folder: RunFolder, dataset: Dataset, steps: list[StepResult]
) -> Result:
    """Learn the steps that are not done yet."""
    protocol = plan.protocol
    order = protocol.class_order or class_order(len(dataset.classes), protocol.order_seed)
    done = folder.load_step(learner)
    if len(steps) < done:
        raise UserError(
            f"{folder.path} has lost its result.json", "run again and choose another {out}"
        )
    del steps[done:]  # evaluated, but interrupted before the state was saved
    if done:
        _refuse_other_model(learner.model, plan, folder, dataset, order)
    for step_result in steps:
        check_predictions(folder.path, step_result)
    if learner.learning.recipe.frozen:
        dataset = with_features(learner, dataset, order[: protocol.step_sizes[0]])
    num_steps = len(protocol.step_sizes)
    every_step = protocol_steps(
        dataset,
        order,
        protocol.step_sizes,
        start=done + 1,
        with_everything=learner.method.is_upper_bound,
    )
    for step in every_step:
        learned = learner.learn(
            step.images,
            classes=step.classes,
            everything=step.everything,
            title=f"step {step.number}/{num_steps}",
            resume=folder.load_checkpoint(step.number),
            save=folder.save_checkpoint,
        )
        steps.append(tested(learner, learned, folder, dataset, order, steps))
        folder.save_result(result_of(plan, learner.model, steps, complete=False))
        if step.number == num_steps:
            learner.calibrate()
        folder.save_step(learner, step.number)
        learner.progress.say(sentence(steps[-1], num_steps))
    folder.finish(len(steps))
    result = result_of(plan, learner.model, steps, complete=True)
    folder.save_result(result)
    return result


def _refuse_other_model(
    model: Model, plan: Plan, folder: RunFolder, dataset: Dataset, order: Sequence[int]
) -> None:
    """Raise UserError unless a saved model has learned the first steps of this plan."""
    sizes = plan.protocol.step_sizes[: len(model.classes_per_step)]
    names = [dataset.classes[number] for number in order[: sum(sizes)]]
    is_ours = model.classes == tuple(names) and model.classes_per_step == tuple(sizes)
    if not is_ours or model.preprocessing != dataset.train.preprocessing:
        raise UserError(
            f"the saved state in {folder.path} is that of another run", "choose another {out}"
        )
